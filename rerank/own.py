"""A reranker that a program brings along: a function of a claim and its passages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..core.errors import CcheckError, InvalidData
from ..core.text import name_of
from .types import Reranker, Scores, not_finite

Score: TypeAlias = Callable[[str, Sequence[str]], Sequence[float]]
"""A score for each passage, in order; a higher one is a better match. It can be called in several threads."""


class OwnReranker:
    """A function as a `Reranker`. Whatever it raises is an error of the claim's reranking, never a rank."""

    def __init__(self, function: Score | Reranker) -> None:
        self.name, self.function = name_of(function), function

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        try:
            found = self.function(query, passages)
            if isinstance(found, Scores):
                return found
            values = tuple(map(float, found))
        except CcheckError:
            raise
        except Exception as error:
            raise InvalidData(f"the reranker {self.name} failed: {type(error).__name__}: {error}") from error
        if len(values) != len(passages):
            raise InvalidData(f"the reranker {self.name} gave {len(values)} scores for {len(passages)} passages")
        if not all(map(math.isfinite, values)):
            raise not_finite(self.name, values)
        return Scores(values, (False,) * len(values), logits=not all(0 <= value <= 1 for value in values))
