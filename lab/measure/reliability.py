"""How the confidences of stances compare with how often they are right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import InvalidData
from ...core.types import Label, Stance

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """The stances whose confidence is above `low`, up to `high`: how many, their mean confidence, the share right."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the confidences can be trusted.

    `error` is the expected calibration error: the mean over stances of the difference between their bin's mean
    confidence and its share of right ones (Guo et al. 2017, equation 3). `brier` is the mean squared difference of
    confidence and right (1) or wrong (0).
    """

    bins: tuple[Bin, ...]
    error: float
    brier: float
    accuracy: float
    pairs: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def reliability(stances: Sequence[Stance], labels: Sequence[Label], bins: int = BINS) -> Reliability:
    """How the confidences of stances compare with how often they are right, in bins of equal width.

    Stances without a label or confidence are left out. Raises InvalidData if none is left.
    """
    given = [
        (stance.confidence, stance.label == label)
        for stance, label in zip(stances, labels, strict=True)
        if stance.label is not None and stance.confidence is not None
    ]
    if not given:
        raise InvalidData("nothing to compare: no stance has both a label and a confidence")
    places: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for confidence, right in given:
        places[min(bins - 1, max(0, math.ceil(confidence * bins) - 1))].append((confidence, right))
    made, error = [], 0.0
    for number, place in enumerate(places):
        mean = sum(confidence for confidence, _ in place) / len(place) if place else None
        accuracy = sum(right for _, right in place) / len(place) if place else None
        made.append(Bin(number / bins, (number + 1) / bins, len(place), mean, accuracy))
        if mean is not None and accuracy is not None:
            error += abs(mean - accuracy) * len(place) / len(given)
    brier = sum((confidence - right) ** 2 for confidence, right in given) / len(given)
    return Reliability(tuple(made), error, brier, sum(right for _, right in given) / len(given), len(given))
