"""Finds the terms near a term, weighted as in a fuzzy match query of Elasticsearch.

There a term of the claim stands for those of the index within some edits (insertion, deletion, substitution, or the
swap of two neighbours: optimal string alignment), at most 50 of them, the nearest first and then by their bytes
(Lucene's FuzzyQuery). Each has the boost 1 - edits / length of the shorter one, and all are weighed as if they were as
frequent as the most frequent of them (the rewrite `top_terms_blended_freqs_50`), so that a rare misspelling in the
index does not outweigh the word itself. If two words of the claim stand for one term, their shares are summed;
Lucene adds their boosts and weighs both like one of the two, whichever its hashes, which differ from process to
process, bring first. https://lucene.apache.org/core/10_0_0/core/org/apache/lucene/search/FuzzyQuery.html
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

MAX_EXPANSIONS = 50
MAX_LENGTH = 255
"""Longer terms match exactly only; Lucene indexes none."""
_KEPT = 50_000
"""How many expansions are remembered."""

Fuzziness: TypeAlias = Literal["auto", 0, 1, 2]


def allowed_edits(term: str, fuzziness: Fuzziness) -> int:
    """How many edits may lie between a term and another; `auto`: none up to 2 characters, 1 up to 5, else 2."""
    if fuzziness != "auto":
        return fuzziness
    return 0 if len(term) < 3 else 1 if len(term) < 6 else 2


class Dictionary:
    """The terms of one field with the number of documents that have them."""

    def __init__(self, terms: Sequence[tuple[str, int]], documents: int) -> None:
        lengths = np.fromiter((len(term) for term, _ in terms), np.int64, len(terms))
        order = np.argsort(lengths, kind="stable")
        self._terms = [terms[place][0] for place in order.tolist()]
        self._frequencies = np.fromiter((count for _, count in terms), np.int64, len(terms))[order]
        self._lengths = lengths[order]
        self._codes = np.frombuffer("".join(self._terms).encode("utf-32-le"), np.uint32)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._signs = np.bitwise_or.reduceat(_bits(self._codes), self._starts) if terms else np.zeros(0, np.uint64)
        self._documents = documents
        self._known: dict[tuple[str, int], list[tuple[str, float]]] = {}

    def expand(self, term: str, edits: int) -> list[tuple[str, float]]:
        """The terms that a term of the claim stands for, and the factor for the BM25 score of each."""
        key = (term, edits)
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = self._expand(term, edits)
        return self._known[key]

    def _expand(self, term: str, edits: int) -> list[tuple[str, float]]:
        if not 0 < len(term) <= MAX_LENGTH:
            return [(term, 1.0)]
        places, distances = self._near(term, edits)
        shorter = np.minimum(self._lengths[places], len(term))
        boosts = np.where(distances == 0, 1.0, 1.0 - distances / shorter)
        found = [(self._terms[place], place, boost) for place, boost in zip(places.tolist(), boosts, strict=True)]
        found.sort(key=lambda one: (-one[2], one[0].encode()))
        found = found[:MAX_EXPANSIONS]
        if not found:
            return []
        frequencies = self._frequencies[[place for _, place, _ in found]]
        common = self._idf(int(frequencies.max()))
        return [
            (near, float(boost) * common / self._idf(frequency))
            for (near, _, boost), frequency in zip(found, frequencies.tolist(), strict=True)
            if boost > 0
        ]

    def _idf(self, frequency: int) -> float:
        # Documents that are gone count in a term's frequency until segments merge.
        documents = max(self._documents, frequency)
        return math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))

    def _near(self, term: str, edits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of the terms within so many edits, and the edits."""
        codes = np.frombuffer(term.encode("utf-32-le"), np.uint32)
        first, last = np.searchsorted(self._lengths, [len(term) - edits, len(term) + edits + 1])
        # Each edit brings in or takes away one character at most.
        sign = np.bitwise_or.reduce(_bits(codes))
        signs = self._signs[first:last]
        similar = (np.bitwise_count(signs & ~sign) <= edits) & (np.bitwise_count(sign & ~signs) <= edits)
        places = np.flatnonzero(similar) + first
        if not len(places):
            return places, places
        distances = self._distances(places, codes, edits)
        near = distances <= edits
        return places[near], distances[near]

    def _distances(self, places: NDArray[np.int64], codes: NDArray[np.uint32], edits: int) -> NDArray[np.int64]:
        """The edits between each of these terms and `codes`, or more than `edits` where they are that many."""
        length, width = len(codes), len(codes) + edits
        lengths = self._lengths[places]
        columns = np.arange(width)
        inside = columns < lengths[:, None]
        others = self._codes[np.where(inside, self._starts[places][:, None] + columns, 0)]
        others = np.where(inside, others, 0).T.copy()  # by character, so that each is one run in memory
        far = np.full(len(places), edits + 1, np.int8)
        before: dict[int, NDArray[np.int8]] = {}
        above = {column: np.full(len(places), column, np.int8) for column in range(edits + 1)}
        for row in range(1, length + 1):
            here: dict[int, NDArray[np.int8]] = {}
            for column in range(max(0, row - edits), min(width, row + edits) + 1):
                if column == 0:
                    here[0] = np.full(len(places), row, np.int8)
                    continue
                same = others[column - 1] == codes[row - 1]
                cell = above.get(column - 1, far) + ~same
                cell = np.minimum(cell, above.get(column, far) + 1)
                cell = np.minimum(cell, here.get(column - 1, far) + 1)
                if row > 1 and column > 1 and column - 2 in before:
                    swapped = (others[column - 1] == codes[row - 2]) & (others[column - 2] == codes[row - 1])
                    cell = np.where(swapped, np.minimum(cell, before[column - 2] + 1), cell)
                here[column] = np.minimum(cell, far).astype(np.int8)
            before, above = above, here
        answer = np.full(len(places), edits + 1, np.int64)
        for column, cells in above.items():
            at_end = lengths == column
            answer[at_end] = cells[at_end]
        return answer


def _bits(codes: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A bit for each character, of 64; ASCII's letters and digits have their own."""
    return np.left_shift(np.uint64(1), ((codes + np.where(codes >= 97, 25, 0)) & 63).astype(np.uint64))
