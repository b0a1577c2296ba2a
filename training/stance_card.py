"""The page that lies beside a trained stance model: what it was made from, how, and how good it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from ..evaluation.types import Classified
from ..verdict.labels import STANCES
from .loop import Trained
from .stance_rows import StanceRow

if TYPE_CHECKING:
    from .stance import StanceData, StanceOptions

LIBRARY = "transformers"


def stance_card(
    options: StanceOptions,
    data: StanceData,
    phases: Sequence[Trained],
    measured: Mapping[str, tuple[Classified, Classified]],
    notes: Sequence[str],
) -> str:
    """Markdown with the metadata that model hubs read."""
    lines = [
        "---",
        f"base_model: {options.base}",
        f"library_name: {LIBRARY}",
        "pipeline_tag: text-classification",
        "---",
        "",
        f"# Stance model trained by ccheck {version('ccheck')}",
        "",
        f"From `{options.base}`. What a document (the first text) says of a claim (the second). To use it: "
        "`ccheck query CLAIM --stance FOLDER`.",
        "",
        *data_lines(data.messages, data.train),
        f"- The best epoch was chosen by {options.metric} on {counted(data.dev)}.",
    ]
    if data.weak:
        lines.append(f"- First trained on {counted(data.weak)}, which were made from documents without labels.")
    lines += ["", *figure_lines(measured, notes), "", "## Training", ""]
    for phase in phases:
        values = ", ".join(f"{value:.3f}" for _, _, value in phase.history)
        lines.append(
            f"- {phase.phase}: {phase.steps} steps in {phase.seconds:.0f} s; {options.metric} of the untrained state "
            f"and after each epoch: {values}; step {phase.best_step} was kept"
        )
    lines += ["", *(f"    {name} = {value!r}" for name, value in options.model_dump().items() if value is not None), ""]
    return "\n".join(lines)


def data_lines(messages: Sequence[str], train: Sequence[StanceRow]) -> list[str]:
    """What was trained on, and what was said of it."""
    said = [f"- {message[0].upper()}{message[1:]}." for message in messages]
    return ["## Data", "", *said, f"- Trained on {counted(train)}."]


def figure_lines(measured: Mapping[str, tuple[Classified, Classified]], notes: Sequence[str]) -> list[str]:
    """A table of each group's figures, and what is to be said of them."""
    lines = [
        "## Figures",
        "",
        "With 95% intervals, of a bootstrap over claims; beside them those of always saying what is most frequent.",
        "",
        "| pairs | weighted F1 | macro F1 | accuracy | weighted F1 of one label |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, (own, floor) in measured.items():
        cells = [
            f"{value:.3f} {shown(own, key)}"
            for key, value in (
                ("weighted_f1", own.weighted.f1),
                ("macro_f1", own.macro.f1),
                ("accuracy", own.accuracy),
            )
        ]
        failed = f", {own.failed} not told" if own.failed else ""
        lines.append(f"| {name} ({own.count:,}{failed}) | {' | '.join(cells)} | {floor.weighted.f1:.3f} |")
    return [*lines, *([""] if notes else []), *(f"- {note[0].upper()}{note[1:]}." for note in notes)]


def shown(figures: Classified, key: str) -> str:
    """An interval, where there is one."""
    interval = figures.intervals.get(key)
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""


def counted(rows: Sequence[StanceRow]) -> str:
    counts = Counter(row.label for row in rows)
    return f"{len(rows):,} pairs ({', '.join(f'{counts[label]:,} {label}' for label in STANCES)})"
