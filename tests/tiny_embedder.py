"""Encoders without models: words are tokens, and the same text always has the same vector."""

import hashlib
from collections.abc import Sequence

import numpy as np

from ccheck.core.layout import Chunking, Embedding, SparseField
from ccheck.core.types import SparseVector
from ccheck.ingest.encoders import DenseEncoder, Encoders, default_chunking


class TinyEmbedder:
    """Remembers what it was asked to embed. `on_encode` is called first and can raise."""

    half = False

    def __init__(self, dimensions: int = 8, max_tokens: int = 32, fingerprint: str = "f" * 64, on_encode=None) -> None:
        self.spec = Embedding("tiny", dimensions, fingerprint, max_tokens)
        self.embedded: list[str] = []
        self.calls = 0
        self.on_encode = on_encode

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        if self.on_encode:
            self.on_encode()
        self.calls += 1
        self.embedded += texts
        return np.stack([self.vector(text) for text in texts])

    def vector(self, text: str) -> np.ndarray:
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        vector = np.random.default_rng(seed).normal(size=self.spec.dimensions).astype(np.float32)
        return vector / np.linalg.norm(vector)


class TinySparse:
    """A sparse encoder without a model: each word has an id and a weight. Remembers what it was asked to encode."""

    def __init__(self, fingerprint: str = "5" * 64) -> None:
        self.spec = SparseField("tiny-sparse", 1000, fingerprint, 32)
        self.encoded: list[str] = []

    def encode_documents(self, texts: Sequence[str]) -> list[SparseVector]:
        self.encoded += texts
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> SparseVector:
        ids = np.array(sorted({sum(word.encode()) % 1000 for word in text.split()}), np.int32)
        return SparseVector(ids, (ids.astype(np.float32) + 1) / 7)


def encoders_of(embedder, *, whole: bool = False) -> Encoders:
    """One embedding model and nothing else."""
    chunking = Chunking.whole(embedder.spec.max_tokens) if whole else default_chunking(embedder.spec)
    return Encoders((DenseEncoder(embedder, chunking),))
