"""The local store: a folder with a SQLite database, a tantivy index and a file of vectors. No server.

One writer at a time, any number of readers, in different processes. The database is the truth: what it committed
survives a crash, and the BM25 index catches up with it, when the next writer opens the store or the next reader that
finds no writer at work.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ...errors import CcheckError, Incomplete, InvalidData, NotFound
from ...fusion import fuse, ranking_of
from ...stages import Bm25, Fusion, Retriever
from ...types import Document, Entry, Query, Ranking
from ..filters import Filter
from ..store import Layout, StoreInfo
from . import bm25, vectors
from .bm25 import Bm25Index
from .database import Database
from .vectors import VectorIndex

DATABASE, BM25, LOCK = "documents.sqlite", "bm25", "write.lock"
COMMIT_EVERY, COMMIT_SECONDS = 20_000, 10.0
"""After how many documents, or how long, the BM25 index catches up with the database while documents come in."""

ROWS_COPIED = 65_536
RACES = 5
"""How often a search is done anew when a writer replaced a document between its ranking and its reading."""

P = ParamSpec("P")
R = TypeVar("R")
Ranked = list[tuple[int, float]]
"""(seq, score), best first."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What readers see at one generation of the database."""

    generation: int
    layout: Layout
    last: int
    removed: tuple[int, ...]
    vectors: VectorIndex | None


