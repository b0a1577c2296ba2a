"""Cutting documents into passages of whole sentences."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..analysis import sentence_spans
from ..types import Document, document_text

if TYPE_CHECKING:
    from ..layout import Chunking

CountTokens = Callable[[Sequence[str]], list[int]]
"""How many tokens each text has."""
COUNTED_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class Span:
    """A passage: `text[start:end]` of the document, and what the model is given for it."""

    start: int
    end: int
    embedded: str


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence, or a part of a long one: its place in the text and its length in tokens."""

    start: int
    end: int
    tokens: int


def passages(documents: Sequence[Document], count_tokens: CountTokens, chunking: Chunking) -> list[list[Span]]:
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
    pieces = _pieces([documents[number].text for number in long], count_tokens, budgets)
    for number, (title, _), budget, parts in zip(long, titles, budgets, pieces, strict=True):
        text = documents[number].text
        answer[number] = [
            Span(start, end, document_text(title, text[start:end]))
            for start, end in _windows(parts, budget, chunking.overlap)
        ]
    return answer


def _in_slices(count_tokens: CountTokens) -> CountTokens:
    """The same over slices: tokenizers hold many times a text's size while they count it."""

    def count(texts: Sequence[str]) -> list[int]:
        slices = (texts[start : start + COUNTED_TOGETHER] for start in range(0, len(texts), COUNTED_TOGETHER))
        return [tokens for some in slices for tokens in count_tokens(some)]

    return count


def _windows(pieces: Sequence[_Piece], budget: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Runs of pieces of at most `budget` tokens, each beginning with up to `overlap` tokens of the one before it."""
    first, size = 0, 0
    for number, piece in enumerate(pieces):
        if number > first and size + piece.tokens > budget:
            yield pieces[first].start, pieces[number - 1].end
            before, first, size = first, number, 0
            # Not back to the beginning of the one before: it would be there twice, whole.
            while first - 1 > before and size + pieces[first - 1].tokens <= min(overlap, budget - piece.tokens):
                first -= 1
                size += pieces[first].tokens
        size += piece.tokens
    if pieces:
        yield pieces[first].start, pieces[-1].end


def _pieces(texts: Sequence[str], count_tokens: CountTokens, budgets: Sequence[int]) -> list[list[_Piece]]:
    """The sentences of each text; one of more tokens than the text's budget in parts, cut between words."""
    sentences = [(number, start, end) for number, text in enumerate(texts) for start, end in sentence_spans(text)]
    counts = count_tokens([texts[number][start:end] for number, start, end in sentences])
    words = [
        (index, word.start(), word.end())
        for index, (number, start, end) in enumerate(sentences)
        if counts[index] > budgets[number]
        for word in _WORD.finditer(texts[number], start, end)
    ]
    word_counts = count_tokens([texts[sentences[index][0]][start:end] for index, start, end in words])
    parts: dict[int, list[_Piece]] = {}
    for (index, start, end), tokens in zip(words, word_counts, strict=True):
        some = parts.setdefault(index, [])
        if some and some[-1].tokens + tokens <= budgets[sentences[index][0]]:
            start, tokens = some[-1].start, some.pop().tokens + tokens
        some.append(_Piece(start, end, tokens))
    answer: list[list[_Piece]] = [[] for _ in texts]
    for index, (number, start, end) in enumerate(sentences):
        answer[number] += parts.get(index) or [_Piece(start, end, counts[index])]
    return answer


_WORD = re.compile(r"\S+")


def _short_titles(titles: Sequence[str], count_tokens: CountTokens, most: int) -> list[tuple[str, int]]:
    """Each title, of its words no more than fit in `most` tokens, and how many tokens that makes."""
    answer = list(zip(titles, count_tokens(titles), strict=True))
    for number, (title, tokens) in enumerate(answer):
        if tokens > most:
            words = list(_WORD.finditer(title))
            ends = itertools.accumulate(count_tokens([word[0] for word in words]))
            fitting = [(title[: word.end()], size) for word, size in zip(words, ends, strict=True) if size <= most]
            answer[number] = fitting[-1] if fitting else ("", 0)
    return answer
