"""How good a trained model is: figures before and after, in words too, and the page beside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...core.table import toml
from ...core.text import figure
from ...core.types import Claim, Label, Stance
from ...verdict.judge import StanceMethod
from ...verdict.labels import STANCES
from ..measure.metrics import bootstrap, measure, only
from ..measure.pairs import StanceRow, judge_rows
from ..measure.types import Interval, Qrels, Run
from ..measure.verdicts import intervals_of, label_figures, tally
from .loop import Trained
from .options import TrainingOptions
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
        return f"{figure(self.before, self.before_interval)} to {figure(self.after, self.after_interval)}"

    def change(self) -> str:
        """The difference, with its interval."""
        return figure(self.after - self.before, self.difference_interval, sign="+")


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
            "figures": [asdict(one) for one in self.figures],
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


STANCE_METRICS = {"weighted F1": "weighted_f1", "macro F1": "macro_f1", "accuracy": "accuracy"}
"""What `label_figures` calls them."""


def stance_counts(rows: Sequence[StanceRow], said: Sequence[Stance]) -> NDArray[np.float64]:
    """The confusion matrix of each claim's pairs. A pair without an answer counts as wrong."""
    labels = [row.label for row in rows], [stance.label for stance in said]
    return tally([row.claim_id for row in rows], *labels, STANCES)


def stance_value(counts: NDArray[np.float64], metric: str) -> float:
    """The value of one of `STANCE_METRICS`."""
    return float(label_figures(counts.sum(axis=0, keepdims=True))[STANCE_METRICS[metric]][0])


def stance_figures(
    method: StanceMethod, groups: Mapping[str, Sequence[StanceRow]], most: Label
) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    """The figures of each group, beside those of always saying `most`; and where the model is not clearly better."""
    found: list[Figure] = []
    notes: list[str] = []
    for name, rows in groups.items():
        said = judge_rows(method, rows)[0]
        floor, own = stance_counts(rows, [Stance(most)] * len(rows)), stance_counts(rows, said)
        intervals = intervals_of(floor), intervals_of(own), intervals_of(own, floor)
        for metric, key in STANCE_METRICS.items():
            before, after = (stance_value(one, metric) for one in (floor, own))
            found.append(Figure(name, len(own), metric, before, after, *(ends.get(key) for ends in intervals)))
        if failed := sum(stance.label is None for stance in said):
            notes.append(f"{name}: {failed} of {len(rows)} pairs without an answer count as wrong")
        low, high = intervals[2].get("weighted_f1", (-1.0, 1.0))  # one claim tells nothing
        if high < 0:
            notes.append(f"{name}: the model is worse than always saying {most}. Do not use it")
        elif low <= 0:
            notes.append(f"{name}: on {len(rows)} pairs the model can't be distinguished from always saying {most}")
    return tuple(found), tuple(notes)


def notes_on(found: Sequence[Figure], metric: str) -> list[str]:
    """Notes on the figures: whether training helped on the claims whose documents it did not see."""
    if not found:
        return ["all claims were trained on and nothing was measured. The weights are those of the last step"]
    notes = []
    of = {one.group: one for one in found if one.metric == metric}
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


# -- the page beside a trained model

_HUB = {
    "embedder": ("ccheck", "sentence-similarity"),
    "reranker": ("ccheck", "text-ranking"),
    "stance": ("transformers", "text-classification"),
}
"""Of each kind of model its library and its task, as model hubs call them."""


def model_card(
    report: Report, about: str, data: Sequence[str], options: TrainingOptions, facts: Mapping[str, object] | None = None
) -> str:
    """Markdown with the front matter that model hubs read.

    `about` says how the model is used, `data` what it learned from, `facts` what else there is to say of its training.
    """
    library, tag = _HUB[report.kind]
    front = {"base_model": report.base, "library_name": library, "pipeline_tag": tag}
    rows = [
        f"| {one.group} ({one.claims}) | {one.metric} | {figure(one.before, one.before_interval)} "
        f"| {figure(one.after, one.after_interval)} | {one.change()} |"
        for one in report.figures
    ]
    figures = [
        "With 95% bootstrap intervals over claims. Differences are paired by claim.",
        "",
        f"| claims | metric | {report.beside} | after training | difference |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        *_list(*report.notes),
    ]
    training = (*_phases(report.phases, options.metric), *(f"{name}: {value}" for name, value in (facts or {}).items()))
    settings = options.model_dump(mode="json", exclude_none=True)
    title = "Stance model" if report.kind == "stance" else report.kind.capitalize()
    lines = ["---", *(f"{name}: {value}" for name, value in front.items()), "---", ""]
    lines += [f"# {title} trained by ccheck {__version__}", "", f"From `{report.base}`. {about}", ""]
    sections = {"Data": _list(*data), "Figures": figures, "Training": _list(*training)}
    for name, section in sections.items():
        lines += [f"## {name}", "", *section, ""]
    own = [f"{name} = {toml(value)}" for name, value in settings.items()]
    return "\n".join([*lines, "## Settings", "", "```toml", *own, "```", ""])


def _list(*items: str) -> list[str]:
    return [f"- {item[0].upper()}{item[1:]}." for item in items]


def _phases(phases: Sequence[Trained], metric: str) -> list[str]:
    lines = []
    for phase in phases:
        if not phase.measured:
            lines.append(f"{phase.phase}: {phase.steps} steps in {phase.seconds:.0f} s. The last weights were kept")
            continue
        values = ", ".join(f"{value:.4f}" for _, _, value in phase.history)
        lines.append(
            f"{phase.phase}: {phase.steps} steps in {phase.seconds:.0f} s. {metric} before training and after each "
            f"measurement: {values}. The weights of step {phase.best_step} were kept"
        )
    return lines