def _reported(
    method: Callable[Concatenate[LocalStore, P], R],
) -> Callable[Concatenate[LocalStore, P], R]:
    """Turn what SQLite and the disk raise into errors that say what to do."""

    @wraps(method)
    def call(self: LocalStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except PermissionError as error:
            raise NotFound(
                f"the store {self.name} may not be used: {error.strerror} ({error.filename}). Mend the folder's "
                "permissions, or name another store by --store"
            ) from error
        except (sqlite3.OperationalError, OSError) as error:
            raise Incomplete(
                f"the store {self.name} can't be used further: {error}. What was stored so far is safe; make room or "
                "mend the folder's permissions and run the same command again"
            ) from error
        except sqlite3.DatabaseError as error:
            raise InvalidData(f"the store {self.name} is damaged: {error}. Ingest into another one") from error

    return call


class LocalStore:
    """A store in a folder; see `ccheck.search.store.Store` for what the methods promise.

    Safe to use from several threads.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        """Opens nothing yet: a store that does not exist is made by `prepare`."""
        self.path = path
        self.name = f"local:{name or path}"
        self.upserts_at_once = 1  # the database has one writer
        self._guard = threading.RLock()
        self._reader: Database | None = None
        self._writer: Database | None = None
        self._lock: FileLock | None = None
        self._bm25: Bm25Index | None = None
        self._snapshot: Snapshot | None = None
        self._passing: dict[tuple[int, tuple[Filter, ...]], NDArray[np.bool_]] = {}
        self._waiting, self._caught_up = 0, 0.0

    # -- what is there

    @_reported
    def info(self) -> StoreInfo | None:
        if not (self.path / DATABASE).is_file():
            return None
        database = self._database()
        with self._guard:
            layout = database.layout
            in_index = self._index().last() if Bm25Index.exists(self.path / BM25) else 0
            return StoreInfo(
                name=self.name,
                documents=database.count(),
                passages=database.count_passages(),
                layout=layout,
                dimensions=layout.embedding.dimensions if layout.embedding else None,
                bytes=sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file()),
                pending=database.count_after(in_index),
                details={"folder": str(self.path)},
            )

    @_reported
    def count(self) -> int:
        with self._guard:
            return self._database().count()

    @_reported
    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        with self._guard:
            return self._database().digests(ids)

    @_reported
    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        with self._guard:
            return self._database().documents(ids)

    @_reported
    def is_ingested(self, source: str) -> bool:
        with self._guard:
            return self._database().is_ingested(source)

    # -- writing

    @_reported
    def prepare(self, layout: Layout) -> None:
        if self.path.exists() and not (self.path / DATABASE).exists() and any(self.path.iterdir()):
            raise InvalidData(f"the folder {self.path} is not a ccheck store and not empty: name another by --store")
        self.path.mkdir(parents=True, exist_ok=True)
        with self._guard, self._writing() as database:
            old = database.layout
            old.check(layout, self.name)
            if old != layout:
                with database.writing():
                    database.set_meta(layout=json.dumps(layout.to_dict()))
                    database.touch()
            self._catch_up(database)

    @_reported
    def upsert(self, entries: Sequence[Entry]) -> dict[str, str]:
        with self._guard, self._writing() as database:
            first_row = database.rows
            rows = [passage.vector for entry in entries for passage in entry.passages]
            if rows:
                vectors.write_rows(self._vector_file(database), first_row, np.stack(rows))
            with database.writing():
                database.add(entries, first_row)
            self._waiting += len(entries)
            if self._waiting >= COMMIT_EVERY or time.monotonic() - self._caught_up > COMMIT_SECONDS:
                self._catch_up(database)
        return {}

    @_reported
    def delete(self, ids: Sequence[str]) -> int:
        with self._guard, self._writing() as database, database.writing():
            return database.remove(ids)

    def abandon(self) -> None:
        pass  # nothing here waits for anybody

    @_reported
    def publish(self) -> None:
        with self._guard, self._writing() as database:
            self._catch_up(database)

    @_reported
    def mark_ingested(self, source: str) -> None:
        with self._guard, self._writing() as database, database.writing():
            database.mark_ingested(source)

    @_reported
    def rebuild(self) -> None:
        """Build the BM25 index anew and leave out the vectors of documents that are gone."""
        with self._guard, self._writing() as database:
            old_file, layout = self._vector_file(database), database.layout
            if layout.embedding is not None:
                kept = [row for row, _ in database.passages()]
                index = VectorIndex.open(old_file, layout.embedding.dimensions, database.rows, [])
                new_name = f"vectors-{database.generation + 1}.f32"
                for first in range(0, len(kept), ROWS_COPIED):
                    block = index.rows[kept[first : first + ROWS_COPIED]]
                    vectors.write_rows(self.path / new_name, first, block)
                with database.writing():
                    database.renumber_passages()
                    database.set_meta(vectors=new_name)
                    database.touch()
                old_file.unlink(missing_ok=True)
            self._wipe_bm25()
            self._catch_up(database)

    @_reported
    def drop(self) -> None:
        if not (self.path / DATABASE).exists():
            raise self._missing()
        with self._guard:
            self._acquire()
            self.close()
            for file in [self.path / BM25, *self.path.glob(f"{DATABASE}*"), *self.path.glob("vectors*.f32")]:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            (self.path / LOCK).unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    # -- searching

    @_reported
    def search(
        self,
        queries: Sequence[Query],
        retrievers: Mapping[str, Retriever],
        fusion: Fusion,
        *,
        k: int,
        filters: Sequence[Filter] = (),
        details: bool = True,
    ) -> list[Ranking | CcheckError]:
        joined = fusion if len(retrievers) > 1 else None
        weights = {name: retriever.weight for name, retriever in retrievers.items()}
        for _ in range(RACES):
            snapshot = self._current()
            allowed = self._allowed(snapshot, tuple(filters))
            found = {
                name: self._bm25_rankings(queries, retriever, snapshot, allowed)
                if isinstance(retriever, Bm25)
                else self._dense_rankings(queries, retriever.depth, snapshot, allowed)
                for name, retriever in retrievers.items()
            }
            rankings: list[dict[str, Ranked]] = [{name: found[name][i] for name in found} for i in range(len(queries))]
            fused = [next(iter(r.values())) if len(r) == 1 else fuse(r, weights, fusion) for r in rankings]
            wanted = {seq for top in fused for seq, _ in top[:k]}
            with self._guard:
                documents = self._database().documents_by_seq(sorted(wanted))
            if len(documents) == len(wanted):
                break
        return [ranking_of(top[:k], ranked, documents, joined) for top, ranked in zip(fused, rankings, strict=True)]

    def _bm25_rankings(
        self, queries: Sequence[Query], retriever: Bm25, snapshot: Snapshot, allowed: NDArray[np.bool_] | None
    ) -> list[Ranked]:
        index = self._index()
        if allowed is None and snapshot.removed:
            allowed = np.ones(snapshot.last + 1, np.bool_)
            allowed[[seq for seq in snapshot.removed if seq <= snapshot.last]] = False
        return [index.search(query.text, retriever.depth, retriever.fields, allowed) for query in queries]

    def _dense_rankings(
        self, queries: Sequence[Query], depth: int, snapshot: Snapshot, allowed: NDArray[np.bool_] | None
    ) -> list[Ranked]:
        if snapshot.vectors is None:
            raise NotFound(f"the store {self.name} has no vectors: ingest with an embedding model for dense retrieval")
        rankings: list[Ranked] = [[] for _ in queries]
        asked = [(i, query.vector) for i, query in enumerate(queries) if query.vector is not None]
        if asked:
            matrix = np.stack([vector for _, vector in asked]).astype(np.float32, copy=False)
            for (i, _), ranking in zip(asked, snapshot.vectors.search(matrix, depth, allowed), strict=True):
                rankings[i] = ranking
        return rankings

    def _allowed(self, snapshot: Snapshot, filters: tuple[Filter, ...]) -> NDArray[np.bool_] | None:
        """allowed[seq]: whether a document passes the filters; kept for the claims that come after."""
        if not filters:
            return None
        key = (snapshot.generation, filters)
        with self._guard:
            if key not in self._passing:
                allowed = np.zeros(snapshot.last + 1, np.bool_)
                allowed[[seq for seq in self._database().passing(filters) if seq <= snapshot.last]] = True
                self._passing = {key: allowed}
            return self._passing[key]

    # -- inside

    def _missing(self) -> NotFound:
        return NotFound(f"there is no store {self.name}: make it with ccheck ingest FILE --store {self.name}")

    def _database(self) -> Database:
        if self._reader is None:
            if not (self.path / DATABASE).is_file():
                raise self._missing()
            self._reader = Database(self.path / DATABASE)
        return self._reader

    def _index(self) -> Bm25Index:
        if self._bm25 is None:
            self._bm25 = Bm25Index(self.path / BM25, create=True)
        return self._bm25

    def _current(self) -> Snapshot:
        """What there is to search now."""
        with self._guard:
            database = self._database()
            generation = database.generation
            if self._snapshot is None or self._snapshot.generation != generation:
                if self._writer is None:
                    self._catch_up_if_alone(database)
                    generation = database.generation
                self._index().reload()
                layout = database.layout
                index = None
                if layout.embedding is not None:
                    passages, rows = database.passages(), database.rows
                    index = VectorIndex.open(self._vector_file(database), layout.embedding.dimensions, rows, passages)
                self._snapshot = Snapshot(generation, layout, database.last(), tuple(database.removed()), index)
            return self._snapshot

    def _vector_file(self, database: Database) -> Path:
        return self.path / (database.meta("vectors") or "vectors.f32")

    def _acquire(self) -> None:
        if self._lock is None:
            lock = FileLock(self.path / LOCK, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise Incomplete(
                    f"another process is writing to the store {self.name}: wait until it is done, or stop it"
                ) from error
            self._lock = lock

    @contextmanager
    def _writing(self) -> Iterator[Database]:
        """The connection of the one writer, which this store stays until it is closed."""
        if self._writer is None:
            if not self.path.is_dir():
                raise self._missing()
            self._acquire()
            self._writer = Database(self.path / DATABASE, create=True)
        yield self._writer

    def _catch_up(self, database: Database) -> None:
        """Bring the BM25 index up to the database; where that fails, build it anew."""
        try:
            self._update_bm25(database)
        except (ValueError, OSError):  # tantivy's errors are ValueErrors
            self._wipe_bm25()
            self._update_bm25(database)
        self._waiting, self._caught_up = 0, time.monotonic()

    def _update_bm25(self, database: Database) -> None:
        index = self._index()
        index.reload()
        last, removed = index.last(), database.removed()
        if last > database.last() and last not in removed and not removed:
            raise ValueError("the BM25 index is ahead of the database")
        if database.count_after(last) or removed:
            index.update(database.texts_after(last), removed)
            with database.writing():
                database.forget_removed(removed)
                database.touch()

    def _catch_up_if_alone(self, database: Database) -> None:
        """After a writer was killed, the first reader does what it left undone, unless another writer is at work."""
        try:
            self._index().reload()
            behind = bool(database.count_after(self._index().last()))
        except ValueError:  # the index is broken
            behind = True
        if not behind:
            return
        try:
            with FileLock(self.path / LOCK).acquire(timeout=0):
                writer = Database(self.path / DATABASE)
                try:
                    self._catch_up(writer)
                finally:
                    writer.close()
        except (Timeout, OSError, sqlite3.OperationalError):
            return  # a writer is at work, or the folder can be read only: `info().pending` says what is not found yet

    def _wipe_bm25(self) -> None:
        self._bm25 = None
        bm25.wipe(self.path / BM25)

    def close(self) -> None:
        with self._guard:
            for database in (self._reader, self._writer):
                if database is not None:
                    database.close()
            if self._lock is not None:
                self._lock.release()
            self._reader = self._writer = self._lock = self._bm25 = self._snapshot = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
