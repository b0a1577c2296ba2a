"""The local store: a folder with a SQLite database, a tantivy index and files of vectors. No server.

There can be one writer at a time and any number of readers, in different processes. The database is the truth: what
it has committed survives a crash and a loss of power. It names all other files and knows their checksums. After a crash
the indices catch up with it when the next writer opens the store, or the next reader while no writer is at work (see
`upkeep`).
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import numpy as np
from more_itertools import chunked
from numpy.typing import NDArray

from ...core.analysis import open_analysis
from ...core.errors import CcheckError, Incomplete, InvalidData, NotFound, ServerError, UsageError
from ...core.layout import MAIN_VECTORS, Layout
from ...core.stages import Retriever
from ...core.types import Document, Entry, Filter, Unit, document_of, unit_key
from ..filters import Kind
from ..store import Ranks, Search, Store, StoreInfo, no_store, not_held, refuse_missing, searched_units, unfinished
from . import upkeep, vectors
from .bm25 import is_panic
from .database import Database
from .files import (
    DATABASE,
    LOCK,
    UNIT_BITS,
    Damaged,
    Verified,
    is_damage,
    is_forbidden,
    is_leftover,
    is_remnant,
    make_folder,
    remove_store,
    vector_fields,
    vectors_of,
)
from .snapshot import Changed, Ranked, Snapshot

if TYPE_CHECKING:
    from filelock import FileLock

COMMIT_EVERY, COMMIT_SECONDS = 20_000, 10.0
"""During an ingest the BM25 indices catch up with the database after so many documents, or so many seconds."""

SCANNED_AT_ONCE = 500
"""How many documents `scan` reads at a time."""
RACES = 5
"""How often a search is repeated because a writer replaced a document between ranking and reading it."""

P = ParamSpec("P")
R = TypeVar("R")


def reported(method: Callable[Concatenate[LocalStore, P], R]) -> Callable[Concatenate[LocalStore, P], R]:
    """Turn what SQLite, tantivy and the disk raise into errors that say what to do."""

    @wraps(method)
    def call(self: LocalStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except Damaged as error:
            raise error.in_store(self.name) from error
        except (sqlite3.Error, OSError) as error:
            if is_forbidden(error):
                raise NotFound(
                    f"the store {self.name} can't be used: {error}. Fix the permissions or the read-only mount of "
                    f"{self.path}, or choose another store with --store"
                ) from error
            if isinstance(error, sqlite3.Error) and is_damage(error):
                raise Damaged(self.path / DATABASE, f"is broken: {error}").in_store(self.name) from error
            raise Incomplete(
                f"the store {self.name} failed: {error}. What was stored so far is safe. Free some disk space, then "
                "run the same command again"
            ) from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise Damaged(self.path, f"made tantivy fail: {error}", derived=True).in_store(self.name) from error

    return call


class LocalStore(Store):
    """A store in a folder. `ccheck.search.store.Store` says what the methods promise. For several threads, too."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        """Nothing is opened yet. `prepare` creates a store that does not exist."""
        self.path = path
        self.name = f"local:{name or path}"
        self.upserts_at_once = 1  # the database has one writer
        self._guard = threading.RLock()
        self._reader: Database | None = None
        self._writer: Database | None = None
        self._lock: FileLock | None = None
        self._snapshot: Snapshot | None = None
        self._verified = Verified()
        self._waiting, self._caught_up = 0, 0.0

    # -- what is there

    @reported
    def info(self, *, figures: bool = True) -> StoreInfo | None:
        if not (self.path / DATABASE).is_file():
            if is_remnant(self.path):
                raise self._missing()
            return None
        with self._guard:
            database, files = self._database(), self.path.rglob("*")
            with database.reading():
                layout, alive = database.layout, database.alive()
                passages = 0
                if figures and layout.embedding is not None:
                    blocks = database.vector_blocks(MAIN_VECTORS)
                    passages = sum(int(np.count_nonzero(alive[block.owners])) for block in blocks)
                return StoreInfo(
                    name=self.name,
                    documents=database.count(),
                    passages=passages,
                    layout=layout,
                    dimensions=layout.embedding.dimensions if layout.embedding else None,
                    bytes=sum(file.stat().st_size for file in files if file.is_file()) if figures else None,
                    pending=database.count_after(min(one.last for one in database.words.values())),
                    state=database.state,
                    details={"folder": str(self.path)},
                    notices=unfinished(self.name, json.loads(database.meta("reading", "[]"))),
                )

    def state(self) -> str:
        return self._reading(lambda database: database.state)

    def state_now(self) -> str | None:
        """`state`; None if another thread would have to be waited for."""
        if not self._guard.acquire(blocking=False):
            return None
        try:
            return self.state()
        finally:
            self._guard.release()

    def get_units(self, granularity: str, keys: Sequence[str]) -> dict[str, Unit]:
        def read(database: Database) -> dict[str, tuple[Unit, ...]]:
            if granularity not in database.layout.units:
                raise not_held(self.name, f"units {granularity!r}")
            return database.units(granularity, list(dict.fromkeys(map(document_of, keys))))

        found = self._reading(read)
        known = {unit_key(id_, unit.number): unit for id_, units in found.items() for unit in units}
        return {key: known[key] for key in keys if key in known}

    def count(self, filters: Sequence[Filter] = ()) -> int:
        return self._reading(lambda database: len(database.passing(filters)) if filters else database.count())

    def scan(self, filters: Sequence[Filter] = ()) -> Iterator[Document]:
        seqs = self._reading(lambda database: sorted(database.passing(filters) if filters else database.ids()))
        for some in chunked(seqs, SCANNED_AT_ONCE):
            found = self._reading(partial(Database.documents_by_seq, seqs=some))
            yield from (found[seq] for seq in some if seq in found)

    @reported
    def _reading(self, work: Callable[[Database], R]) -> R:
        with self._guard:
            return work(self._database())

    def fields(self) -> Mapping[str, Kind]:
        return self._reading(Database.field_kinds)

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        return self._reading(lambda database: database.digests(ids))

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        return self._reading(lambda database: database.documents(ids))

    # -- writing

    @reported
    def prepare(self, layout: Layout, reading: Sequence[str] = ()) -> None:
        for analysis in layout.analyses:
            open_analysis(analysis)  # what it needs is there, or nothing changes
        with self._guard:
            self._create(layout)
            with self._writing() as database:
                database.layout.check(layout, self.name)
                upkeep.adopt(database, self.path, layout, reading)
                self._catch_up(database)

    def _create(self, layout: Layout) -> None:
        """Create the store if there is none: all of it, or nothing."""
        if (self.path / DATABASE).exists():
            return
        names = sorted(file.name for file in self.path.iterdir()) if self.path.exists() else []
        strange = [name for name in names if not is_leftover(name)]
        if is_remnant(self.path):
            raise self._missing()
        if strange:
            raise InvalidData(
                f"the folder {self.path} is not a ccheck store and not empty: it contains {strange[0]}. Choose another "
                "folder with --store"
            )
        make_folder(self.path)
        self._acquire()
        if not (self.path / DATABASE).exists():  # nobody made it meanwhile
            upkeep.create_store(self.path, layout)

    @reported
    def upsert(self, entries: Sequence[Entry]) -> dict[str, str]:
        with self._guard, self._writing() as database:
            found: dict[str, tuple[list[int], list[NDArray[np.float32]]]] = {}
            fields, files = vector_fields(database.layout), database.vector_files()
            for seq, entry in enumerate(entries, database.counts.highest + 1):
                for name, (owners, rows) in vectors_of(entry, seq).items():
                    if name not in fields or rows.shape[1] != fields[name][0]:
                        raise InvalidData(
                            f"{self.name} was not prepared for vectors {name!r} of {rows.shape[1]} dimensions"
                        )
                    known = found.setdefault(name, ([], []))
                    known[0].extend(owners)
                    known[1].append(rows)
            blocks = {
                name: vectors.write_rows(self.path / files[name].file, files[name].rows, np.concatenate(some), owners)
                for name, (owners, some) in found.items()
            }
            with database.writing():
                database.add(entries, blocks)
            self._waiting += len(entries)
            if self._waiting >= COMMIT_EVERY or time.monotonic() - self._caught_up > COMMIT_SECONDS:
                self._catch_up(database)
        return {}

    @reported
    def delete(self, ids: Sequence[str]) -> int:
        with self._guard, self._writing() as database, database.writing():
            return database.remove(ids)

    def abandon(self) -> None:
        pass  # nothing here waits for anybody

    def release(self) -> None:
        with self._guard:
            if self._writer is not None:
                self._writer.close()
            if self._lock is not None:
                self._lock.release()
            self._writer = self._lock = None

    @reported
    def publish(self) -> None:
        with self._guard, self._writing() as database:
            self._catch_up(database)
            upkeep.settle(database, self.path)
            upkeep.code(database, self.path, self._verified)

    @reported
    def mark_ingested(self, reading: Sequence[str] = ()) -> None:
        with self._guard, self._writing() as database, database.writing():
            left = [one for one in json.loads(database.meta("reading", "[]")) if one not in reading]
            database.set_meta(reading=json.dumps(left))

    @reported
    def rebuild(self) -> None:
        """Build all indices again, without the vectors of documents that were removed."""
        with self._guard, self._writing() as database:
            upkeep.rebuild(database, self.path, self._verified)

    @reported
    def check(self) -> list[Damaged]:
        """Compare everything with its checksums. Returns what is damaged; changes nothing.

        Raises ServerError while another process writes.
        """
        with self._guard:
            try:
                database = self._database()
            except Damaged as error:
                return [error]
            with suppress(PermissionError):  # who may not write can still look
                self._acquire()
            return upkeep.check(database, self.path)

    @reported
    def removal(self) -> str:
        try:
            documents = self.count()
        except InvalidData as error:
            if not (self.path / DATABASE).exists():
                raise
            return f"the files of the store in {self.path} ({error})"
        return f"the files of the store in {self.path} with its {documents:,} document{'' if documents == 1 else 's'}"

    @reported
    def drop(self) -> list[Path]:
        if not (self.path / DATABASE).exists():
            raise self._missing()
        if self.path.is_symlink():
            raise UsageError(
                f"{self.path} is a symbolic link, and ccheck does not delete through links. Name the store itself: "
                f"ccheck index delete --store {self.path.resolve()}"
            )
        with self._guard:
            self._acquire()
            self._close_databases()
            left = remove_store(self.path)
            self.close()
        return left

    # -- searching

    @reported
    def rank(self, search: Search) -> list[Ranks | CcheckError]:
        bits = 0 if searched_units(search.retrievers) is None else UNIT_BITS
        for _ in range(RACES):
            snapshot, rankings = self._rank(search)
            if search.alone:
                rankings = [{name: ranked[: search.k] for name, ranked in one.items()} for one in rankings]
            found = {key for ranking in rankings for ranked in ranking.values() for key, _ in ranked}
            wanted = sorted({key >> bits for key in found})
            ids = self._ids(snapshot, wanted)
            if ids.keys() >= set(wanted):
                break
        # Documents that another process kept removing in the meantime are left out.
        names = {key: ids[key >> bits] for key in found if key >> bits in ids}
        if bits:
            names = {key: unit_key(id_, key & ((1 << bits) - 1)) for key, id_ in names.items()}
        return [
            Ranks({name: [(names[key], at) for key, at in ranked if key in names] for name, ranked in one.items()})
            for one in rankings
        ]

    def _rank(self, search: Search) -> tuple[Snapshot, list[dict[str, Ranked]]]:
        for attempt in range(RACES):
            found: dict[int, dict[str, Ranked]] = {}
            try:
                snapshot = self._current(search.retrievers)
                for scope, places in search.scopes.items():
                    with self._guard:
                        allowed = snapshot.mask(scope, self._database())
                    rankings = snapshot.rank([search.queries[place] for place in places], search.retrievers, allowed)
                    found.update(zip(places, rankings, strict=True))
                return snapshot, [found[place] for place in range(len(search.queries))]
            except Changed:
                continue
            except Damaged as error:
                if not error.derived or attempt == RACES - 1 or not self._mended():
                    raise
        raise ServerError(f"the store {self.name} keeps changing. Search it again when its writer is done")

    def _ids(self, snapshot: Snapshot, wanted: Sequence[int]) -> dict[int, str]:
        """The ids of these documents: of all of them, unless another process has just removed some."""
        with self._guard:
            database = self._database()
            with database.reading():
                found = snapshot.ids_of(wanted, database)
                if database.generation == snapshot.generation and not found.keys() >= set(wanted):
                    raise Damaged(database.path, "lacks documents that it should have")
                return found

    # -- inside

    def _missing(self) -> CcheckError:
        if is_remnant(self.path):
            return InvalidData(
                f"the folder {self.path} contains a store without its database, {DATABASE}. Put that file back, or "
                "remove the folder and ingest again"
            )
        return no_store(self.name)

    def _database(self) -> Database:
        """The readers' connection to the store that is at the path now."""
        if self._reader is not None and not self._reader.in_place:
            self._reader.close()
            self._reader = self._snapshot = None
            self._verified = Verified()
        if self._reader is None:
            if not (self.path / DATABASE).is_file():
                raise self._missing()
            self._reader = Database(self.path / DATABASE)
        return self._reader

    def _current(self, retrievers: Mapping[str, Retriever]) -> Snapshot:
        """The current snapshot, with everything that these retrievers search.

        Raises Damaged, or Changed if a writer has replaced the damaged files meanwhile.
        """
        with self._guard:
            database, known = self._database(), self._snapshot
            if known is None or known.generation != database.generation:
                if self._writer is None:
                    self._catch_up_if_alone(database)
            elif all(one in known.searched for one in retrievers.values()):
                return known
            with database.reading():
                generation, layout = database.generation, database.layout
                refuse_missing(retrievers, layout, self.name)
                try:
                    if known is None or known.generation != generation:
                        behind = frozenset(database.behind())
                        known = Snapshot(generation, layout, database.alive(), behind, self._verified)
                    known.read(database, self.path, retrievers)
                    self._snapshot = known
                    return known
                except Damaged as error:
                    damage = error
            raise damage if database.generation == generation else Changed

    def _acquire(self) -> None:
        """Become the one writer."""
        if self._lock is None:
            lock = self._new_lock()
            try:
                lock.acquire(timeout=0)
            except TimeoutError as error:
                raise ServerError(
                    f"another process is writing to the store {self.name}. Wait until it is done, or stop it"
                ) from error
            self._lock = lock

    def _new_lock(self) -> FileLock:
        from filelock import FileLock  # here: who only reads takes none

        return FileLock(self.path / LOCK, mode=0o600, thread_local=False)

    @contextmanager
    def _writing(self) -> Iterator[Database]:
        """The connection of the one writer, which this stays until `release`. Raises Incomplete if the folder went."""
        if self._writer is None:
            if (self.path / DATABASE).is_file():
                self._acquire()
            if not (self.path / DATABASE).is_file():  # also if it was deleted before this had the lock
                self.release()
                raise self._missing()
            self._writer = Database(self.path / DATABASE)
            upkeep.mend(self._writer, self.path, self._verified)
        writer = self._writer
        self._check_in_place(writer)
        try:
            yield writer
        except (OSError, sqlite3.Error):
            self._check_in_place(writer)
            raise
        self._check_in_place(writer)

    def _check_in_place(self, writer: Database) -> None:
        if not writer.in_place:
            raise Incomplete(
                f"the folder {self.path} of the store {self.name} was removed or replaced while ccheck was writing to "
                "it. What was written is lost. Run the same command again"
            )

    def _catch_up(self, database: Database) -> None:
        upkeep.catch_up(database, self.path, self._verified)
        self._waiting, self._caught_up = 0, time.monotonic()

    def _catch_up_if_alone(self, database: Database) -> None:
        """Finish what a killed writer left undone, unless another writer is at work."""
        if any(database.words[name].last < database.counts.highest for name in database.behind()):
            # If another one is, `info().pending` says how many documents are not found yet.
            self._if_alone(lambda writer: upkeep.catch_up(writer, self.path, self._verified))

    def _mended(self) -> bool:
        """Rebuild damaged derived files, which only the one writer can do. Returns whether that was possible."""
        with self._guard:
            self._verified, self._snapshot = Verified(), None
            return self._if_alone(lambda writer: upkeep.mend(writer, self.path, self._verified))

    def _if_alone(self, work: Callable[[Database], None]) -> bool:
        """Do a writer's work, unless another writer is busy or the folder is read-only. Returns whether it was done."""
        if self._writer is not None:
            work(self._writer)
            return True
        try:
            with self._new_lock().acquire(timeout=0), closing(Database(self.path / DATABASE)) as writer:
                work(writer)
        except (OSError, sqlite3.OperationalError):
            return False
        return True

    def close(self) -> None:
        with self._guard:
            self._close_databases()
            self.release()

    def _close_databases(self) -> None:
        for database in (self._reader, self._writer):
            if database is not None:
                database.close()
        self._reader = self._writer = self._snapshot = None
