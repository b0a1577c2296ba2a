"""Labelled pairs of the data sets, and what they are made into for learning. See `packaged_stance.py`."""

from __future__ import annotations

from typing import NamedTuple

from ccheck.verdict.labels import STANCES

SUPPORTS, REFUTES, OPEN = range(len(STANCES))
NOT_SUPPORTED = len(STANCES)
"""The label of a made pair that is refuted or open."""


class Pair(NamedTuple):
    """A claim, what is read of its evidence, the label's place in STANCES or NOT_SUPPORTED, and how much it counts."""

    claim: str
    evidence: str
    label: int
    weight: float = 1.0
