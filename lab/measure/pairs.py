"""Measures a judge on labelled pairs of claim and evidence, without retrieval.

with Runtime(settings) as runtime:
    method = open_stance_method(runtime, Changes(verdict="auto"), calibrated=True)
    measured = measure_pairs(method, read_rows("pairs.jsonl").rows)
measured.metrics["weighted_f1"], measured.intervals["weighted_f1"]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import InvalidData
from ...core.types import Document, Stance, Usage
from ...verdict import StanceMethod, choose_sentences
from ...verdict.judge import decides
from ...verdict.labels import STANCES
from .rows import StanceRow, judge_rows
from .types import Interval
from .verdicts import intervals_of, label_figures, reliability, tally

_FIGURES = ("weighted_f1", "weighted_precision", "weighted_recall", "macro_f1", "accuracy")
_FALSE_SUPPORT = ("REFUTES", "SUPPORTS")
UNJUDGED = "not judged"
"""The column of a confusion matrix for pairs that could not be judged."""


@dataclass(frozen=True, slots=True)
class PairsMeasured:
    """How good a judge is on `pairs` labelled pairs. It could judge `judged` of them; the others count as wrong.

    `metrics` and `intervals` (95%, by a bootstrap over claims) have `weighted_f1`, `weighted_precision`,
    `weighted_recall`, `macro_f1` and `accuracy`. `metrics` also has `calibration_error`, the expected calibration error
    of the judged pairs, and `risk_coverage`, the area under the curve of risk and coverage: the mean share of errors
    among the surest pairs, over all numbers of pairs. What can't be computed is None: a calibration error without
    confidences, an interval of one claim. `labels` has the precision and recall of each label. `decided` counts the
    pairs whose answer alone would decide a verdict (`pairs`), which are `right`, the `refuted` claims, and those of
    them that were said to be supported, at all and so that it decides. `confusion` has the number of pairs by true and
    by given label. `by_claim` has it for each claim, [claims, 3, 4], with a last column for pairs that were not judged.
    `reason` says why the first pair that was not judged was not.
    """

    method: str
    pairs: int
    judged: int
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval | None]
    confusion: Mapping[str, Mapping[str, int]]
    labels: Mapping[str, Mapping[str, float | None]]
    decided: Mapping[str, int]
    stances: Sequence[Stance] = field(repr=False, compare=False)
    usage: Usage
    seconds: float
    by_claim: NDArray[np.float64] = field(repr=False, compare=False)
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The object that `ccheck evaluate --pairs --json` prints."""
        return {
            "pairs": self.pairs,
            "judged": self.judged,
            "method": self.method,
            "metrics": dict(self.metrics),
            "intervals": {name: None if ends is None else list(ends) for name, ends in self.intervals.items()},
            "confusion": {true: dict(row) for true, row in self.confusion.items()},
            "labels": {label: dict(row) for label, row in self.labels.items()},
            "decided": dict(self.decided),
            "usage": self.usage.to_dict(),
            "seconds": round(self.seconds, 3),
        }


def answers(pairs: Sequence[StanceRow], measured: PairsMeasured) -> Iterator[dict[str, Any]]:
    """For each pair, in order, what was said of it: the objects that `ccheck evaluate --pairs --out` writes."""
    cases = [(row.claim, (Document(row.doc_id, row.title, row.text),)) for row in pairs]
    for row, stance, (sentences,) in zip(pairs, measured.stances, choose_sentences(cases, 1), strict=True):
        yield {
            "claim": row.claim,
            "label": row.label,
            "answer": stance.label,
            "confidence": stance.confidence,
            "decides": decides(stance),
            "role": sentences[0].role if sentences else None,
        }


def measure_pairs(
    method: StanceMethod,
    pairs: Sequence[StanceRow],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> PairsMeasured:
    """Judge labelled pairs and measure the stances. A pair that can't be judged counts as wrong.

    Raises InvalidData without pairs.
    """
    if not pairs:
        raise InvalidData("there are no pairs to measure on")
    started = time.perf_counter()
    said, usage = judge_rows(method, pairs, on_progress)
    seconds = time.perf_counter() - started
    counts = tally([row.claim for row in pairs], [row.label for row in pairs], [one.label for one in said], STANCES)
    total = counts.sum(axis=0)
    figures = {name: float(value[0]) for name, value in label_figures(total[None]).items()}
    # Each label's recall, by its share, is the same number.
    figures["weighted_recall"] = figures["accuracy"]
    intervals = intervals_of(counts)
    if intervals:
        intervals["weighted_recall"] = intervals["accuracy"]
    sure = [(one, row.label) for row, one in zip(pairs, said, strict=True) if one.label and one.confidence is not None]
    error = reliability(*zip(*sure, strict=True)).error if sure else None
    return PairsMeasured(
        method=method.name,
        pairs=len(pairs),
        judged=sum(stance.label is not None for stance in said),
        metrics={name: figures[name] for name in _FIGURES}
        | {"calibration_error": error, "risk_coverage": _risk_coverage(pairs, said)},
        intervals={name: intervals.get(name) for name in _FIGURES},
        confusion={
            label: dict(zip((*STANCES, UNJUDGED), map(int, row), strict=True))
            for label, row in zip(STANCES, total, strict=True)
        },
        labels={
            label: {
                "precision": _share(total[place, place], total[:, place].sum()),
                "recall": _share(total[place, place], total[place].sum()),
            }
            for place, label in enumerate(STANCES)
        },
        decided=_decided(pairs, said),
        stances=said,
        usage=usage,
        seconds=seconds,
        by_claim=counts,
        reason=next((str(stance.error) for stance in said if stance.label is None), ""),
    )


def _decided(pairs: Sequence[StanceRow], said: Sequence[Stance]) -> dict[str, int]:
    deciding = [(row, stance) for row, stance in zip(pairs, said, strict=True) if decides(stance)]
    supported = [stance for row, stance in zip(pairs, said, strict=True) if (row.label, stance.label) == _FALSE_SUPPORT]
    return {
        "pairs": len(deciding),
        "right": sum(row.label == stance.label for row, stance in deciding),
        "refuted": sum(row.label == "REFUTES" for row in pairs),
        "refuted_said_supports": len(supported),
        "refuted_decided_supports": sum(map(decides, supported)),
    }


def _risk_coverage(pairs: Sequence[StanceRow], said: Sequence[Stance]) -> float | None:
    """None without confidences. Of equally sure pairs, those in error come first."""
    sure = [
        (-stance.confidence, stance.label == row.label)
        for row, stance in zip(pairs, said, strict=True)
        if stance.label is not None and stance.confidence is not None
    ]
    errors = itertools.accumulate(not right for _, right in sorted(sure))
    return sum(error / count for count, error in enumerate(errors, 1)) / len(sure) if sure else None


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
