"""A reranker on this machine: a scorer that is called for one query at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .types import Scorer, Scores
from .values import telling


class LocalReranker:
    """Scores passages with a scorer, one caller at a time."""

    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.name
        self._scorer = scorer
        self._lock = threading.Lock()

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """One score for each passage. Raises InvalidData where scores are not finite, or all the same."""
        encoded = self._scorer.encode(query, passages)
        with self._lock:
            values = self._scorer.score(encoded)
        telling(self.name, encoded, values)
        return Scores(tuple(values), tuple(one.cut for one in encoded), self._scorer.logits)
