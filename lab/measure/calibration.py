"""Measures how reliable a stance method's confidences are on labelled pairs, and calibrates them.

with Runtime(resolve({"stance_model": "my-stance"}).settings) as runtime:
    report = calibrate(open_stance_method(runtime), read_rows("pairs.jsonl").rows)
report.before.error, report.after.error
save_calibration(report.calibration, Path("calibration.json"))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...core.adjust import Changes, resolved
from ...core.errors import InvalidData, UsageError, require
from ...core.runtime import Runtime
from ...core.types import Label, Stance
from ...verdict import StanceMethod
from ...verdict.calibration import Calibration, identity, tempered
from ...verdict.labels import STANCES
from ...verdict.open import open_method
from .pairs import StanceRow, judge_rows
from .verdicts import Reliability, reliability

FOLDS = 5
LEAST, MOST = 0.05, 20.0
"""Between these, a temperature is looked for."""
MIN_PAIRS = 30
"""With fewer labelled pairs, a calibration means nothing."""


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

    @property
    def doubts(self) -> list[str]:
        """Why the calibration should not be used; empty if nothing is known against it."""
        before, after = self.before.error, self.after.error
        said = f"the calibration does not help: on other claims, an error of {before:.4f} became {after:.4f}"
        return [said] if after >= before else []

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
    recipe = resolved(runtime.settings, changes or Changes())
    stage = recipe.verdict if calibrated else recipe.verdict.model_copy(update={"calibration": None})
    if stage.method == "none":
        raise UsageError("the recipe has no judge. Name one with --stance or --llm")
    return open_method(stage, runtime.asking(recipe.language_model))


def calibrate(
    method: StanceMethod,
    pairs: Sequence[StanceRow],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> CalibrationReport:
    """Judge labelled pairs and calibrate the confidences on them.

    Raises InvalidData if no pair could be judged or there are too few, MissingExtra without scikit-learn.
    """
    require("calibration", "evaluation", "sklearn")  # before a language model is paid
    said, _ = judge_rows(method, pairs, on_progress)
    judged = [pair for pair, stance in zip(pairs, said, strict=True) if stance.label is not None]
    stances = [stance for stance in said if stance.label is not None]
    reason = next((str(stance.error) for stance in said if stance.label is None), "")
    if not stances:
        raise InvalidData(f"none of the {len(pairs):,} pairs could be judged. The first: {reason}")
    labels = [pair.label for pair in judged]
    calibration = fit_calibration(stances, labels, method)
    after = reliability(*cross_fitted(stances, labels, [pair.claim for pair in judged], method))
    return CalibrationReport(
        calibration, reliability(stances, labels), after, len(stances), len(pairs) - len(stances), reason
    )


def cross_fitted(
    stances: Sequence[Stance], labels: Sequence[Label], claims: Sequence[str], method: StanceMethod
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
            given = f"{len(stances):,} pairs of {len(fold_of):,} claims are too few to calibrate"
            raise InvalidData(f"{given}. Give about {2 * MIN_PAIRS} pairs, of at least {FOLDS} claims")
        calibration = fit_calibration([stances[i] for i in fitted], [labels[i] for i in fitted], method)
        made += [calibration.apply(stances[i]) for i in rest]
        truth += [labels[i] for i in rest]
    return made, truth


def fit_calibration(stances: Sequence[Stance], labels: Sequence[Label], method: StanceMethod) -> Calibration:
    """The calibration of a method by its stances on labelled pairs; those without a label are left out.

    Raises InvalidData if there are too few, or no temperature fits, as where all are right.
    """
    given = [(s, label) for s, label in zip(stances, labels, strict=True) if s.label is not None]
    if len(given) < MIN_PAIRS:
        raise InvalidData(f"only {len(given)} labelled pairs were judged, and a calibration needs at least {MIN_PAIRS}")
    of: Literal["probabilities", "confidence"] = (
        "probabilities" if all(stance.probabilities is not None for stance, _ in given) else "confidence"
    )
    if of == "probabilities":
        values = [[(s.probabilities or {}).get(label, 0.0) for label in STANCES] for s, _ in given]
        truth = [STANCES.index(label) for _, label in given]
    else:
        if any(stance.confidence is None for stance, _ in given):
            raise InvalidData(f"nothing to calibrate: {method.name} gives neither probabilities nor confidences")
        values = [[1 - (s.confidence or 0.0), s.confidence or 0.0] for s, _ in given]
        truth = [int(stance.label == label) for stance, label in given]
    right = sum(stance.label == label for stance, label in given)
    temperature = _fit_temperature(values, truth)
    if right in (0, len(given)) or not LEAST * 1.01 < temperature < MOST / 1.01:
        needed = "Give pairs of every label, some that the judge gets right and some that it gets wrong"
        raise InvalidData(f"{right} of {len(given)} answers are right, and the confidences don't tell which. {needed}")
    return Calibration(of=of, method=method.name, identity=identity(method), pairs=len(given), temperature=temperature)


def _fit_temperature(values: Sequence[Sequence[float]], truth: Sequence[int]) -> float:
    """The temperature of the least negative log-likelihood."""
    from scipy.optimize import minimize_scalar
    from sklearn.metrics import log_loss

    outcomes = list(range(len(values[0])))

    def loss(log_temperature: float) -> float:
        return float(log_loss(truth, tempered(values, math.exp(log_temperature)), labels=outcomes))

    found = minimize_scalar(loss, bounds=(math.log(LEAST), math.log(MOST)), method="bounded")
    return math.exp(found.x)
