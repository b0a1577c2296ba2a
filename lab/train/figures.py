"""How good a trained retrieval model is: figures before and after, in words too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.types import Claim
from ..measure.metrics import bootstrap, measure, only
from ..measure.types import Interval, Qrels, Run
from .loop import Trained
from .retrieval_data import SEEN, UNSEEN, RetrievalData


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric of a group of claims before and after training; intervals are 95%, of the difference paired by claim."""

    group: str
    claims: int
    metric: str
    before: float
    after: float
    before_interval: Interval | None
    after_interval: Interval | None
    difference_interval: Interval | None

    def describe(self) -> str:
        return f"{self.before:.4f} {shown(self.before_interval)} to {self.after:.4f} {shown(self.after_interval)}"

    def change(self) -> str:
        """The difference, with its interval."""
        return f"{self.after - self.before:+.4f} {shown(self.difference_interval)}"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a training. `notes` are for the user."""

    kind: str
    output: Path
    base: str
    phases: tuple[Trained, ...]
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "output": str(self.output),
            "base": self.base,
            "phases": [one.to_dict() for one in self.phases],
            "figures": [{name: getattr(figure, name) for name in Figure.__slots__} for figure in self.figures],
            "notes": list(self.notes),
        }


def development_value(run: Run, qrels: Qrels, claims: Sequence[Claim], metric: str) -> float:
    """The mean of a metric over some claims."""
    found = measure(run, only(qrels, [str(claim.id) for claim in claims]), [metric], resamples=100)
    return found.mean[metric]


def figures(data: RetrievalData, before: Run, after: Run, metrics: Sequence[str]) -> tuple[Figure, ...]:
    """Both states of each group of claims."""
    found = []
    for group, claims in data.groups.items():
        judged = only(data.qrels, [str(claim.id) for claim in claims])
        old, new = (measure({key: run.get(key, {}) for key in judged}, judged, metrics) for run in (before, after))
        for metric in metrics:
            changes = [new.by_claim[metric][claim] - old.by_claim[metric][claim] for claim in judged]
            interval = bootstrap(changes) if len(changes) > 1 else None
            intervals = old.intervals.get(metric), new.intervals.get(metric), interval
            found.append(Figure(group, len(judged), metric, old.mean[metric], new.mean[metric], *intervals))
    return tuple(found)


def notes_on(found: Sequence[Figure], metric: str) -> list[str]:
    """Notes on the figures: whether training helped on the claims whose documents it did not see."""
    if not found:
        return ["all claims were trained on and nothing was measured. The weights are those of the last step"]
    notes = []
    of = {figure.group: figure for figure in found if figure.metric == metric}
    unseen, seen = of.get(UNSEEN), of.get(SEEN)
    if unseen is None:
        notes.append(
            "no claims were kept apart by document, so the figures do not show whether the model learned or remembered"
        )
    elif unseen.difference_interval is None or unseen.difference_interval[0] <= 0 <= unseen.difference_interval[1]:
        notes.append(
            f"on claims about new documents {metric} went from {unseen.before:.3f} to {unseen.after:.3f}. On "
            f"{unseen.claims} claims, that can be chance"
        )
    elif unseen.after < unseen.before:
        notes.append(f"training made the model worse on claims about new documents: {metric} {unseen.describe()}")
    if (
        seen is not None
        and unseen is not None
        and seen.after - seen.before > max(0.0, unseen.after - unseen.before) + 0.05
    ):
        notes.append(
            f"the gain by claim ({seen.after - seen.before:+.3f}) is larger than the gain by document "
            f"({unseen.after - unseen.before:+.3f}). The model remembered some of the documents"
        )
    return notes


def shown(interval: Interval | None) -> str:
    """An interval, if there is one."""
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval is not None else ""
