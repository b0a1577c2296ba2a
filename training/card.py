"""What a training is worth, and what it leaves behind: figures before and after, a model card, a whole folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..errors import InvalidData, UsageError
from ..evaluation.metrics import bootstrap, check_metrics, measure, only
from ..evaluation.types import Interval, Qrels, Run
from ..files import check_folder, write_text
from ..types import Claim
from .loop import Trained, log_text
from .options import TrainingOptions
from .retrieval_data import SEEN, UNSEEN, RetrievalData

SETTINGS = "settings.json"
TRAINED_BY = "trained by ccheck"
"""What stands in the card of each model."""


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
        return f"{self.before:.4f} {_shown(self.before_interval)} to {self.after:.4f} {_shown(self.after_interval)}"

    def change(self) -> str:
        """The difference, with its interval."""
        return f"{self.after - self.before:+.4f} {_shown(self.difference_interval)}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a training made. `notes` say what is to be known of it."""

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
            "phases": [
                {"phase": one.phase, "steps": one.steps, "best_step": one.best_step, "seconds": round(one.seconds, 1)}
                for one in self.phases
            ],
            "figures": [{name: getattr(figure, name) for name in Figure.__slots__} for figure in self.figures],
            "notes": list(self.notes),
        }


def metric_names(options: TrainingOptions, others: Sequence[str]) -> list[str]:
    """The development metric and those that are always reported. Raises UsageError for a metric that is none."""
    return check_metrics([options.metric, *others])


def development_value(run: Run, qrels: Qrels, claims: Sequence[Claim], metric: str) -> float:
    """The mean of a metric over some claims."""
    found = measure(run, only(qrels, [str(claim.id) for claim in claims]), [metric], resamples=100)
    return found.mean[metric]


def figures(data: RetrievalData, before: Run, after: Run, metrics: Sequence[str]) -> tuple[Figure, ...]:
    """Both states of each group of claims."""
    return tuple(
        figure
        for group, claims in data.groups.items()
        for figure in figures_of_group(
            group, only(data.qrels, [str(claim.id) for claim in claims]), before, after, metrics
        )
    )


def figures_of_group(group: str, judged: Qrels, before: Run, after: Run, metrics: Sequence[str]) -> list[Figure]:
    """Both states of the claims that are judged."""
    old, new = (measure({claim: run.get(claim, {}) for claim in judged}, judged, metrics) for run in (before, after))
    found = []
    for metric in metrics:
        changes = [new.by_claim[metric][claim] - old.by_claim[metric][claim] for claim in judged]
        interval = bootstrap(changes) if len(changes) > 1 else None
        intervals = old.intervals.get(metric), new.intervals.get(metric), interval
        found.append(Figure(group, len(judged), metric, old.mean[metric], new.mean[metric], *intervals))
    return found


def notes_on(found: Sequence[Figure], metric: str) -> list[str]:
    """What is to be said of the figures: whether training helped, by the claims whose documents it did not see."""
    notes = []
    of = {figure.group: figure for figure in found if figure.metric == metric}
    unseen, seen = of.get(UNSEEN), of.get(SEEN)
    if unseen is None:
        notes.append("no claims were kept apart by document: what was learned cannot be told from what was remembered")
    elif unseen.difference_interval is None or unseen.difference_interval[0] <= 0 <= unseen.difference_interval[1]:
        notes.append(
            f"on claims of new documents {metric} went from {unseen.before:.3f} to {unseen.after:.3f}, which "
            f"{unseen.claims} claims can't tell from no change"
        )
    elif unseen.after < unseen.before:
        notes.append(f"training made it worse on claims of new documents: {metric} {unseen.describe()}")
    if (
        seen is not None
        and unseen is not None
        and seen.after - seen.before > max(0.0, unseen.after - unseen.before) + 0.05
    ):
        notes.append(
            f"the gain by claim ({seen.after - seen.before:+.3f}) is larger than the gain by document "
            f"({unseen.after - unseen.before:+.3f}): a part of it is remembered documents"
        )
    return notes


def work_folder(output: Path, settings: str, *, resume: bool, overwrite: bool) -> Path:
    """`OUTPUT.training`, new or to go on in. Raises UsageError where one is there and neither was asked for."""
    work = output.with_name(f"{output.name}.training")
    check_folder(output, "the model")
    check_folder(work, "the training")
    if output.exists() and not overwrite:
        raise UsageError(f"{output} is there already: name another output, or replace it with --overwrite")
    if output.exists() and not _is_trained(output):
        raise UsageError(f"{output} holds no model that ccheck trained, so --overwrite leaves it. Name another output")
    if work.exists() and not _is_training(work):
        raise UsageError(f"{work} holds something else than a training of ccheck. Name another output, or remove it")
    # What ended before its first checkpoint, over a base that is none for example, has nothing to go on with.
    begun = any(work.glob("*/checkpoints/*")) or any(work.glob("*/done.json"))
    if work.exists() and not resume and (overwrite or not begun):
        shutil.rmtree(work)
    if not work.exists():
        work.mkdir(parents=True)
        write_text(work / SETTINGS, settings)
        return work
    if not resume:
        raise UsageError(f"{work} holds a training that did not end: go on by --resume, or begin anew by --overwrite")
    saved = work / SETTINGS
    if not saved.is_file():
        write_text(saved, settings)  # killed before anything else
    elif saved.read_text(encoding="utf-8") != settings:
        raise UsageError(
            f"{work} holds a training with other settings or data: give the same, or begin anew by --overwrite"
        )
    return work


