"""How good a stance model is: its figures by group, beside those of always saying the most frequent label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ...core.types import Label, Stance
from ...verdict.judge import StanceMethod
from ...verdict.labels import STANCES
from ..measure.rows import StanceRow, judge_rows
from ..measure.types import Classified
from ..measure.verdicts import classify
from .loop import Trained

Measured: TypeAlias = Mapping[str, tuple[Classified, Classified]]
"""The figures of each group: the model's own, and those of always saying the most frequent label."""


@dataclass(frozen=True, slots=True)
class StanceReport:
    """A trained model's folder and its figures by group: the model's own, and those of always saying `most`, the most
    frequent label of training. `notes` say what a user should know of them."""

    folder: Path
    phases: tuple[Trained, ...]
    figures: Measured
    most: Label
    notes: tuple[str, ...] = ()


def measure_rows(rows: Sequence[StanceRow], said: Sequence[Stance], resamples: int = 1000) -> Classified:
    """How good stances are, with intervals over claims. Raises InvalidData if none could be made."""
    keys = [(row.claim_id, str(number)) for number, row in enumerate(rows)]
    return classify(
        dict(zip(keys, said, strict=True)),
        {key: row.label for key, row in zip(keys, rows, strict=True)},
        resamples=resamples,
    )


def measure_groups(method: StanceMethod, groups: Mapping[str, Sequence[StanceRow]], most: Label) -> Measured:
    """The figures of each group: the method's, and those of always saying `most`."""
    return {
        name: (measure_rows(rows, judge_rows(method, rows)[0]), measure_rows(rows, [Stance(most)] * len(rows)))
        for name, rows in groups.items()
    }


def most_frequent(rows: Sequence[StanceRow]) -> Label:
    """The label that most rows have; of equals the first of `STANCES`."""
    counts = Counter(row.label for row in rows)
    return max(STANCES, key=lambda label: counts[label])


def stance_notes(measured: Measured, most: Label) -> tuple[str, ...]:
    """Says where a model is worse than always giving the most frequent label, or not clearly better."""
    notes = []
    for name, (own, floor) in measured.items():
        low, high = own.intervals.get("weighted_f1", (own.weighted.f1, own.weighted.f1))
        if high < floor.weighted.f1:
            notes.append(f"{name}: the model is worse than always saying {most}. Do not use it")
        elif low <= floor.weighted.f1:
            notes.append(f"{name}: on {own.count} pairs the model can't be distinguished from always saying {most}")
    return tuple(notes)


def metric_of(figures: Classified, metric: str) -> float:
    """The value of `StanceOptions.metric`."""
    return figures.macro.f1 if metric == "macro F1" else figures.weighted.f1
