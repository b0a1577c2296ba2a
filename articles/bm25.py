"""BM25 over a few thousand short texts in memory: parts of articles, which change with every question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

K1, B = 1.2, 0.75


class Bm25Index:
    """Scores as Lucene has them: idf = ln(1 + (N - n + .5) / (n + .5)), tf / (tf + k1 * (1 - b + b * length / mean)).

    Lengths are exact; search engines round them to a byte. `texts` are the terms of each text.
    """

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        import numpy as np

        lengths = np.array([len(text) for text in texts], np.float64)
        mean = float(lengths.mean()) if len(texts) else 0.0
        self._norms = K1 * (1 - B + B * lengths / (mean or 1.0))
        self._count = len(texts)
        postings: dict[str, list[tuple[int, int]]] = {}
        for number, text in enumerate(texts):
            for term, times in Counter(text).items():
                postings.setdefault(term, []).append((number, times))
        self._postings = {
            term: (np.array([one for one, _ in found], np.int32), np.array([times for _, times in found], np.float64))
            for term, found in postings.items()
        }

    def __len__(self) -> int:
        return self._count

    def rarity(self, term: str) -> float:
        """The term's inverse document frequency."""
        found = len(self._postings[term][0]) if term in self._postings else 0
        return math.log(1 + (self._count - found + 0.5) / (found + 0.5))

    def scores(self, terms: Sequence[str]) -> NDArray[np.float64]:
        """One score for each text, shape [texts]."""
        import numpy as np

        scores = np.zeros(self._count)
        for term, times in Counter(terms).items():
            if term in self._postings:
                rows, frequencies = self._postings[term]
                scores[rows] += times * self.rarity(term) * frequencies / (frequencies + self._norms[rows])
        return scores
