"""Evidence sentences with the text around them, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ..core.analysis import sentence_spans
from ..core.types import Document, Sentence

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, by its character offsets: `evidence`, `near` it, or `far` from it."""

    start: int
    end: int
    kind: Literal["evidence", "near", "far"]


def in_place(sentence: Sentence, document: Document) -> bool:
    """Whether a sentence is in its document at its offsets."""
    text = document.title if sentence.field == "title" else document.text
    return 0 <= sentence.start < sentence.end <= len(text) and text[sentence.start : sentence.end] == sentence.text


def evidence_spans(document: Document, sentences: Iterable[Sentence], field: Literal["title", "text"]) -> list[Span]:
    """Where evidence stands in a field: in order, and those that overlap as one."""
    found = sorted((one.start, one.end) for one in sentences if one.field == field and in_place(one, document))
    spans: list[Span] = []
    for start, end in found:
        if spans and start < spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans


def pieces(text: str, evidence: Sequence[Span], room: int) -> list[Piece]:
    """The whole text in pieces, in order and without gaps; `evidence` comes in order, and none overlaps another.

    `near` is what the sentences before and after evidence have within `room` characters of it, in whole words, and
    what evidence leaves of the sentence that it is in. Without evidence, it is how the text begins.
    """
    near = list(_neighbours(text, evidence, room))
    cuts = sorted({0, len(text), *(offset for span in (*evidence, *near) for offset in span)})
    beginnings = {start for start, _ in evidence}
    found: list[Piece] = []
    for start, end in pairwise(cuts):
        kind: Literal["evidence", "near", "far"] = "far"
        if any(first <= start and end <= last for first, last in evidence):
            kind = "evidence"
        elif any(first <= start and end <= last for first, last in near) or text[start:end].isspace():
            kind = "near"
        # Sentences of evidence side by side stay apart; else what is alike is one piece.
        if found and kind == found[-1].kind and start not in beginnings:
            found[-1] = Piece(found[-1].start, end, kind)
        else:
            found.append(Piece(start, end, kind))
    return found


def _neighbours(text: str, evidence: Sequence[Span], room: int) -> Iterator[Span]:
    sentences = sentence_spans(text)
    if not evidence:
        yield from ((start, _back(text, start, end, 2 * room)) for start, end in sentences[:1])
    for start, end in evidence:
        touched = [i for i, (first, last) in enumerate(sentences) if first < end and start < last]
        if touched:
            before = sentences[max(0, touched[0] - 1)][0]
            after = sentences[min(len(sentences) - 1, touched[-1] + 1)][1]
            yield _forth(text, min(before, start), start, room), _back(text, end, max(after, end), room)


def _forth(text: str, start: int, end: int, room: int) -> int:
    """Where to begin so that at most `room` characters come before `end`, with a whole word."""
    if end - start <= room:
        return start
    space = text.find(" ", end - room, end)
    return end if space < 0 else space + 1


def _back(text: str, start: int, end: int, room: int) -> int:
    """Where to end so that at most `room` characters come after `start`, with a whole word."""
    if end - start <= room:
        return end
    space = text.rfind(" ", start, start + room)
    return start if space < 0 else space
