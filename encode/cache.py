"""Vectors that were made before, so that the same text is never encoded twice by the same model.

One SQLite file for each model's weights. It only saves time: where it can't be used, a temporary one takes its place
for the run, with a notice.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from more_itertools import chunked

from ..core.cache import Cache
from ..core.closing import Closing
from ..core.types import SparseVector, Vector

if TYPE_CHECKING:
    from ..core.layout import Embedding, SparseField

MAX_BYTES = 2 << 30
SLICE = 512
"""How many texts are encoded, and then kept, at a time: the most that a kill can cost."""

V = TypeVar("V")
OnDone = Callable[[int, int], None]


class VectorCache(Closing, Generic[V]):
    """The vectors that one model made of texts, by `text_key`."""

    def __init__(self, name: str, what: str, folder: Path | None, max_bytes: int) -> None:
        """Open the file `name` in `folder`/embeddings, by default in the user's cache folder.

        Beyond `max_bytes` the oldest values are forgotten; 0 keeps none after the run. Never fails: `notice` says where
        something is wrong.
        """
        path = (folder or _default_folder()) / "embeddings" / f"{name}.sqlite"
        self._cache = Cache(path, max_bytes, what)

    @property
    def notice(self) -> str | None:
        return self._cache.notice

    def get(self, keys: Sequence[bytes]) -> dict[bytes, V]:
        """The values of those keys (see `text_key`) that are known."""
        read = ((key, self._load(data)) for key, data in self._cache.get(keys).items())
        return {key: value for key, value in read if value is not None}

    def put(self, keys: Sequence[bytes], values: Sequence[V]) -> None:
        """Keep values, in one transaction."""
        self._cache.put({key: self._dump(value) for key, value in zip(keys, values, strict=True)})

    def close(self) -> None:
        self._cache.close()

    def _dump(self, value: V) -> bytes:
        raise NotImplementedError

    def _load(self, data: bytes) -> V | None:
        """None for what this model can't have made."""
        raise NotImplementedError


class EmbeddingCache(VectorCache[Vector]):
    """The vectors of an embedding model: float32, each of shape [dimensions]."""

    def __init__(self, embedding: Embedding, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._dimensions = embedding.dimensions
        name = f"{embedding.fingerprint[:32]}-{embedding.max_tokens}"
        super().__init__(name, "the embedding cache", folder, max_bytes)

    def _dump(self, value: Vector) -> bytes:
        return value.astype("<f4").tobytes()

    def _load(self, data: bytes) -> Vector | None:
        import numpy as np

        if len(data) != 4 * self._dimensions:
            return None
        return np.frombuffer(data, "<f4").astype(np.float32, copy=False)


class SparseCache(VectorCache[SparseVector]):
    """The vectors of a sparse encoder: all token ids, and then all weights."""

    def __init__(self, field: SparseField, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._vocabulary = field.vocabulary
        name = f"sparse-{field.fingerprint[:32]}-{field.max_tokens}"
        super().__init__(name, "the cache of sparse vectors", folder, max_bytes)

    def _dump(self, value: SparseVector) -> bytes:
        return value.to_bytes()

    def _load(self, data: bytes) -> SparseVector | None:
        if len(data) % 8:
            return None
        value = SparseVector.from_bytes(data)
        if value.ids.size and not 0 <= value.ids[0] <= value.ids[-1] < self._vocabulary:
            return None
        return value


def encode_once(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Iterable[V]],
    cache: VectorCache[V],
    on_done: OnDone = lambda done, total: None,
) -> list[V]:
    """The vectors of texts. `encode` is asked once for each distinct text that is not in the cache.

    `on_done` is told how many of the distinct texts are done.
    """
    keys = [text_key(text) for text in texts]
    distinct = dict(zip(keys, texts, strict=True))
    known = cache.get(list(distinct))
    # Texts of like length together, so that little of a batch is padding; the longest first, so that memory that is
    # too small shows at once.
    missing = sorted(distinct.keys() - known.keys(), key=lambda key: (-len(distinct[key]), key))
    on_done(len(known), len(distinct))
    for some in chunked(missing, SLICE):
        values = list(encode([distinct[key] for key in some]))
        cache.put(some, values)
        known.update(zip(some, values, strict=True))
        _give_memory_back()
        on_done(len(known), len(distinct))
    return [known[key] for key in keys]


def _give_memory_back() -> None:
    """A model on the CPU frees large blocks of many sizes; glibc would keep the holes, more with each batch."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def text_key(text: str) -> bytes:
    """The key of a text in the cache."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _default_folder() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("ccheck")
