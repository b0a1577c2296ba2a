"""Cutting documents into passages of whole sentences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from more_itertools import chunked

from ..core.analysis import sentence_spans
from ..core.cutting import WORD, Count, pieces, windows
from ..core.types import Document, document_text

if TYPE_CHECKING:
    from ..core.layout import Chunking

COUNTED_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class Span:
    """A passage: `text[start:end]` of the document, and what the model is given for it."""

    start: int
    end: int
    embedded: str


def cut_passages(documents: Sequence[Document], count_tokens: Count, chunking: Chunking) -> list[list[Span]]:
    """The passages of each document, in the order of its text; together they hold all of it but white space.

    What is embedded is the title, a line end, and the passage, together at most `max_tokens`; only a single word that
    is longer than that makes a longer one. Tokens are counted for all documents in a few calls.
    """
    count_tokens = _in_slices(count_tokens)
    wholes = [document.content for document in documents]
    answer = [[Span(0, len(document.text), whole)] for document, whole in zip(documents, wholes, strict=True)]
    if not chunking.cuts:
        return answer
    long = [number for number, tokens in enumerate(count_tokens(wholes)) if tokens > chunking.longer_than]
    titles = _short_titles([documents[number].title for number in long], count_tokens, chunking.max_tokens // 2)
    budgets = [chunking.max_tokens - tokens for _, tokens in titles]
    texts = [documents[number].text for number in long]
    cut = pieces(texts, [sentence_spans(text) for text in texts], count_tokens, budgets)
    for number, text, (title, _), budget, parts in zip(long, texts, titles, budgets, cut, strict=True):
        answer[number] = [
            Span(start, end, document_text(title, text[start:end]))
            for start, end in windows(parts, budget, chunking.overlap)
        ]
    return answer


def _in_slices(count_tokens: Count) -> Count:
    """The same over slices: tokenizers hold many times a text's size while they count it."""

    def count(texts: Sequence[str]) -> list[int]:
        return [tokens for some in chunked(texts, COUNTED_TOGETHER) for tokens in count_tokens(some)]

    return count


def _short_titles(titles: Sequence[str], count_tokens: Count, most: int) -> list[tuple[str, int]]:
    """Each title, of its words no more than fit in `most` tokens, and how many tokens that makes."""
    answer = list(zip(titles, count_tokens(titles), strict=True))
    for number, (title, tokens) in enumerate(answer):
        if tokens > most:
            words = list(WORD.finditer(title))
            ends = itertools.accumulate(count_tokens([word[0] for word in words]))
            fitting = [(title[: word.end()], size) for word, size in zip(words, ends, strict=True) if size <= most]
            answer[number] = fitting[-1] if fitting else ("", 0)
    return answer