def _is_trained(folder: Path) -> bool:
    """Whether the folder has the card of a model that was trained here."""
    card = folder / "README.md"
    if not card.is_file():
        return False
    with card.open("rb") as stream:
        return TRAINED_BY in stream.read(1 << 16).decode("utf-8", "replace")


def _is_training(work: Path) -> bool:
    """Whether the folder is one of trainings, or of one that was killed before it had its settings."""
    return (work / SETTINGS).is_file() or all(file.name.startswith(".ccheck-") for file in work.iterdir())


def finish(work: Path, output: Path, save: Callable[[Path], None], card: str, phases: Sequence[str]) -> None:
    """Save a model with its card and log, put it in its place whole, and remove the folder of the work."""
    import csv

    made = work / "model"
    if made.exists():
        shutil.rmtree(made)
    made.mkdir()
    save(made)
    write_text(made / "README.md", card)
    rows: list[dict[str, Any]] = []
    for phase in phases:
        with (work / phase / "log.csv").open(encoding="utf-8", newline="") as stream:
            rows += list(csv.DictReader(stream))
    write_text(made / "log.csv", log_text(rows))
    boards = work / "tensorboard"
    if boards.is_dir():
        shutil.copytree(boards, made / "tensorboard")
    strange = [file.name for file in made.rglob("*") if file.suffix in (".bin", ".pt", ".pth", ".pkl")]
    if strange:
        raise InvalidData(f"the model would be saved with {', '.join(strange)}, which is no safetensors file")
    # safetensors writes files that nobody else may read.
    mask = os.umask(0)
    os.umask(mask)
    for file in made.rglob("*"):
        file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)
    if output.exists():
        old = work / "replaced"
        output.replace(old)
    made.replace(output)
    shutil.rmtree(work)


def model_card(
    kind: str,
    use: str,
    options: TrainingOptions,
    data: RetrievalData,
    phases: Sequence[Trained],
    found: Sequence[Figure],
    notes: Sequence[str],
    facts: Mapping[str, object],
) -> str:
    """A README with YAML front matter as model hubs read it."""
    lines = [
        "---",
        f"base_model: {options.base}",
        "library_name: ccheck",
        f"pipeline_tag: {'text-ranking' if kind == 'reranker' else 'sentence-similarity'}",
        "---",
        "",
        f"# {kind.capitalize()} {TRAINED_BY} {version('ccheck')}",
        "",
        f"From `{options.base}`. To use it: `{use}`.",
        "",
        "## Data",
        "",
        f"{len(data.documents):,} documents, {len(data.train):,} claims to train on. "
        + " ".join(f"{message[0].upper()}{message[1:]}." for message in data.messages),
        "",
        f"- **{UNSEEN}**: no document of these claims was in training, as relevant or as a negative.",
        f"- **{SEEN}**: the claims were not in training, their documents may have been.",
        "",
        "## Figures",
        "",
        "Before and after training; 95% bootstrap intervals over claims, of the difference paired.",
        "",
        "| claims | metric | before | after | difference |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {figure.group} ({figure.claims}) | {figure.metric} | {figure.before:.4f} {_shown(figure.before_interval)} "
        f"| {figure.after:.4f} {_shown(figure.after_interval)} "
        f"| {figure.change()} |"
        for figure in found
    ]
    lines += ["", *(f"- {note}" for note in notes), *([""] if notes else [])]
    lines += ["## Training", ""]
    for phase in phases:
        values = ", ".join(f"{value:.4f}" for _, _, value in phase.history)
        lines.append(
            f"- {phase.phase}: {phase.steps} steps in {phase.seconds:.0f} s; {options.metric} on the development "
            f"claims by which the best epoch is chosen: {values} (the first is the untrained state; step "
            f"{phase.best_step} was kept)"
        )
    lines += [*(f"- {name}: {value}" for name, value in facts.items()), "", "## Settings", "", "```toml"]
    lines += [_toml(name, value) for name, value in options.model_dump(mode="json", exclude_none=True).items()]
    return "\n".join([*lines, "```", ""])


def _toml(name: str, value: Any) -> str:
    import json

    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {json.dumps(item)}" for key, item in value.items() if item is not None)
        return f"{name} = {{ {inner} }}"
    return f"{name} = {json.dumps(value)}"


def _shown(interval: Interval | None) -> str:
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval is not None else ""
