"""The stance model that ccheck carries: a linear model over counts of a claim and a document, in a small JSON file, and
a small BERT that reads the two together. Numpy runs both.

The features are the counts of `features.counts_and_nearest`, standardised, and the same again for a document of a
single sentence: of an abstract, the nearest sentences were found, while a single sentence is all there is, so the same
counts mean different things. If the counts alone don't say clearly that a document leaves the claim open, the
reader gets the claim with the nearest sentences, and both answers are put together.
`benchmarks/packaged_stance.py` makes the files and measures them; `packaged/README.md` is the model card.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..core.analysis import as_sentence, clean, sentence_spans
from ..core.errors import InvalidData
from ..core.models import require_models
from ..core.runtime import Runtime
from ..core.types import Document, Label, Stance
from .differences import Compared, compared
from .features import COUNTS, ONE_SENTENCE, counts_and_nearest, sentences_of
from .judge import NO_TEXT, PairStances, StanceMethod, likeliest
from .labels import STANCES
from .roles import roles_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..encode.dense import Embedder
    from ..encode.numpy_bert import CrossEncoder

PACKAGED = "packaged"
"""The name by which `--stance` knows this model."""
FOLDER = Path(__file__).parent / "packaged"
READER = "reader.safetensors"
WIDTH = 2 * COUNTS + 1
Numbers = Annotated[tuple[float, ...], Field(min_length=COUNTS, max_length=COUNTS)]


class Together(BaseModel):
    """How the answers of the counts and of the reader, which reads `tokens`, are put together: logarithms of the
    counts' probabilities and outputs of the model, each times its weight, are added.

    A document that the counts leave open with a probability above `open_above` is not read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int = Field(ge=16, le=512)
    open_above: float = Field(ge=0, le=1)
    counts: float = Field(ge=0, le=100)
    reader: float = Field(ge=0, le=100)


