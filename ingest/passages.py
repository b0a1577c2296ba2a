"""Cutting documents into passages of whole sentences, and into units, which are searched by themselves."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from more_itertools import chunked

from ..core.analysis import count_words, sentence_spans
from ..core.errors import require
from ..core.layout import Chunking, UnitField
from ..core.types import Document, Unit, document_text
from ..core.windows import RUN, Count, pieces, windows

COUNTED_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class Span:
    """A passage: `text[start:end]` of the document, and what the model is given for it."""

    start: int
    end: int
    embedded: str


def count_all(texts: Iterable[str], count_tokens: Count) -> list[int]:
    """The tokens of each text, counted in slices: tokenizers hold many times a text's size."""
    return [tokens for some in chunked(texts, COUNTED_TOGETHER) for tokens in count_tokens(some)]


def cut_passages(documents: Sequence[Document], count_tokens: Count, chunking: Chunking) -> list[list[Span]]:
    """The passages of each document, in the order of its text; together they hold all of it but white space.

    What is embedded is the title, a line end, and the passage, together at most `max_tokens`; only a single word that
    is longer than that makes a longer one. Tokens are counted for all documents in a few calls.
    """
    count = functools.partial(count_all, count_tokens=count_tokens)

    wholes = [document.content for document in documents]
    answer = [[Span(0, len(document.text), whole)] for document, whole in zip(documents, wholes, strict=True)]
    if not chunking.cuts:
        return answer
    long = [number for number, tokens in enumerate(count(wholes)) if tokens > chunking.longer_than]
    titles = _short_titles([documents[number].title for number in long], count, chunking.max_tokens // 2)
    budgets = [chunking.max_tokens - tokens for _, tokens in titles]
    texts = [documents[number].text for number in long]
    cut = pieces(texts, [sentence_spans(text) for text in texts], count, budgets)
    for number, text, (title, _), budget, parts in zip(long, texts, titles, budgets, cut, strict=True):
        answer[number] = [
            Span(start, end, document_text(title, text[start:end]))
            for start, end in windows(parts, budget, chunking.overlap)
        ]
    return answer


def _short_titles(titles: Sequence[str], count_tokens: Count, most: int) -> list[tuple[str, int]]:
    """Each title, of its words no more than fit in `most` tokens, and how many tokens that makes."""
    answer = list(zip(titles, count_tokens(titles), strict=True))
    for number, (title, tokens) in enumerate(answer):
        if tokens > most:
            words = list(RUN.finditer(title))
            ends = itertools.accumulate(count_tokens([word[0] for word in words]))
            fitting = [(title[: word.end()], size) for word, size in zip(words, ends, strict=True) if size <= most]
            answer[number] = fitting[-1] if fitting else ("", 0)
    return answer


# -- units

SEGMENT = 32_768
"""Characters that are cut into chunks at a time, at most."""
_BLANK_LINES = re.compile(r"\n\s*\n")


def refuse_uncut(cuts: Iterable[str]) -> None:
    """Raises MissingExtra if units are to be cut in a way (`UnitField.cut`) that is not installed."""
    if "chunk" in cuts:
        require("cutting documents into chunks", "pages", "semantic_text_splitter")


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
    """(start, end) of chunks of at most `characters`, cut at the highest level of meaning that fits."""
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
