"""The page beside a trained model: what it was made from, how, and how good it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ... import __version__
from .figures import Report, shown
from .loop import Trained
from .options import TrainingOptions

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
        f"| {one.group} ({one.claims}) | {one.metric} | {one.before:.4f} {shown(one.before_interval)} "
        f"| {one.after:.4f} {shown(one.after_interval)} | {one.change()} |"
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
    return "\n".join([*lines, "## Settings", "", "```toml", *map(_toml, settings, settings.values()), "```", ""])


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


def _toml(name: str, value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {json.dumps(item)}" for key, item in value.items() if item is not None)
        return f"{name} = {{ {inner} }}"
    return f"{name} = {json.dumps(value)}"
