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
from typing import Generic, TypeVar

from more_itertools import chunked

from ..core.cache import Cache
from ..core.layout import Embedding, SparseField
from ..core.types import SparseVector, Vector

MAX_BYTES = 2 << 30
SLICE = 512
"""How many texts are encoded, and then kept, at a time: the most that a kill can cost."""

V = TypeVar("V")
OnDone = Callable[[int, int], None]


class VectorCache(Cache, Generic[V]):
    """The vectors that one model made of texts, by a hash of the text."""

    def __init__(
        self,
        name: str,
        folder: Path | None,
        max_bytes: int,
        what: str,
        dump: Callable[[V], bytes],
        load: Callable[[bytes], V | None],
    ) -> None:
        """See `Cache`. `load` returns None for what this model can't have made."""
        import platformdirs

        folder = folder or platformdirs.user_cache_path("ccheck")
        super().__init__(folder / "embeddings" / f"{name}.sqlite", max_bytes, what)
        self.dump, self.load = dump, load


def embedding_cache(
    embedding: Embedding, folder: Path | None = None, max_bytes: int = MAX_BYTES, half: bool = False
) -> VectorCache[Vector]:
    """The vectors of an embedding model: float32, each of shape [dimensions].

    The file is in `folder`/embeddings, by default in the user's cache folder. Beyond `max_bytes` the oldest values are
    forgotten; 0 keeps none after the run. `half`: vectors that were calculated in bfloat16 have a file of their own.
    Never fails.
    """
    import numpy as np

    def load(data: bytes) -> Vector | None:
        if len(data) != 4 * embedding.dimensions:
            return None
        return np.frombuffer(data, "<f4").astype(np.float32, copy=False)

    name = f"{embedding.fingerprint[:32]}-{embedding.max_tokens}{'-bfloat16' if half else ''}"
    return VectorCache(name, folder, max_bytes, "the embedding cache", lambda one: one.astype("<f4").tobytes(), load)


def sparse_cache(
    field: SparseField, folder: Path | None = None, max_bytes: int = MAX_BYTES
) -> VectorCache[SparseVector]:
    """The vectors of a sparse encoder: all token ids, and then all weights. See `embedding_cache`."""

    def load(data: bytes) -> SparseVector | None:
        value = SparseVector.from_bytes(data) if len(data) % 8 == 0 else None
        if value is not None and value.ids.size and not 0 <= value.ids[0] <= value.ids[-1] < field.vocabulary:
            return None
        return value

    name = f"sparse-{field.fingerprint[:32]}-{field.max_tokens}"
    return VectorCache(name, folder, max_bytes, "the cache of sparse vectors", SparseVector.to_bytes, load)


def encode_once(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Iterable[V]],
    cache: VectorCache[V],
    on_done: OnDone = lambda done, total: None,
) -> list[V]:
    """The vectors of texts. `encode` is asked once for each distinct text that is not in the cache.

    `on_done` is told how many of the distinct texts are done.
    """
    keys = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]
    distinct = dict(zip(keys, texts, strict=True))
    kept = ((key, cache.load(data)) for key, data in cache.get(list(distinct)).items())
    known = {key: value for key, value in kept if value is not None}
    # Texts of like length together, so that little of a batch is padding; the longest first, so that memory that is
    # too small shows at once.
    missing = sorted(distinct.keys() - known.keys(), key=lambda key: (-len(distinct[key]), key))
    on_done(len(known), len(distinct))
    for some in chunked(missing, SLICE):
        made = dict(zip(some, encode([distinct[key] for key in some]), strict=True))
        cache.put({key: cache.dump(value) for key, value in made.items()})
        known |= made
        _give_memory_back()
        on_done(len(known), len(distinct))
    return [known[key] for key in keys]


def _give_memory_back() -> None:
    """A model on the CPU frees large blocks of many sizes; glibc would keep the holes, more with each batch."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
