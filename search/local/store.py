"""The local store: a folder with a SQLite database, a tantivy index and a file of vectors. No server.

One writer at a time, any number of readers, in different processes. The database is the truth: what it committed
survives a crash, and the indices catch up with it, when the next writer opens the store or the next reader that finds
no writer at work. An index of words that is built anew, since it broke or the layout has other fields, gets a folder of
its own, which the database names once it is whole.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ...analysis import open_analysis
from ...errors import CcheckError, Incomplete, InvalidData, NotFound
from ...fusion import fuse, ranking_of
from ...stages import Fusion, Retriever
from ...types import Document, Entry, Query, Ranking
from ..filters import Filter, Kind
from ..store import Layout, StoreInfo
from . import bm25, sparse, vectors
from .bm25 import Bm25Index, TextFields
from .database import Database, vectors_of
from .snapshot import SPARSE, Ranked, Snapshot
from .vectors import VectorIndex

DATABASE, BM25, LOCK = "documents.sqlite", "bm25", "write.lock"
COMMIT_EVERY, COMMIT_SECONDS = 20_000, 10.0
"""After how many documents, or how long, the BM25 index catches up with the database while documents come in."""

ROWS_COPIED = 65_536
MANY_IDS = 2_000
"""From so many on, the ids of all documents are read, once in a generation."""
RACES = 5
"""How often a search is done anew when a writer replaced a document between its ranking and its reading."""

P = ParamSpec("P")
R = TypeVar("R")


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
            try:
                in_index = self._index(database).last()
            except (ValueError, OSError):
                in_index = 0
            return StoreInfo(
                name=self.name,
                documents=database.count(),
                passages=database.count_passages(),
                layout=layout,
                dimensions=layout.embedding.dimensions if layout.embedding else None,
                bytes=sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file()),
                pending=database.count_after(in_index),
                state=database.state,
                details={"folder": str(self.path)},
            )

    @_reported
    def count(self, filters: Sequence[Filter] = ()) -> int:
        with self._guard:
            return len(self._database().passing(filters)) if filters else self._database().count()

    @_reported
    def fields(self) -> Mapping[str, Kind]:
        with self._guard:
            return self._database().field_kinds()

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
            for analysis in layout.analyses:
                open_analysis(analysis)  # what it needs is there, or nothing changes
            if TextFields.of(old) != TextFields.of(layout):
                self._rebuild_bm25(database, layout)
            elif old != layout:
                with database.writing():
                    database.set_layout(layout)
                    database.touch()
            self._catch_up(database)

    @_reported
    def upsert(self, entries: Sequence[Entry]) -> dict[str, str]:
        with self._guard, self._writing() as database:
            layout = database.layout
            for entry in entries:
                _check_entry(entry, layout)
            first_rows: dict[str, int] = {}
            for field in layout.dense_fields:
                first_rows[field] = database.rows(field)
                rows = [passage.vector for entry in entries for passage in vectors_of(entry).get(field, ())]
                if rows:
                    vectors.write_rows(self.path / database.vector_file(field), first_rows[field], np.stack(rows))
            with database.writing():
                database.add(entries, first_rows)
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
        """Build the indices anew and leave out the vectors of documents that are gone."""
        with self._guard, self._writing() as database:
            for name, field in database.layout.dense_fields.items():
                self._pack_vectors(database, name, field.embedding.dimensions)
            if (self.path / SPARSE).is_dir():
                shutil.rmtree(self.path / SPARSE)
            self._rebuild_bm25(database, database.layout)
            self._catch_up(database)

    def _pack_vectors(self, database: Database, name: str, dimensions: int) -> None:
        old_file = self.path / database.vector_file(name)
        kept = [row for row, _ in database.passages(name)]
        index = VectorIndex.open(old_file, dimensions, database.rows(name), [])
        new_file = self.path / f"vectors-{name}-{database.generation + 1}.f32"
        new_file.unlink(missing_ok=True)
        for first in range(0, len(kept), ROWS_COPIED):
            vectors.write_rows(new_file, first, index.rows[kept[first : first + ROWS_COPIED]])
        with database.writing():
            database.renumber_passages(name, new_file.name)
            database.touch()
        old_file.unlink(missing_ok=True)

    @_reported
    def removal(self) -> str:
        documents = self.count()
        return f"the files of the store in {self.path} with its {documents:,} document{'' if documents == 1 else 's'}"

    def drop(self) -> None:
        if not (self.path / DATABASE).exists():
            raise self._missing()
        with self._guard:
            self._acquire()
            self.close()
            # The database last: without it the folder would be no store, and its rest could not be removed so.
            for pattern in (f"{BM25}*", SPARSE, "vectors*.f32", f"{DATABASE}*"):
                for file in self.path.glob(pattern):
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
            _, rankings = self._rank(queries, retrievers, filters)
            fused = [next(iter(r.values())) if len(r) == 1 else fuse(r, weights, fusion) for r in rankings]
            wanted = {seq for top in fused for seq, _ in top[:k]}
            with self._guard:
                documents = self._database().documents_by_seq(sorted(wanted))
            if len(documents) == len(wanted):
                break
        return [ranking_of(top[:k], ranked, documents, joined) for top, ranked in zip(fused, rankings, strict=True)]

    @_reported
    def rankings(
        self, queries: Sequence[Query], retrievers: Mapping[str, Retriever], *, filters: Sequence[Filter] = ()
    ) -> list[Mapping[str, Sequence[tuple[str, float]]] | CcheckError]:
        for _ in range(RACES):
            snapshot, rankings = self._rank(queries, retrievers, filters)
            wanted = {seq for ranking in rankings for ranked in ranking.values() for seq, _ in ranked}
            ids = self._ids(snapshot, wanted)
            if ids.keys() >= wanted:
                break
        # Documents that another process removed meanwhile, time after time, are left out.
        return [
            {name: [(ids[seq], score) for seq, score in ranked if seq in ids] for name, ranked in ranking.items()}
            for ranking in rankings
        ]

    def _rank(
        self, queries: Sequence[Query], retrievers: Mapping[str, Retriever], filters: Sequence[Filter]
    ) -> tuple[Snapshot, list[dict[str, Ranked]]]:
        snapshot = self._current(retrievers)
        allowed = self._allowed(snapshot, tuple(filters))
        return snapshot, snapshot.rank(queries, retrievers, allowed, self.name)

    def _ids(self, snapshot: Snapshot, wanted: set[int]) -> dict[int, str]:
        """At least the ids of these documents, as far as they are still there."""
        with self._guard:
            if not snapshot.ids and len(wanted) < MANY_IDS:
                return self._database().ids_by_seq(sorted(wanted))
            if not snapshot.ids:
                snapshot.ids.update(self._database().ids())
            return snapshot.ids

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

    def _index(self, database: Database, *, create: bool = False) -> Bm25Index:
        """The index of words that the database names. Raises ValueError or OSError where it can't be read."""
        folder = self.path / (database.meta(BM25) or BM25)
        if self._bm25 is None or self._bm25.folder != folder:
            self._bm25 = None
            self._bm25 = Bm25Index(folder, TextFields.of(database.layout), create=create)
        return self._bm25

    def _current(self, retrievers: Mapping[str, Retriever]) -> Snapshot:
        """What there is to search now, with all that these search."""
        with self._guard:
            database = self._database()
            if self._snapshot is None or self._snapshot.generation != database.generation:
                if self._writer is None:
                    self._catch_up_if_alone(database)
                self._snapshot = self._taken(database, retrievers)
            elif self._snapshot.lacks(retrievers):
                with database.reading():
                    if database.generation == self._snapshot.generation:
                        self._snapshot.read(database, self.path, retrievers)
                        return self._snapshot
                self._snapshot = self._taken(database, retrievers)
            return self._snapshot

    def _taken(self, database: Database, retrievers: Mapping[str, Retriever]) -> Snapshot:
        for attempt in range(RACES):
            # Before the index is read: a change that comes in between is a new generation, and read again.
            generation = database.generation
            try:
                index = self._index(database)
                index.reload()
            except (ValueError, OSError) as error:
                self._bm25 = None
                if attempt < RACES - 1 and database.generation != generation:
                    continue  # a writer put another index in its place
                raise InvalidData(
                    f"the index of words of the store {self.name} can't be read ({error}): use the store once where "
                    "its folder may be written to, which builds it anew"
                ) from error
            with database.reading():
                if index.fields == TextFields.of(database.layout):
                    last, removed = database.last(), tuple(database.removed())
                    snapshot = Snapshot(generation, database.layout, last, removed, index.view)
                    snapshot.read(database, self.path, retrievers)
                    return snapshot
        raise Incomplete(f"the store {self.name} changes all the time: search it again when what writes to it is done")

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
            self._drop_what_is_ahead(self._writer)
        yield self._writer

    def _drop_what_is_ahead(self, database: Database) -> None:
        """Indices of documents that the database lost with the machine's power, before others get their seqs."""
        highest = database.highest()
        sparse.forget_after(self.path / SPARSE, highest)
        try:
            ahead = self._index(database).last() > highest
        except (ValueError, OSError):
            return  # it is built anew when documents come in
        if ahead:
            self._rebuild_bm25(database, database.layout)

    def _catch_up(self, database: Database) -> None:
        """Bring the indices up to the database; an index of words where that fails is built anew."""
        try:
            self._update_bm25(database)
        except (ValueError, OSError):  # tantivy's errors are ValueErrors
            self._rebuild_bm25(database, database.layout)
        field = database.layout.sparse
        if field is not None:
            sparse.catch_up(self.path / SPARSE, field.vocabulary, database.sparse_after)
        self._waiting, self._caught_up = 0, time.monotonic()

    def _update_bm25(self, database: Database) -> None:
        index = self._index(database, create=not database.count())
        index.reload()
        last, removed = index.last(), database.removed()
        if database.count_after(last) or removed:
            index.update(database.texts_after(last, index.fields.additional), removed)
            with database.writing():
                database.forget_removed(removed)
                database.touch()

    def _rebuild_bm25(self, database: Database, layout: Layout) -> None:
        """An index of words with the fields of a layout, which becomes the store's in the same moment."""
        self._bm25 = None
        fields, folder = TextFields.of(layout), self.path / f"{BM25}-{database.generation + 1}"
        bm25.wipe(folder)
        removed = database.removed()
        Bm25Index(folder, fields, create=True).update(database.texts_after(0, fields.additional), [])
        with database.writing():
            database.set_layout(layout)
            database.set_meta(bm25=folder.name)
            database.forget_removed(removed)
            database.touch()
        for old in self.path.glob(f"{BM25}*"):
            if old != folder:
                bm25.wipe(old)  # whoever reads in it keeps its files open

    def _catch_up_if_alone(self, database: Database) -> None:
        """After a writer was killed, the first reader does what it left undone, unless another writer is at work."""
        try:
            index = self._index(database)
            index.reload()
            behind = bool(database.count_after(index.last()))
        except (ValueError, OSError):  # the index is broken, or not there
            self._bm25, behind = None, True
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


def _check_entry(entry: Entry, layout: Layout) -> None:
    """Raise InvalidData for vectors that the store has no field for, or of another size than the field's."""
    fields, id_ = layout.dense_fields, entry.document.id
    for name, passages in vectors_of(entry).items():
        if passages and name not in fields:
            raise InvalidData(f"the document {id_} comes with vectors {name!r}, for which the store was not prepared")
        for passage in passages:
            if passage.vector.shape != (fields[name].embedding.dimensions,):
                raise InvalidData(
                    f"the document {id_} comes with a vector of shape {passage.vector.shape} for {name!r}, whose "
                    f"vectors have {fields[name].embedding.dimensions} dimensions"
                )
    if entry.sparse is not None:
        if layout.sparse is None:
            raise InvalidData(f"the document {id_} comes with a sparse vector, for which the store was not prepared")
        sparse.check(entry.sparse, layout.sparse.vocabulary, f"the document {id_}")
