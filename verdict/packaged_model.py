"""The stance model that ccheck carries: a linear model over counts of a claim and a document, in a small JSON file.

It needs only the packaged embedding model, which numpy runs. The features are the counts of `features.pair_counts`,
standardised, and the same again for a document of a single sentence: of an abstract, the nearest sentences were found,
while a single sentence is all there is, so the same counts mean different things. `benchmarks/packaged_stance.py` makes
the file and measures it; `packaged/README.md` is its model card.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import InvalidData
from ..models import find_model, require_models
from ..types import Label, Stance
from .features import COUNTS, ONE_SENTENCE, pair_counts, sentences_of
from .judge import NO_TEXT, Case, Judged, in_groups
from .labels import STANCES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..encode.dense import Embedder

PACKAGED = "packaged"
"""The name by which `--stance` knows this model."""
FOLDER = Path(__file__).parent / "packaged"
WIDTH = 2 * COUNTS + 1
Numbers = Annotated[tuple[float, ...], Field(min_length=COUNTS, max_length=COUNTS)]


class PackagedWeights(BaseModel):
    """What `packaged/model.json` holds. The rows of `coefficients` are in the order of `STANCES`.

    `weighted_f1` is the model's figure on documents that were not in training; `threshold` the probability below which
    neither side is named.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model_type: Literal["ccheck-packaged-stance"] = "ccheck-packaged-stance"
    embedding: str
    sentences: int = Field(ge=1, le=64)
    threshold: float = Field(ge=0, le=1)
    temperature: float = Field(gt=0)
    largest: float = Field(gt=0)
    weighted_f1: float = Field(ge=0, le=1)
    mean: Numbers
    scale: Numbers
    coefficients: tuple[tuple[float, ...], ...]
    intercept: tuple[float, ...]

    @model_validator(mode="after")
    def _shapes(self) -> PackagedWeights:
        shapes = [len(self.intercept), len(self.coefficients), *map(len, self.coefficients)]
        if shapes != [len(STANCES), len(STANCES), *[WIDTH] * len(STANCES)] or min(self.scale) <= 0:
            raise ValueError("the coefficients do not fit the features")
        return self


class PackagedStances:
    """Tells what documents say about claims, with the model that ccheck carries. A `StanceMethod`."""

    def __init__(
        self, on_load: Callable[[], None] = lambda: None, folder: Path = FOLDER, *, allow_download: bool = True
    ) -> None:
        """`on_load` is called before the embedding model is loaded, with the first claim.

        Raises NotFound if the embedding model is missing, MissingExtra if it can't run here, InvalidData for a broken
        file.
        """
        from ..encode.dense import run_by_numpy

        self._weights = read_weights(folder)
        self._found = find_model(self._weights.embedding, allow_download=allow_download)
        if run_by_numpy(self._found, "cpu") is None:
            name = self._found.name
            require_models(f"the packaged stance model, whose embedding model {name} is of another kind here,")
        self._on_load = on_load
        self.name = f"packaged stance model; weighted F1 {self._weights.weighted_f1:.2f} on unseen papers"

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """One for each case, in order. A document that can't be read gets a stance without a label."""
        for group in in_groups(cases):
            pieces = [(case.claim.text, piece.document) for case in group for piece in case.evidence]
            readable = [bool(sentences_of(document)) for _, document in pieces]
            pairs = [pair for pair, one in zip(pieces, readable, strict=True) if one]
            counts = pair_counts(pairs, self._embedder.encode_queries, read=self._weights.sentences) if pairs else None
            rows = iter(() if counts is None else probabilities(counts, self._weights))
            stances = iter(
                [
                    stance_of(next(rows), self._weights.threshold) if one else Stance(None, error=NO_TEXT)
                    for one in readable
                ]
            )
            for case in group:
                yield Judged(tuple(next(stances) for _ in case.evidence))

    @functools.cached_property
    def _embedder(self) -> Embedder:
        from ..encode.dense import Embedder

        return Embedder(self._found, "cpu", on_load=self._on_load)


def read_weights(folder: Path = FOLDER) -> PackagedWeights:
    """Raises InvalidData for a file that is missing or broken: it belongs to the installation."""
    try:
        return PackagedWeights.model_validate_json((folder / "model.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise InvalidData(f"{folder / 'model.json'} is not a stance model: {error}. Install ccheck again") from error


def design(counts: NDArray[np.floating[Any]], weights: PackagedWeights) -> NDArray[np.float64]:
    """What the linear model is multiplied with, shape [pairs, WIDTH]: standardised counts, and those of documents of
    one sentence once more."""
    import numpy as np

    scaled = (counts.astype(np.float64) - np.asarray(weights.mean)) / np.asarray(weights.scale)
    scaled = np.clip(scaled, -weights.largest, weights.largest)
    one = counts[:, ONE_SENTENCE : ONE_SENTENCE + 1].astype(np.float64)
    return np.hstack([scaled, scaled * one, 2 * one - 1])


def probabilities(counts: NDArray[np.floating[Any]], weights: PackagedWeights) -> NDArray[np.float64]:
    """The calibrated probabilities of `STANCES`, shape [pairs, 3]."""
    import numpy as np

    values = design(counts, weights) @ np.asarray(weights.coefficients).T + np.asarray(weights.intercept)
    values /= weights.temperature
    values = np.exp(values - values.max(axis=1, keepdims=True))
    made: NDArray[np.float64] = values / values.sum(axis=1, keepdims=True)
    return made


def stance_of(row: Sequence[float], threshold: float) -> Stance:
    """The likeliest label; NOT_ENOUGH_INFO where that is a side with a probability below the threshold."""
    named: dict[str, float] = {label: round(float(value), 6) for label, value in zip(STANCES, row, strict=True)}
    label: Label = max(STANCES, key=lambda label: named[label])
    if named[label] < threshold:
        label = "NOT_ENOUGH_INFO"
    return Stance(label, named[label], probabilities=named)
