"""Calibrated confidence: about 80% of the stances with confidence .8 are right.

A calibration divides the log-probabilities by one number, the temperature (Guo et al., On Calibration of Modern Neural
Networks, ICML 2017, section 4.2), fitted on stances and their true labels. If a method gives no probabilities, its
confidence is calibrated as the probability of being right. The label does not change; its confidence becomes the
calibrated probability.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import InvalidData, NotFound, UsageError, require
from ..core.files import write_text
from ..core.types import Label, Stance
from .judge import Case, Judged, StanceMethod
from .labels import STANCES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_PAIRS = 30
"""With fewer labelled pairs, a calibration means nothing."""
MAX_BYTES = 10_000_000
BINS = 10
_TINY = 1e-6

Unit: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class Calibration(BaseModel):
    """How to get from a method's probabilities to calibrated ones.

    `of`: whether it takes the probabilities of all labels or a confidence alone. `method` is the name of the method
    that it was made for, `pairs` on how many labelled pairs, `error_before` and `error_after` the expected calibration
    errors on them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: Literal["probabilities", "confidence"]
    method: str
    pairs: int = Field(ge=1)
    error_before: Unit
    error_after: Unit
    temperature: float = Field(gt=0, allow_inf_nan=False)

    def apply(self, stance: Stance) -> Stance:
        """The stance with a calibrated confidence; one without a label or without a confidence as it is."""
        if stance.label is None:
            return stance
        if self.of == "confidence":
            if stance.confidence is None:
                return stance
            values = _tempered([[1 - stance.confidence, stance.confidence]], self.temperature)
            return replace(stance, confidence=round(float(values[0, 1]), 6))
        if stance.probabilities is None:
            raise InvalidData(
                f"the calibration was made for {self.method}, which gives the probabilities of all labels. This method "
                "does not. Calibrate it on its own answers"
            )
        (row,) = _tempered([[stance.probabilities.get(label, 0.0) for label in STANCES]], self.temperature)
        probabilities: dict[str, float] = {
            label: round(float(value), 6) for label, value in zip(STANCES, row, strict=True)
        }
        return replace(stance, confidence=probabilities.get(stance.label), probabilities=probabilities)


def fit_calibration(stances: Sequence[Stance], labels: Sequence[Label], method: str) -> Calibration:
    """The calibration of a method by its stances on labelled pairs; those without a label are left out.

    Raises InvalidData if there are too few, or all are right or all wrong; MissingExtra without scikit-learn.
    """
    require("calibration", "evaluation", "sklearn")
    given = [(s, label) for s, label in zip(stances, labels, strict=True) if s.label is not None]
    if len(given) < MIN_PAIRS:
        raise InvalidData(f"only {len(given)} labelled pairs were judged, and a calibration needs at least {MIN_PAIRS}")
    before = reliability(*zip(*given, strict=True)).error  # type: ignore[arg-type]
    of: Literal["probabilities", "confidence"] = (
        "probabilities" if all(stance.probabilities is not None for stance, _ in given) else "confidence"
    )
    if of == "probabilities":
        values = [[(s.probabilities or {}).get(label, 0.0) for label in STANCES] for s, _ in given]
        truth = [STANCES.index(label) for _, label in given]
    else:
        if any(stance.confidence is None for stance, _ in given):
            raise InvalidData(f"nothing to calibrate: {method} gives neither probabilities nor confidences")
        values = [[1 - (s.confidence or 0.0), s.confidence or 0.0] for s, _ in given]
        truth = [int(stance.label == label) for stance, label in given]
        if len(set(truth)) == 1:
            said = "right" if truth[0] else "wrong"
            raise InvalidData(f"nothing to calibrate: the answers to all {len(given)} pairs are {said}")
    made = Calibration(
        of=of,
        method=method,
        pairs=len(given),
        error_before=before,
        error_after=0,
        temperature=_fit_temperature(values, truth),
    )
    after = reliability([made.apply(stance) for stance, _ in given], [label for _, label in given]).error
    return made.model_copy(update={"error_after": after})


def save_calibration(calibration: Calibration, file: Path) -> None:
    """Write a calibration as JSON."""
    write_text(file, calibration.model_dump_json(indent=2, exclude_none=True) + "\n", "the calibration")


