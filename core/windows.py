"""Cutting texts into windows of whole sentences, which passages and units share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .analysis import IDEOGRAPH

Count = Callable[[Sequence[str]], list[int]]
"""The size of each text: how many tokens or words it has."""
RUN = re.compile(rf"[{IDEOGRAPH}][^\w\s]*|[^\s{IDEOGRAPH}]+")
"""A word, which is never cut: a run without white space, or a single ideograph with its punctuation."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence, or a part of a long one: its place in the text, and its size."""

    start: int
    end: int
    size: int


def windows(pieces: Sequence[Piece], budget: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Runs of pieces of at most `budget` in size, each beginning with up to `overlap` of the one before it."""
    first, size = 0, 0
    for number, piece in enumerate(pieces):
        if number > first and size + piece.size > budget:
            yield pieces[first].start, pieces[number - 1].end
            before, first, size = first, number, 0
            # Not back to the beginning of the one before: it would be there twice, whole.
            while first - 1 > before and size + pieces[first - 1].size <= min(overlap, budget - piece.size):
                first -= 1
                size += pieces[first].size
        size += piece.size
    if pieces:
        yield pieces[first].start, pieces[-1].end


def pieces(
    texts: Sequence[str], sentences: Sequence[Sequence[tuple[int, int]]], count: Count, budgets: Sequence[int]
) -> list[list[Piece]]:
    """The sentences of each text; those larger than the text's budget in parts, cut between words.

    `count` is called twice at most, for all texts together.
    """
    found = [(number, start, end) for number, some in enumerate(sentences) for start, end in some]
    sizes = count([texts[number][start:end] for number, start, end in found])
    words = [
        (index, word.start(), word.end())
        for index, (number, start, end) in enumerate(found)
        if sizes[index] > budgets[number]
        for word in RUN.finditer(texts[number], start, end)
    ]
    word_sizes = count([texts[found[index][0]][start:end] for index, start, end in words]) if words else []
    parts: dict[int, list[Piece]] = {}
    for (index, start, end), size in zip(words, word_sizes, strict=True):
        some = parts.setdefault(index, [])
        if some and some[-1].size + size <= budgets[found[index][0]]:
            start, size = some[-1].start, some.pop().size + size
        some.append(Piece(start, end, size))
    answer: list[list[Piece]] = [[] for _ in texts]
    for index, (number, start, end) in enumerate(found):
        answer[number] += parts.get(index) or [Piece(start, end, sizes[index])]
    return answer
