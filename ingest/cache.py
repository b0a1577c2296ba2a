"""Embeddings that were made before, so that the same text is never embedded twice by the same model.

One SQLite file for each model's weights. It only saves time: where it can't be used, a temporary one takes its place
for the run, with a notice.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from ..types import Vector

if TYPE_CHECKING:
    from ..search.embedding import Embedder
    from ..search.store import Embedding

MAX_BYTES = 2 << 30
SLICE = 512
"""How many texts are embedded, and then kept, at a time: the most that a kill can cost."""
_TIMEOUT_S = 30.0


class EmbeddingCache:
    """The vectors of texts that one model has embedded: float32, each of shape [dimensions]."""

    def __init__(self, embedding: Embedding, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        """Open the model's file in `folder`/embeddings, by default in the user's cache folder.

        Beyond `max_bytes` the oldest vectors are forgotten; 0 keeps none after the run. Never fails: `notice` says
        where something is wrong.
        """
        self.notice: str | None = None
        self._dimensions = embedding.dimensions
        self._max_bytes = max_bytes
        folder = (folder or _default_folder()) / "embeddings"
        self._path = folder / f"{embedding.fingerprint[:32]}-{embedding.max_tokens}.sqlite"
        if max_bytes <= 0:
            self._max_bytes, self._database = MAX_BYTES, _open("")
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _open(str(self._path))
        except (OSError, sqlite3.Error) as error:
            self._fall_back(error)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """The vectors of those keys (see `text_key`) that are known."""
        import numpy as np

        found: dict[bytes, Vector] = {}
        try:
            for some in _slices(keys, 500):  # of the 999 parameters that any SQLite takes
                marks = ",".join("?" * len(some))
                query = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"  # noqa: S608 - question marks only
                for key, vector in self._database.execute(query, some):
                    if len(vector) == 4 * self._dimensions:
                        found[key] = np.frombuffer(vector, "<f4").astype(np.float32, copy=False)
        except sqlite3.Error as error:
            self._fall_back(error)
        return found

    def put(self, keys: Sequence[bytes], vectors: Vector) -> None:
        """Keep vectors, shape [keys, dimensions], in one transaction."""
        rows = [(key, vector.astype("<f4").tobytes()) for key, vector in zip(keys, vectors, strict=True)]
        try:
            self._put(rows)
        except sqlite3.Error as error:
            self._fall_back(error)
            with contextlib.suppress(sqlite3.Error):  # no space for a temporary one either
                self._put(rows)

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._database.close()

    def __enter__(self) -> EmbeddingCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)", rows)
        pages, free, size = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size > self._max_bytes:
            with self._database:
                self._database.execute(
                    "DELETE FROM vectors WHERE age <= (SELECT min(age) + (max(age) - min(age)) / 10 FROM vectors)"
                )

    def _fall_back(self, error: Exception) -> None:
        self.notice = f"the embedding cache {self._path} can't be used ({error}); deleting it is safe"
        self._database = _open("")  # a temporary file, which SQLite removes


def embed(
    texts: Sequence[str],
    embedder: Embedder,
    cache: EmbeddingCache,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> Vector:
    """The vectors of texts, shape [texts, dimensions]. Each distinct text that is not in the cache is embedded once.

    `on_done` is told how many of the distinct texts are done.
    """
    import numpy as np

    keys = [text_key(text) for text in texts]
    distinct = dict(zip(keys, texts, strict=True))
    known = cache.get(list(distinct))
    # Texts of like length together, so that little of a batch is padding; the longest first, so that memory that is
    # too small shows at once.
    missing = sorted(distinct.keys() - known.keys(), key=lambda key: (-len(distinct[key]), key))
    on_done(len(known), len(distinct))
    for some in _slices(missing, SLICE):
        vectors = embedder.encode_documents([distinct[key] for key in some])
        cache.put(some, vectors)
        known.update(zip(some, vectors, strict=True))
        _give_memory_back()
        on_done(len(known), len(distinct))
    answer = np.empty((len(keys), embedder.spec.dimensions), np.float32)
    for row, key in enumerate(keys):
        answer[row] = known[key]
    return answer


def _give_memory_back() -> None:
    """A model on the CPU frees large blocks of many sizes; glibc would keep the holes, more with each batch."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def text_key(text: str) -> bytes:
    """What a text is found by in the cache."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _open(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_TIMEOUT_S)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(
            "CREATE TABLE IF NOT EXISTS vectors "
            "(age INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)"
        )
        # Writing shows at once what is wrong: a folder that is read-only, a file that is no database.
        with database:
            database.execute("PRAGMA user_version = 1")
    except sqlite3.Error:
        database.close()
        raise
    return database


def _default_folder() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("ccheck")


def _slices(items: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
