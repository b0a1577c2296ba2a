"""Rerankers: texts in, scores out, in the order given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reranker(Protocol):
    """Scores passages for a query; a higher score is a better match."""

    def __call__(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        """One finite score for each passage, in the order given."""
        ...