def load_calibration(file: Path) -> Calibration:
    """Read a calibration. Raises NotFound if the file is missing, and InvalidData if it is not a calibration."""
    if not file.is_file():
        raise NotFound(
            f"the calibration {file} does not exist. Make one with ccheck calibrate, or remove it from the recipe"
        )
    if file.stat().st_size > MAX_BYTES:
        raise InvalidData(f"{file} is not a calibration: it is larger than {MAX_BYTES:,} bytes")
    try:
        return Calibration.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise InvalidData(
            f"{file} is not a calibration: {where}: {first['msg']}. Make it again with ccheck calibrate"
        ) from error
    except (OSError, ValueError) as error:
        raise InvalidData(f"can't read the calibration {file}: {error}") from error


@dataclass(slots=True)
class Calibrated:
    """A method whose stances' confidences are calibrated. A `StanceMethod`."""

    method: StanceMethod
    calibration: Calibration
    name: str

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        for judged in self.method(cases):
            yield replace(judged, stances=tuple(map(self.calibration.apply, judged.stances)))


def calibrated(method: StanceMethod, calibration: Calibration) -> StanceMethod:
    """The method with calibrated confidences. Raises UsageError if the calibration is another method's."""
    # A model's folder can have moved.
    if _without_place(calibration.method) != _without_place(method.name):
        raise UsageError(
            f"the calibration was made for {calibration.method}, not for {method.name}. Calibrate that method, or "
            "remove the calibration from the recipe"
        )
    return Calibrated(method, calibration, method.name)


def _without_place(method: str) -> str:
    """stance:nli, also of stance:/models/nli."""
    kind, colon, model = method.partition(":")
    return f"{kind}{colon}{model.rpartition('/')[2]}"


# -- reliability


@dataclass(frozen=True, slots=True)
class Bin:
    """The stances whose confidence is above `low`, up to `high`: how many, their mean confidence, the share right."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the confidences can be trusted.

    `error` is the expected calibration error: the mean over stances of the difference between their bin's mean
    confidence and its share of right ones (Guo et al. 2017, equation 3). `brier` is the mean squared difference of
    confidence and right (1) or wrong (0).
    """

    bins: tuple[Bin, ...]
    error: float
    brier: float
    accuracy: float
    pairs: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def reliability(stances: Sequence[Stance], labels: Sequence[Label], bins: int = BINS) -> Reliability:
    """How the confidences of stances compare with how often they are right, in bins of equal width.

    Stances without a label or confidence are left out. Raises InvalidData if none is left.
    """
    given = [
        (stance.confidence, stance.label == label)
        for stance, label in zip(stances, labels, strict=True)
        if stance.label is not None and stance.confidence is not None
    ]
    if not given:
        raise InvalidData("nothing to compare: no stance has both a label and a confidence")
    places: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for confidence, right in given:
        places[min(bins - 1, max(0, math.ceil(confidence * bins) - 1))].append((confidence, right))
    made, error = [], 0.0
    for number, place in enumerate(places):
        mean = sum(confidence for confidence, _ in place) / len(place) if place else None
        accuracy = sum(right for _, right in place) / len(place) if place else None
        made.append(Bin(number / bins, (number + 1) / bins, len(place), mean, accuracy))
        if mean is not None and accuracy is not None:
            error += abs(mean - accuracy) * len(place) / len(given)
    brier = sum((confidence - right) ** 2 for confidence, right in given) / len(given)
    return Reliability(tuple(made), error, brier, sum(right for _, right in given) / len(given), len(given))


# -- fitting


def _tempered(values: Sequence[Sequence[float]], temperature: float) -> NDArray[np.float64]:
    """softmax(log p / T), rows of shape [stances, outcomes]."""
    import numpy as np

    logs = np.log(np.clip(np.asarray(values, np.float64), _TINY, None)) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    made: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return made


def _fit_temperature(values: Sequence[Sequence[float]], truth: Sequence[int]) -> float:
    """The temperature of the least negative log-likelihood, between .05 and 20."""
    from scipy.optimize import minimize_scalar
    from sklearn.metrics import log_loss

    outcomes = list(range(len(values[0])))

    def loss(log_temperature: float) -> float:
        return float(log_loss(truth, _tempered(values, math.exp(log_temperature)), labels=outcomes))

    found = minimize_scalar(loss, bounds=(math.log(0.05), math.log(20)), method="bounded")
    return math.exp(found.x)
