"""How the confidences of stances compare with how often they are right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import InvalidData
from ...core.types import Label, Stance

BINS = 10


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the confidences of `pairs` stances can be trusted, a share `accuracy` of which is right.

    `error` is the expected calibration error: the mean over stances of the difference between their bin's mean
    confidence and its share of right ones (Guo et al. 2017, equation 3). `brier` is the mean squared difference of
    confidence and right (1) or wrong (0).
    """

    error: float
    brier: float
    accuracy: float
    pairs: int


def reliability(stances: Sequence[Stance], labels: Sequence[Label]) -> Reliability:
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
    gaps = [0.0] * BINS  # of each bin the sum of confidences less the number of right ones
    for confidence, right in given:
        gaps[min(BINS - 1, max(0, math.ceil(confidence * BINS) - 1))] += confidence - right
    return Reliability(
        error=sum(map(abs, gaps)) / len(given),
        brier=sum((confidence - right) ** 2 for confidence, right in given) / len(given),
        accuracy=sum(right for _, right in given) / len(given),
        pairs=len(given),
    )
