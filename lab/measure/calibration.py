"""Measures how reliable a stance method's confidences are on labelled pairs, and calibrates them.

with Runtime(resolve({"stance_model": "my-stance"}).settings) as runtime:
    report = calibrate(open_stance_method(runtime), read_rows("pairs.jsonl").rows)
report.before.error, report.after.error
save_calibration(report.calibration, Path("calibration.json"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.adjust import Changes, resolved
from ...core.errors import InvalidData, UsageError
from ...core.runtime import Runtime
from ...core.types import Label, Stance
from ...verdict import StanceMethod
from ...verdict.calibration import MIN_PAIRS, Calibration, Reliability, fit_calibration, reliability
from ...verdict.open import open_method
from .rows import StanceRow, judge_rows

FOLDS = 5


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """A calibration, and the reliability of the confidences before it and after it.

    `after` is cross-fitted: each stance is calibrated on pairs of other claims. `failed` of the pairs could not be
    judged; `reason` is that of the first.
    """

    calibration: Calibration
    before: Reliability
    after: Reliability
    judged: int
    failed: int = 0
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The facts that `ccheck calibrate --json` prints."""
        return {
            "method": self.calibration.method,
            "pairs": self.judged,
            "accuracy": round(self.before.accuracy, 4),
            "error_before": round(self.before.error, 4),
            "error_after": round(self.after.error, 4),
            "brier_before": round(self.before.brier, 4),
            "brier_after": round(self.after.brier, 4),
            "temperature": self.calibration.temperature,
        }


def open_stance_method(
    runtime: Runtime,
    changes: Changes | None = None,
    *,
    calibrated: bool = False,
) -> StanceMethod:
    """The stance method of the settings' recipe; without the recipe's calibration unless `calibrated`.

    Raises UsageError if the recipe has no judge, NotFound or MissingExtra for a model that is not here.
    """
    stage = resolved(runtime.settings, changes or Changes()).verdict
    if not calibrated:
        stage = stage.model_copy(update={"calibration": None})
    if stage.method == "none":
        raise UsageError("the recipe has no judge. Name one with --stance or --llm")
    return open_method(stage, runtime)


def calibrate(
    method: StanceMethod,
    pairs: Sequence[StanceRow],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> CalibrationReport:
    """Judge labelled pairs and calibrate the confidences on them.

    Raises InvalidData if no pair could be judged or there are too few, MissingExtra without scikit-learn.
    """
    said, _ = judge_rows(method, pairs, on_progress)
    judged = [pair for pair, stance in zip(pairs, said, strict=True) if stance.label is not None]
    stances = [stance for stance in said if stance.label is not None]
    reason = next((str(stance.error) for stance in said if stance.label is None), "")
    if not stances:
        raise InvalidData(f"none of the {len(pairs):,} pairs could be judged. The first: {reason}")
    labels = [pair.label for pair in judged]
    calibration = fit_calibration(stances, labels, method.name)
    crossed = cross_fitted(stances, labels, [pair.claim for pair in judged], method.name)
    after = reliability(*crossed)
    return CalibrationReport(
        calibration, reliability(stances, labels), after, len(stances), len(pairs) - len(stances), reason
    )


def cross_fitted(
    stances: Sequence[Stance], labels: Sequence[Label], claims: Sequence[str], method: str
) -> tuple[list[Stance], list[Label]]:
    """Each stance calibrated on pairs of other claims, with its true label.

    Raises InvalidData if the pairs or the claims are too few.
    """
    fold_of = {claim: number % FOLDS for number, claim in enumerate(dict.fromkeys(claims))}
    made: list[Stance] = []
    truth: list[Label] = []
    for fold in range(FOLDS):
        fitted = [i for i, claim in enumerate(claims) if fold_of[claim] != fold]
        rest = [i for i, claim in enumerate(claims) if fold_of[claim] == fold]
        if len(fitted) < MIN_PAIRS:
            raise InvalidData(
                f"{len(stances):,} pairs of {len(fold_of):,} claims are too few to calibrate. Give pairs "
                f"of at least {FOLDS} claims, about {2 * MIN_PAIRS} in all"
            )
        calibration = fit_calibration([stances[i] for i in fitted], [labels[i] for i in fitted], method)
        made += [calibration.apply(stances[i]) for i in rest]
        truth += [labels[i] for i in rest]
    return made, truth
