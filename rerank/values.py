"""Checks of scores: an invalid score is an error, never a rank."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.errors import InvalidData
from .types import Encoded


def finite(name: str, values: list[float]) -> list[float]:
    """The values. Raises InvalidData if one is NaN or infinite."""
    wrong = sum(not math.isfinite(value) for value in values)
    if wrong:
        raise InvalidData(
            f"the reranker {name} gave {wrong} of {len(values)} passages a score that is not finite: its weights are "
            "broken, or too large for the precision (try float32)"
        )
    return values


def refuse_equal(name: str, encoded: Sequence[Encoded], values: Sequence[float]) -> None:
    """Raises InvalidData if passages that differ for the model all have the same score."""
    if len(set(values)) == 1 and len({one.sequences for one in encoded}) > 1:
        raise InvalidData(
            f"the reranker {name} scored every passage the same ({values[0]:g}, {len(values)} passages): the "
            "model is loaded wrongly or ignores the passages"
        )
