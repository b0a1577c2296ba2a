"""Whether a model made the vectors of an index that ccheck did not make: some of its texts are embedded again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.errors import InvalidData
from ..core.types import Document, Vector
from ..encode.dense import Embedder
from ..encode.numpy_bert import unit_length
from ..search import Store

SAMPLED = 20
"""How many documents are compared."""
SAME, NEAR = 0.98, 0.8
"""Mean cosines: from the first on the same model made both; from the second on one like it, or of other texts."""
UNLIKE = 0.5
"""A mean cosine below which searches would find what chance finds."""
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

    def describe(self, model: str, store: str) -> str:
        """How near the model's vectors are to those in the store."""
        return (
            f"{model} embeds {self.documents} documents of {store} (of each {self.of}) with a mean cosine of "
            f"{self.cosine:.3f} to the vectors stored there"
        )


def agreement(
    stored: Sequence[tuple[Document, Sequence[float]]], encode: Callable[[Sequence[str]], Vector]
) -> Agreement:
    """`encode` makes unit vectors of texts, shape [texts, dimensions]. There must be at least one document."""
    vectors = unit_length(np.array([vector for _, vector in stored], np.float32))
    best = Agreement(len(stored), -1.0, "")
    for of, text in FORMATS.items():
        texts = [text(document) or " " for document, _ in stored]
        cosine = float(np.mean(np.sum(encode(texts) * vectors, axis=1)))
        if cosine > best.cosine:
            best = Agreement(len(stored), cosine, of)
    return best


def refuse_other_model(store: Store, embedder: Embedder, folder: Path) -> str | None:
    """Compare the model with the vectors of an index that ccheck did not make, once; `folder` remembers that.

    Returns a warning where they agree in part. Raises InvalidData if another model made the vectors.
    """
    from ..search.elastic import ElasticStore

    if not isinstance(store, ElasticStore):
        return None
    name = hashlib.sha256(f"{store.vectors_of()} {embedder.spec.fingerprint}".encode()).hexdigest()
    remembered = folder / "agreement" / name
    if remembered.exists() or not (found := store.with_vectors(SAMPLED)):
        return None
    one = agreement(found, embedder.encode_documents)
    said = one.describe(embedder.spec.model, store.name)
    if one.cosine < UNLIKE:
        raise InvalidData(
            f"{said}: another model made them, or this one from other texts than {one.of}. Name that model with "
            "--model or CCHECK_EMBEDDING_MODEL, or the fields of text in the store's profile (ccheck doctor shows "
            "them), or search words alone with --recipe bm25"
        )
    if one.cosine < NEAR:
        return f"{said}: {one.verdict}. Name the model that made them with --model or CCHECK_EMBEDDING_MODEL"
    with contextlib.suppress(OSError):
        remembered.parent.mkdir(parents=True, exist_ok=True)
        remembered.touch()
    return None
