"""Whether a model made the vectors of an index that does not say which did: some of its texts are embedded again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.types import Document, Vector

SAMPLED = 20
"""How many documents are compared."""
SAME, NEAR = 0.98, 0.8
"""Mean cosines: from the first on the same model made both; from the second on one like it, or of other texts."""
FORMATS: dict[str, Callable[[Document], str]] = {
    "its text": lambda document: document.text,
    "its title and text": lambda document: f"{document.title} {document.text}".strip(),
    "its title": lambda document: document.title,
}
"""The parts of a document that vectors may have been made from."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The mean cosine of stored vectors with those that the model makes of `of`, the best of `FORMATS`."""

    documents: int
    cosine: float
    of: str

    @property
    def verdict(self) -> str:
        if self.cosine >= SAME:
            return "the model made these vectors"
        if self.cosine >= NEAR:
            return "a model like it made them, or it embedded other texts (longer, or with a prefix)"
        return "another model made them"


def agreement(
    stored: Sequence[tuple[Document, Sequence[float]]], encode: Callable[[Sequence[str]], Vector]
) -> Agreement:
    """`encode` makes unit vectors of texts, shape [texts, dimensions]. There must be at least one document."""
    vectors = np.asarray([vector for _, vector in stored], np.float32)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    best = Agreement(len(stored), -1.0, "")
    for of, text in FORMATS.items():
        texts = [text(document) or " " for document, _ in stored]
        cosine = float(np.mean(np.sum(encode(texts) * vectors, axis=1)))
        if cosine > best.cosine:
            best = Agreement(len(stored), cosine, of)
    return best
