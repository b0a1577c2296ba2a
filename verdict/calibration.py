"""Calibrated confidence: about 80% of the stances with confidence .8 are right.

A calibration divides the log-probabilities by one number, the temperature (Guo et al., On Calibration of Modern Neural
Networks, ICML 2017, section 4.2), fitted on stances and their true labels. If a method gives no probabilities, its
confidence is calibrated as the probability of being right. The label does not change; its confidence becomes the
calibrated probability.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import InvalidData, NotFound, UsageError, misfits
from ..core.files import write_text
from ..core.fingerprints import fingerprint
from ..core.types import Stance
from .classifier import StanceClassifier
from .judge import Case, Judged, StanceMethod
from .labels import STANCES
from .packaged_model import FOLDER, is_packaged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_BYTES = 10_000_000
_TINY = 1e-6


class Calibration(BaseModel):
    """How to get from a method's probabilities to calibrated ones.

    `of`: whether it takes the probabilities of all labels or a confidence alone. `method` is the name of the method
    that it was made for, `identity` its `identity`, `pairs` on how many labelled pairs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: Literal["probabilities", "confidence"]
    method: str
    identity: str
    pairs: int = Field(ge=1)
    temperature: float = Field(gt=0, allow_inf_nan=False)

    def apply(self, stance: Stance) -> Stance:
        """The stance with a calibrated confidence; one without a label or a confidence, or of what no judge read, as it
        is. If the confidence falls to one half, it no longer decides: no side is strong with that."""
        if stance.label is None or stance.confidence is None or not stance.read:
            return stance
        if self.of == "confidence":
            values = tempered([[1 - stance.confidence, stance.confidence]], self.temperature)
            made = replace(stance, confidence=round(float(values[0, 1]), 6))
        elif stance.probabilities is None:
            raise InvalidData(
                f"the calibration was made for {self.method}, which gives the probabilities of all labels. This method "
                "does not. Calibrate it on its own answers"
            )
        else:
            (row,) = tempered([[stance.probabilities.get(label, 0.0) for label in STANCES]], self.temperature)
            probabilities: dict[str, float] = dict(zip(STANCES, row.round(6).tolist(), strict=True))
            made = replace(stance, confidence=probabilities.get(stance.label), probabilities=probabilities)
        return replace(made, decides=made.decides and (made.confidence or 0.0) > 0.5)


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
        why = misfits(error, "the whole")[0]
        raise InvalidData(f"{file} is not a calibration: {why}. Make it again with ccheck calibrate") from error
    except (OSError, ValueError) as error:
        raise InvalidData(f"can't read the calibration {file}: {error}") from error


@dataclass(slots=True)
class Calibrated:
    """A method whose stances' confidences are calibrated. A `StanceMethod`."""

    method: StanceMethod
    calibration: Calibration
    name: str

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        for judged in self.method(list(map(self._calibrating, cases))):
            yield replace(judged, stances=tuple(map(self.calibration.apply, judged.stances)))

    def _calibrating(self, case: Case) -> Case:
        """The case, which is told calibrated stances."""
        return replace(case, tell=lambda place, stance: case.tell(place, self.calibration.apply(stance)))


def calibrated(method: StanceMethod, calibration: Calibration) -> StanceMethod:
    """The method with calibrated confidences. Raises UsageError if the calibration is another method's."""
    if calibration.identity != identity(method):
        raise UsageError(
            f"the calibration was made for another judge or other weights ({calibration.method}), not for "
            f"{method.name}. Calibrate that method, or remove the calibration from the recipe"
        )
    return Calibrated(method, calibration, method.name)


def identity(method: StanceMethod) -> str:
    """A hash of the method's model, wherever it is; of a language model, the method's name."""
    if is_packaged(method):
        return fingerprint(FOLDER)
    return fingerprint(method.path) if isinstance(method, StanceClassifier) else method.name


def tempered(values: Sequence[Sequence[float]], temperature: float) -> NDArray[np.float64]:
    """softmax(log p / T), rows of shape [stances, outcomes]."""
    import numpy as np

    logs = np.log(np.clip(np.asarray(values, np.float64), _TINY, None)) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    made: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return made
