"""The values of evaluation: judgements, runs, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from ...core.types import Label

Qrels: TypeAlias = Mapping[str, Mapping[str, int]]
"""Relevance judgements: claim id, document id, grade. Above 0 is relevant; what is not there was not judged."""
Run: TypeAlias = Mapping[str, Mapping[str, float]]
"""Retrieved documents: claim id, document id, score. The highest score is first; equal ones stay in the order given.
A claim for which nothing was found is there, and empty."""
Interval: TypeAlias = tuple[float, float]
"""Low and high end of a 95% interval."""


@dataclass(frozen=True, slots=True)
class Gold:
    """True labels: `stances` by claim and document id, `verdicts` by claim id."""

    stances: Mapping[tuple[str, str], Label] = field(default_factory=dict)
    verdicts: Mapping[str, Label] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """Metrics by their names: means over the claims, each claim's value, and 95% intervals of the means.

    The claims are those whose judgements allow the metric to be computed. Where nothing was retrieved, they count as 0.
    """

    mean: dict[str, float]
    by_claim: dict[str, dict[str, float]]
    """Metric, claim id, value. The mean of the values is `mean`, for each metric."""
    intervals: dict[str, Interval]
    """Empty if there is one claim only."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Precision, recall and F1, and the number of true labels they are based on."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, slots=True)
class Classified:
    """How good labels are, over `count` of them. What could not be labelled is only in `failed`.

    `confusion` has a row for each true label and a column for each predicted one, both in the order of `labels`.
    `missing` are true labels for which there was neither a label nor a failure (a document that was not retrieved).
    `partial` of the `count` are verdicts that were made although some of their documents could not be judged.
    """

    labels: tuple[Label, ...]
    count: int
    failed: int
    missing: int
    partial: int
    accuracy: float
    weighted: Scores
    macro: Scores
    by_label: dict[Label, Scores]
    confusion: tuple[tuple[int, ...], ...]
    intervals: dict[str, Interval]
    """`accuracy`, `weighted_f1`, `macro_f1`; empty if all is of one claim."""
    calibration_error: float | None = None
    """The expected calibration error of the confidences; None without confidences."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Change:
    """One claim's values in two runs."""

    claim: str
    baseline: float
    value: float

    @property
    def difference(self) -> float:
        return self.value - self.baseline


@dataclass(frozen=True, slots=True)
class Difference:
    """A run against the baseline in one metric, over the claims that both have.

    `p` is of a two-sided randomisation test, `p_holm` the same after Holm's correction for all tests of the comparison.
    `interval` is that of the difference, None of one claim. `changes` are the claims with the largest differences.
    """

    run: str
    metric: str
    baseline: float
    value: float
    difference: float
    interval: Interval | None
    p: float
    p_holm: float
    wins: int
    losses: int
    ties: int
    claims: int
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs by name, the metrics of each, and the comparison of each other run with the first."""

    baseline: str
    measured: dict[str, Measured]
    differences: tuple[Difference, ...]
    messages: tuple[str, ...] = ()
