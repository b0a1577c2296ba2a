"""The page beside a trained model: what it was made from, how, and how good it is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ... import __version__
from ...verdict.labels import STANCES
from ..measure.rows import StanceRow
from .figures import Report, shown
from .loop import Trained
from .options import StanceOptions, TrainingOptions
from .retrieval_data import SEEN, UNSEEN, RetrievalData
from .stance_data import StanceData
from .stance_figures import Measured, StanceReport

TRAINED_BY = "trained by ccheck"
"""This phrase is in the card of each model."""


def retrieval_card(
    report: Report, use: str, options: TrainingOptions, data: RetrievalData, facts: Mapping[str, object]
) -> str:
    """The card of an embedder or a reranker. `use`: the command that uses it."""
    tag = "text-ranking" if report.kind == "reranker" else "sentence-similarity"
    sections = {
        "Data": _list(
            f"{len(data.documents):,} documents, {len(data.train):,} claims to train on",
            *data.messages,
            f"**{UNSEEN}**: training saw no document of these claims, neither as relevant nor as a negative",
            f"**{SEEN}**: training did not see these claims. It may have seen their documents",
        ),
        "Figures": [
            "Before and after training, with 95% bootstrap intervals over claims. Differences are paired by claim.",
            "",
            "| claims | metric | before | after | difference |",
            "| --- | --- | --- | --- | --- |",
            *(
                f"| {figure.group} ({figure.claims}) | {figure.metric} | {figure.before:.4f} "
                f"{shown(figure.before_interval)} | {figure.after:.4f} {shown(figure.after_interval)} "
                f"| {figure.change()} |"
                for figure in report.figures
            ),
            "",
            *_list(*report.notes),
        ],
        "Training": _list(
            *_phases(report.phases, options.metric), *(f"{name}: {value}" for name, value in facts.items())
        ),
    }
    head = {"library_name": "ccheck", "pipeline_tag": tag}
    return _card(report.kind.capitalize(), head, f"To use it: `{use}`.", options, sections)


def stance_card(report: StanceReport, options: StanceOptions, data: StanceData) -> str:
    """The card of a stance classifier."""
    sections = {
        "Data": _list(
            *data.messages,
            f"Trained on {counted(data.train)}",
            f"The best epoch was chosen by {options.metric} on {counted(data.dev)}",
        ),
        "Figures": [*_stance_figures(report.figures), "", *_list(*report.notes)],
        "Training": _list(*_phases(report.phases, options.metric)),
    }
    about = (
        "It says what a document (the first text) says about a claim (the second). To use it: "
        "`ccheck query CLAIM --stance FOLDER`."
    )
    head = {"library_name": "transformers", "pipeline_tag": "text-classification"}
    return _card("Stance model", head, about, options, sections)


def counted(rows: Sequence[StanceRow]) -> str:
    """How many pairs there are, of each label."""
    counts = Counter(row.label for row in rows)
    return f"{len(rows):,} pairs ({', '.join(f'{counts[label]:,} {label}' for label in STANCES)})"


def _card(
    title: str,
    head: Mapping[str, str],
    about: str,
    options: TrainingOptions,
    sections: Mapping[str, Sequence[str]],
) -> str:
    """Markdown with the front matter that model hubs read."""
    settings = options.model_dump(mode="json", exclude_none=True)
    front = {"base_model": options.base, **head}
    lines = ["---", *(f"{name}: {value}" for name, value in front.items()), "---", ""]
    lines += [f"# {title} {TRAINED_BY} {__version__}", "", f"From `{options.base}`. {about}", ""]
    for title, section in sections.items():
        lines += [f"## {title}", "", *section, ""]
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


def _stance_figures(measured: Measured) -> list[str]:
    lines = [
        "With 95% bootstrap intervals over claims. The last column is for always saying the most frequent label.",
        "",
        "| pairs | weighted F1 | macro F1 | accuracy | weighted F1 of one label |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, (own, floor) in measured.items():
        values = {"weighted_f1": own.weighted.f1, "macro_f1": own.macro.f1, "accuracy": own.accuracy}
        cells = " | ".join(f"{value:.3f} {shown(own.intervals.get(key))}" for key, value in values.items())
        failed = f", {own.failed} without an answer" if own.failed else ""
        lines.append(f"| {name} ({own.count:,}{failed}) | {cells} | {floor.weighted.f1:.3f} |")
    return lines


def _toml(name: str, value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {json.dumps(item)}" for key, item in value.items() if item is not None)
        return f"{name} = {{ {inner} }}"
    return f"{name} = {json.dumps(value)}"