class PackagedWeights(BaseModel):
    """The content of `packaged/model.json`. The rows of `coefficients` are in the order of `STANCES`.

    `threshold` is the probability below which neither side is named, `decisive` that from which a side decides a
    verdict, `stated` that from which SUPPORTS does where a sentence has every word of the claim, and `denied` that
    from which REFUTES does where a sentence tells another number or direction, or denies it. On data that it was made
    without, it decided the share `decided` of the pairs, and `right` of these.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model_type: Literal["ccheck-packaged-stance"] = "ccheck-packaged-stance"
    embedding: str
    sentences: int = Field(ge=1, le=64)
    threshold: float = Field(ge=0, le=1)
    decisive: dict[Label, float]
    stated: float = Field(ge=0, le=1)
    denied: float = Field(ge=0, le=1)
    largest: float = Field(gt=0)
    decided: float = Field(ge=0, le=1)
    right: float = Field(ge=0, le=1)
    mean: Numbers
    scale: Numbers
    coefficients: tuple[tuple[float, ...], ...]
    intercept: tuple[float, ...]
    together: Together | None = None

    @model_validator(mode="after")
    def _shapes(self) -> PackagedWeights:
        shapes = [len(self.intercept), len(self.coefficients), *map(len, self.coefficients)]
        if shapes != [len(STANCES), len(STANCES), *[WIDTH] * len(STANCES)] or min(self.scale) <= 0:
            raise ValueError("the coefficients do not fit the features")
        return self


class PackagedStances(PairStances):
    """Tells what documents say about claims, with the model that ccheck carries."""

    english_only = True

    def __init__(self, runtime: Runtime, folder: Path = FOLDER) -> None:
        """The embedding model is loaded with the first claim. Raises NotFound if the embedding model is missing,
        MissingExtra if it can't run here, InvalidData for a broken file.
        """
        from ..encode.dense import run_by_numpy

        self._folder, self._weights = folder, read_weights(folder)
        self._found = runtime.find(self._weights.embedding)
        if run_by_numpy(self._found, "cpu") is None:
            name = self._found.name
            require_models(f"the packaged stance model, whose embedding model {name} is of another kind here,")
        self._runtime = runtime.using(device="cpu")
        self.name = (
            "packaged stance model: a lead to read, not a finding (on unseen claims it decided "
            f"{self._weights.decided:.1%} of the pairs, and {self._weights.right:.0%} of these right)"
        )

    def read(self, pairs: Sequence[tuple[str, Document]]) -> list[Stance]:
        """See `PairStances`."""
        readable = [bool(sentences_of(document)) for _, document in pairs]
        # The reader learned from sentences: without its full stop, it is much less sure of one.
        whole = [(as_sentence(claim), document) for claim, document in pairs]
        said = iter(self._said([pair for pair, one in zip(whole, readable, strict=True) if one]))
        return [next(said) if one else Stance(None, error=NO_TEXT) for one in readable]

    def _said(self, pairs: Sequence[tuple[str, Document]]) -> Iterator[Stance]:
        values, near = self._probabilities(pairs)
        for row, some, (claim, document) in zip(values, near, pairs, strict=True):
            read = compared(claim, some)
            stance = likeliest(row, self._weights.threshold, supports=may_support(read))
            if decides(stance, read, self._weights):
                # Roles are read only of the few documents whose stance is sure.
                read = compared(claim, what_was_found(document, some))
            yield replace(stance, decides=decides(stance, read, self._weights))

    def _probabilities(self, pairs: Sequence[tuple[str, Document]]) -> tuple[NDArray[np.float64], list[list[str]]]:
        """The probabilities of `STANCES`, shape [pairs, 3], and the sentences that were read."""
        weights = self._weights
        counts, near = counts_and_nearest(pairs, self._embedder.encode_queries, read=weights.sentences)
        made = probabilities(counts, weights)
        if weights.together is None:
            return made, near
        read = made[:, STANCES.index("NOT_ENOUGH_INFO")] <= weights.together.open_above
        if read.any():
            texts = [
                (clean(claim), " ".join(some)) for (claim, _), some, one in zip(pairs, near, read, strict=True) if one
            ]
            said = self._reader(texts)
            made[read] = put_together(made[read], said, weights.together)
        return made, near

    @functools.cached_property
    def _reader(self) -> CrossEncoder:
        from ..encode.dense import run_by_numpy
        from ..encode.numpy_bert import load_cross_encoder

        folder, together = run_by_numpy(self._found, "cpu"), self._weights.together
        assert folder is not None and together is not None
        return load_cross_encoder(folder, self._folder / READER, together.tokens)

    @functools.cached_property
    def _embedder(self) -> Embedder:
        from ..encode.dense import Embedder

        return Embedder(self._found, self._runtime)


def is_packaged(method: StanceMethod | None) -> bool:
    """Whether a method is the packaged model, also calibrated."""
    return isinstance(getattr(method, "method", method), PackagedStances)


def read_weights(folder: Path = FOLDER) -> PackagedWeights:
    """Raises InvalidData for a file that is missing or broken: it belongs to the installation."""
    try:
        return PackagedWeights.model_validate_json((folder / "model.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise InvalidData(f"{folder / 'model.json'} is not a stance model: {error}. Install ccheck again") from error


def design(counts: NDArray[np.floating[Any]], weights: PackagedWeights) -> NDArray[np.float64]:
    """The input of the linear model, shape [pairs, WIDTH]: standardised counts, and those of documents of one sentence
    once more."""
    import numpy as np

    scaled = (counts.astype(np.float64) - np.asarray(weights.mean)) / np.asarray(weights.scale)
    scaled = np.clip(scaled, -weights.largest, weights.largest)
    one = counts[:, ONE_SENTENCE : ONE_SENTENCE + 1].astype(np.float64)
    return np.hstack([scaled, scaled * one, 2 * one - 1])


def probabilities(counts: NDArray[np.floating[Any]], weights: PackagedWeights) -> NDArray[np.float64]:
    """The counts' probabilities of `STANCES`, shape [pairs, 3]."""
    import numpy as np

    values = design(counts, weights) @ np.asarray(weights.coefficients).T + np.asarray(weights.intercept)
    return softmax(values)


def put_together(
    counted: NDArray[np.floating[Any]], read: NDArray[np.floating[Any]], weights: Together
) -> NDArray[np.float64]:
    """The calibrated probabilities of `STANCES`, shape [pairs, 3], from the probabilities that the counts give and the
    outputs of the reader."""
    import numpy as np

    return softmax(weights.counts * np.log(np.clip(counted, 1e-6, None)) + weights.reader * read)


def what_was_found(document: Document, sentences: Sequence[str]) -> list[str]:
    """Those of a document's sentences that say what was found: not what others said, or what was asked or done."""
    text = clean(document.text).strip()
    spans = sentence_spans(text)
    found = zip(spans, roles_in(text, spans).found, strict=True)
    told = {text[start:end] for (start, end), chance in found if chance >= 0.5}
    return [one for one in sentences if one in told or not spans]


def may_support(read: Compared) -> bool:
    """Whether nothing that was read differs from the claim, or a sentence says it all the same."""
    return read.stated or not read.opposed


def decides(stance: Stance, read: Compared, weights: PackagedWeights) -> bool:
    """Whether a stance is sure enough to decide a verdict.

    SUPPORTS needs less confidence where a sentence has every word of the claim: where one differs, it can be the one
    that matters. REFUTES needs less where a sentence tells another number or direction, or denies.
    """
    least = weights.decisive.get(stance.label) if stance.label is not None else None
    if least is None:
        return False
    if stance.label == "SUPPORTS" and read.stated:
        least = weights.stated
    if stance.label == "REFUTES" and read.denied:
        least = weights.denied
    return (stance.confidence or 0) >= least


def softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    values = np.exp(values - values.max(axis=1, keepdims=True))
    made: NDArray[np.float64] = values / values.sum(axis=1, keepdims=True)
    return made
