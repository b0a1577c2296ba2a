"""Cutting documents into units, which are searched by themselves: sentences, paragraphs, windows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..analysis import count_words, sentence_spans
from ..layout import UnitField
from ..types import Unit
from .cutting import pieces, windows

_BLANK_LINES = re.compile(r"\n\s*\n")


def cut_units(text: str, fields: Mapping[str, UnitField]) -> dict[str, list[Unit]]:
    """The units of a document's text, by granularity, in the order of the text.

    Those of one granularity together hold all of the text but white space, and none is empty.
    """
    by_sentence = any(field.cut != "paragraph" for field in fields.values())
    sentences = sentence_spans(text) if by_sentence else []
    return {
        name: [
            Unit(name, number, start, end, text[start:end])
            for number, (start, end) in enumerate(_spans(text, sentences, field))
        ]
        for name, field in fields.items()
    }


def _spans(text: str, sentences: Sequence[tuple[int, int]], field: UnitField) -> Iterable[tuple[int, int]]:
    if field.cut == "sentence":
        return sentences
    if field.cut == "paragraph":
        return _paragraphs(text)
    [parts] = pieces([text], [sentences], lambda texts: [count_words(one) for one in texts], [field.tokens])
    return windows(parts, field.tokens, field.overlap)


def _paragraphs(text: str) -> list[tuple[int, int]]:
    """(start, end) of what stands between blank lines, without the white space around it."""
    ends = [0, *(position for blank in _BLANK_LINES.finditer(text) for position in blank.span()), len(text)]
    spans = []
    for start, end in zip(ends[::2], ends[1::2], strict=True):
        paragraph = text[start:end]
        left, right = len(paragraph.lstrip()), len(paragraph.rstrip())
        if left:
            spans.append((end - left, start + right))
    return spans
