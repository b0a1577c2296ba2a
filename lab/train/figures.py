"""How good a trained model is: figures before and after, in words too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.types import Claim, Label, Stance
from ...verdict.judge import StanceMethod
from ..measure.metrics import bootstrap, measure, only
from ..measure.rows import StanceRow, judge_rows
from ..measure.types import Classified, Interval, Qrels, Run
from ..measure.verdicts import classify
from .loop import Trained
from .retrieval_data import SEEN, UNSEEN, RetrievalData


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric of a group of claims, or of pairs, before and after training.

    Intervals are 95%, of the difference paired by claim. Of a stance model, `before` is that of always giving the most
    frequent label.
    """

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
        return f"{self.after - self.before:+.4f} {shown(self.difference_interval)}".rstrip()


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a training. `beside`: what the figures before it are of. `notes` are for the user."""

    kind: str
    output: Path
    base: str
    phases: tuple[Trained, ...]
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
    beside: str = "before training"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "output": str(self.output),
            "base": self.base,
            "before": self.beside,
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


STANCE_METRICS = ("weighted F1", "macro F1", "accuracy")


def stance_value(found: Classified, metric: str) -> float:
    """The value of one of `STANCE_METRICS`."""
    return {"weighted F1": found.weighted.f1, "macro F1": found.macro.f1, "accuracy": found.accuracy}[metric]


def measure_rows(rows: Sequence[StanceRow], said: Sequence[Stance], resamples: int = 1000) -> Classified:
    """How good stances are, with intervals over claims. Raises InvalidData if none could be made."""
    keys = [(row.claim_id, str(number)) for number, row in enumerate(rows)]
    return classify(
        dict(zip(keys, said, strict=True)),
        {key: row.label for key, row in zip(keys, rows, strict=True)},
        resamples=resamples,
    )


def stance_figures(
    method: StanceMethod, groups: Mapping[str, Sequence[StanceRow]], most: Label
) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    """The figures of each group, beside those of always saying `most`; and where the model is not clearly better."""
    found: list[Figure] = []
    notes: list[str] = []
    for name, rows in groups.items():
        floor, own = measure_rows(rows, [Stance(most)] * len(rows)), measure_rows(rows, judge_rows(method, rows)[0])
        for metric in STANCE_METRICS:
            before, after = (stance_value(one, metric) for one in (floor, own))
            ends = [one.intervals.get(metric.lower().replace(" ", "_")) for one in (floor, own)]
            found.append(Figure(name, own.count, metric, before, after, ends[0], ends[1], None))
        low, high = own.intervals.get("weighted_f1", (own.weighted.f1, own.weighted.f1))
        if own.failed:
            notes.append(f"{name}: {own.failed} pairs without an answer")
        if high < floor.weighted.f1:
            notes.append(f"{name}: the model is worse than always saying {most}. Do not use it")
        elif low <= floor.weighted.f1:
            notes.append(f"{name}: on {own.count} pairs the model can't be distinguished from always saying {most}")
    return tuple(found), tuple(notes)


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
