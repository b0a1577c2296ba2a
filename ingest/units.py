"""Cutting documents into units, which are searched by themselves: sentences, paragraphs, windows, chunks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..core.analysis import count_words, sentence_spans
from ..core.cutting import pieces, windows
from ..core.errors import require
from ..core.layout import UnitField
from ..core.types import Unit

SEGMENT = 32_768
"""Characters that are cut into chunks at a time, at most."""
_BLANK_LINES = re.compile(r"\n\s*\n")


def cut_units(text: str, fields: Mapping[str, UnitField]) -> dict[str, list[Unit]]:
    """The units of a document's text, by granularity, in the order of the text.

    Those of one granularity together hold all of the text but white space, and none is empty.
    """
    by_sentence = any(field.cut in ("sentence", "window") for field in fields.values())
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
    if field.cut == "chunk":
        return _chunks(text, field.characters)
    [parts] = pieces([text], [sentences], lambda texts: [count_words(one) for one in texts], [field.tokens])
    return windows(parts, field.tokens, field.overlap)


def _chunks(text: str, characters: int) -> list[tuple[int, int]]:
    """(start, end) of chunks of at most `characters`, cut at the highest level of meaning that fits.

    Raises MissingExtra without semantic-text-splitter.
    """
    require("cutting documents into chunks", "pages", "semantic_text_splitter")
    from semantic_text_splitter import TextSplitter

    splitter = TextSplitter(characters)
    return [
        (begin + start, begin + start + len(chunk))
        for begin, end in _segments(text, max(SEGMENT, 8 * characters))
        for start, chunk in splitter.chunk_indices(text[begin:end])
    ]


def _segments(text: str, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of parts of at most `size`, which end at a blank line, a line end or a space, if there is one.

    The splitter's time grows with the square of a text that has no such ends (5 MB without a blank line: minutes).
    """
    begin = 0
    while len(text) - begin > size:
        half = begin + size // 2
        found = (text.rfind(mark, half, begin + size) + len(mark) for mark in ("\n\n", "\n", " "))
        end = next((end for end in found if end > half), begin + size)
        yield begin, end
        begin = end
    yield begin, len(text)


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
