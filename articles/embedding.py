"""Scoring texts with words, embeddings, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ..core.errors import UsageError
from ..core.fusion import Scored, fuse
from ..core.grounding_stages import Searched
from ..core.stages import Fusion
from ..core.types import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Key = TypeVar("Key", bound=tuple[str, int])
_HYBRID = Fusion()


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """An embedding model: texts to float32 vectors of unit length, shape [texts, dimensions]."""

    documents: Callable[[Sequence[str]], Sequence[Vector]]
    queries: Callable[[Sequence[str]], Sequence[Vector]]


@dataclass(frozen=True, slots=True)
class ImageEncoder:
    """A model of images and texts: both become float32 vectors of unit length; None for an image that can't be read."""

    images: Callable[[Sequence[Path]], Sequence[Vector | None]]
    queries: Callable[[Sequence[str]], Sequence[Vector]]


Embedders: TypeAlias = Mapping[str | None, TextEncoder]
"""Embedding models by the name in the recipe; None is the default one."""


ImageEncoders: TypeAlias = Mapping[str, ImageEncoder]
"""Models of images by the name in the recipe."""


def encoder_of(embedders: Embedders, model: str | None) -> TextEncoder:
    """Raises UsageError if the model was not loaded."""
    if model not in embedders:
        raise UsageError(f"this recipe needs the embedding model {model or 'of the settings'}, which is not loaded")
    return embedders[model]


def encode_claim(embedders: Embedders, model: str | None, instruction: str, claim: str) -> Vector:
    return encoder_of(embedders, model).queries([instruction + claim])[0]


def searched(
    retriever: Searched,
    keys: Sequence[Key],
    words: Callable[[], NDArray[np.float64]],
    vectors: Callable[[], Sequence[Vector]],
    claim: Callable[[], Vector],
) -> Scored[Key]:
    """Keys by their scores, best first; with words alone only those that share one with the claim.

    `words` and `vectors` give one row for each key. They are only called where the retriever needs them.
    """
    import numpy as np

    rankings: dict[str, Scored[Key]] = {}
    if keys and retriever in ("bm25", "hybrid"):
        scores = words()
        order = np.argsort(-scores, kind="stable")
        rankings["bm25"] = [(keys[row], float(scores[row])) for row in order if scores[row] > 0]
    if keys and retriever in ("dense", "hybrid"):
        cosines = np.asarray(vectors()) @ claim()
        order = np.argsort(-cosines, kind="stable")
        rankings["dense"] = [(keys[row], float(cosines[row])) for row in order]
    if retriever == "hybrid":
        return fuse(rankings, dict.fromkeys(rankings, 1.0), _HYBRID)
    return next(iter(rankings.values()), [])
