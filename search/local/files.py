"""The files of a local store: which names are ccheck's, who may read them, and their checksums; its records of them.

The checksums are XXH3 (64 bits), which is as fast as memory. They detect damage, not forgery.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np
import xxhash
from numpy.typing import NDArray

from ...core.errors import InvalidData
from ...core.layout import Layout
from ...core.types import Entry, Unit, Vector

DATABASE, UNBORN, LOCK = "documents.sqlite", "documents.sqlite.new", "write.lock"
"""`UNBORN` is the name of the database until it is complete."""

_BESIDE = r"(-wal|-shm|-journal)?"
_WORDS = re.compile(r"bm25-[0-9a-f]{8}")
_WORDS_FILES = re.compile(r"\.?\w+\.json|\.tantivy-\w+\.lock|\.tmp\w+|[0-9a-f]{32}(\.\d+)?\.\w+")
_CREATED = re.compile(rf"{re.escape(UNBORN)}{_BESIDE}|{re.escape(LOCK)}|{_WORDS.pattern}")
_VECTORS = re.compile(r"vectors-[0-9a-f]{8}\.(f32|codes)")
_DATABASE = re.compile(re.escape(DATABASE) + _BESIDE)
_READ_AT_ONCE = 1 << 22


class Damaged(InvalidData):
    """A file of a store is not as ccheck left it. A `derived` file can be rebuilt from the documents."""

    def __init__(self, where: Path | str, problem: str, *, derived: bool = False) -> None:
        self.where, self.problem, self.derived = Path(where), problem, derived
        super().__init__(f"{where} {problem}")

    def commands(self, store: str) -> list[str]:
        """The commands that repair the store of that name, in order."""
        if self.derived:
            return [f"ccheck index rebuild --store {store}"]
        return [f"ccheck index delete --store {store}", f"ccheck ingest FILE --store {store}"]

    def in_store(self, store: str) -> InvalidData:
        """The error for users of the store of that name."""
        how = (
            "which rebuilds it from the documents"
            if self.derived
            else "because it can't be rebuilt from the rest. Vectors are taken from the cache where possible"
        )
        return InvalidData(f"the store {store} is damaged: {self}. Run {' and '.join(self.commands(store))}, {how}.")


def new_name(what: str) -> str:
    """A name that no file of the store has ever had, even if somebody restores an older copy of the database."""
    return f"{what}-{uuid4().hex[:8]}"


def new_vector_file() -> str:
    return f"{new_name('vectors')}.f32"


# -- which files are ccheck's, and who may read them


def is_leftover(name: str) -> bool:
    """Whether an interrupted creation can have left a file of this name."""
    return bool(_CREATED.fullmatch(name))


def is_remnant(folder: Path) -> bool:
    """Whether this is a store whose database is missing. Neither a creation nor a deletion leaves that."""
    if (folder / DATABASE).exists() or not folder.is_dir():
        return False
    return any(_VECTORS.fullmatch(file.name) for file in folder.iterdir())


def _is_swept(name: str) -> bool:
    return is_leftover(name) or bool(_VECTORS.fullmatch(name))


def remove_store(folder: Path) -> list[Path]:
    """Remove what ccheck made in a folder and return the rest. Does not follow symbolic links.

    The database goes last, because a folder without it is not a store and this could not continue there.
    """
    left, last = [], []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        if _WORDS.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            left += _remove_words(path)
        elif not entry.is_file(follow_symlinks=False):
            left.append(path)
        elif _DATABASE.fullmatch(entry.name) or entry.name == LOCK:
            last.append(path)
        elif _is_swept(entry.name):
            path.unlink()
        else:
            left.append(path)
    for path in sorted(last, key=lambda path: (path.name == LOCK, path.name == DATABASE)):
        path.unlink(missing_ok=True)
    if not left:
        folder.rmdir()
    return left


def _remove_words(folder: Path) -> list[Path]:
    """Remove a BM25 index. Files in it that are not its own stay and are returned."""
    left = []
    for entry in list(os.scandir(folder)):
        if entry.is_file(follow_symlinks=False) and _WORDS_FILES.fullmatch(entry.name):
            Path(entry.path).unlink(missing_ok=True)
        else:
            left.append(Path(entry.path))
    if not left:
        folder.rmdir()
    return left


def sweep(folder: Path, named: Iterable[str]) -> None:
    """Remove indices and files of vectors that the database does not name: a crash left them.

    On Windows a reader can block the removal. A later writer tries again.
    """
    named = set(named)
    for entry in list(os.scandir(folder)):
        if entry.name in named or entry.name == LOCK or not _is_swept(entry.name):
            continue
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner can use, whatever the umask. An existing folder stays as it is."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o700)


def share(path: Path, store: Path) -> None:
    """Give a new file or folder the permissions of the database: only its owner has access, unless they changed it."""
    mode = stat.S_IMODE((store / DATABASE).stat().st_mode) & 0o666 if (store / DATABASE).exists() else 0o600
    if path.is_dir():
        mode |= 0o700 | (mode & 0o444) >> 2
    path.chmod(mode | 0o600)


def link(file: Path, to: Path) -> None:
    """Link a file to another name, or copy it if the file system has no links."""
    try:
        to.hardlink_to(file)
    except OSError:
        shutil.copy2(file, to)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk, if the system supports it."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# -- checksums


def file_digest(path: Path) -> str:
    checksum = xxhash.xxh3_64()
    with path.open("rb", buffering=0) as file:
        while data := file.read(_READ_AT_ONCE):
            checksum.update(data)
    return checksum.hexdigest()


@dataclass(slots=True)
class Verified:
    """The files and blocks that this process has already compared with their checksums, so that it does so once."""

    files: set[tuple[int, int, int, str]] = field(default_factory=set)
    blocks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def check_files(self, folder: Path, digests: Mapping[str, str]) -> None:
        """Raise Damaged, derived, unless a folder has these files with these checksums."""
        for name, expected in digests.items():
            path = folder / name
            try:
                found = path.stat()
                key = (found.st_dev, found.st_ino, found.st_size, expected)
                if key not in self.files and file_digest(path) != expected:
                    raise Damaged(path, "does not match its checksum", derived=True)
            except FileNotFoundError as error:
                raise Damaged(path, "is missing", derived=True) from error
            self.files.add(key)

    def of_blocks(self, name: str, count: int) -> NDArray[np.bool_]:
        """Which blocks of a file have been compared. The caller marks there those that it compares."""
        known = self.blocks.get(name, np.zeros(0, np.bool_))
        if len(known) < count:
            known = np.r_[known, np.zeros(count - len(known), np.bool_)]
            self.blocks[name] = known
        return known


# -- opening the database


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is broken, and not just unusable now (no space, no permission, another writer)."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return True
    others = "BUSY LOCKED NOMEM READONLY INTERRUPT IOERR FULL CANTOPEN PROTOCOL PERM AUTH".split()
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in {
        getattr(sqlite3, f"SQLITE_{name}") for name in others
    }


def is_forbidden(error: sqlite3.Error | OSError) -> bool:
    """Whether the folder is read-only, or the user lacks a permission."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=30, isolation_level=None, check_same_thread=False
    )


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the database, even in a read-only folder, where SQLite can't create the files that readers share."""
    wal = path.with_name(f"{path.name}-wal")
    modes = ["mode=rw", "mode=ro"]
    if not wal.exists() or wal.stat().st_size == 0:
        modes.append("immutable=1")  # nobody who could write it does; only without a WAL is this the whole of it
    for mode in modes:
        connection = connect(path, mode)
        try:
            connection.execute("SELECT 1 FROM meta").fetchone()
            return connection
        except sqlite3.DatabaseError as error:
            connection.close()
            if not isinstance(error, sqlite3.OperationalError) or mode == modes[-1] or is_damage(error):
                raise
    raise AssertionError("unreachable")


# -- documents as the store keeps them, and its records about its other files

DOCUMENTS = ""
"""The name of the BM25 index of whole documents. Those of units have the names of their granularities."""
SPARSE = "sparse"
"""The name of the field of sparse vectors."""
UNIT_BITS = 24
"""A unit's id is the seq of its document followed by the unit's number in so many bits."""


def unit_id(seq: int, number: int) -> int:
    """The id of a unit in the indices. The seq of its document is `unit_id >> UNIT_BITS`."""
    return seq << UNIT_BITS | number


def unit_vectors(granularity: str) -> str:
    """The name of the field of the vectors of units."""
    return f"units {granularity}"


def vector_fields(layout: Layout) -> dict[str, tuple[int, int]]:
    """All fields of vectors: how many values a row has, and `UNIT_BITS` for vectors of units or 0 for others."""
    fields = {name: (one.embedding.dimensions, 0) for name, one in layout.dense.items()}
    for name, units in layout.units.items():
        if units.embedding is not None:
            fields[unit_vectors(name)] = units.embedding.dimensions, UNIT_BITS
    return fields | ({SPARSE: (2, 0)} if layout.sparse is not None else {})


def vectors_of(entry: Entry, seq: int) -> dict[str, tuple[Sequence[int], NDArray[np.float32]]]:
    """A document's rows by field: the owner of each (the document's seq or a unit's id), and their values."""
    found: dict[str, tuple[Sequence[int], list[Vector]]] = {}
    for name, passages in entry.passages.items():
        found[name] = [seq] * len(passages), [passage.vector for passage in passages]
    for name, units in entry.units.items():
        rows = {unit_id(seq, one.unit.number): one.vector for one in units if one.vector is not None}
        found[unit_vectors(name)] = list(rows), list(rows.values())
    made = {name: (owners, np.stack(rows)) for name, (owners, rows) in found.items() if rows}
    if entry.sparse is not None and len(entry.sparse.ids):
        tokens = np.stack([entry.sparse.ids, entry.sparse.weights], axis=1).astype(np.float32)
        made[SPARSE] = [seq] * len(tokens), tokens
    return made


@dataclass(frozen=True, slots=True)
class Words:
    """A BM25 index: its folder, the checksums of its files, and what it covers.

    It has the documents up to the seq `last`, without those in the first `gone` rows of the table of removed ones.
    """

    folder: str
    files: Mapping[str, str]
    last: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A field's file of vectors: how many of its rows are in use, and in how many blocks."""

    file: str
    rows: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """A block of a file of vectors: its first row, the owner of each row (a seq or a unit's id), its checksum."""

    first: int
    owners: NDArray[np.int64]
    digest: bytes


@dataclass(frozen=True, slots=True)
class Counts:
    """`highest` is the highest seq so far. `gone` seqs are of removed documents, noted in `rows` rows.

    `ids` is a checksum over the ids of all documents.
    """

    highest: int = 0
    gone: int = 0
    rows: int = 0
    ids: int = 0


# -- documents


def id_sum(seq: int, id_: str) -> int:
    """Returns the value that a document adds to the checksum over all ids."""
    return xxhash.xxh3_64_intdigest(id_.encode("utf-8", "surrogateescape"), seq)


def packed_units(entry: Entry) -> Mapping[str, Sequence[tuple[int, int]]]:
    """The units of a document as JSON values: where each begins and ends in the text."""
    return {name: [(one.unit.start, one.unit.end) for one in units] for name, units in entry.units.items() if units}


def unpacked_units(granularity: str, text: str, packed: str) -> tuple[Unit, ...]:
    """One granularity of a document with this text, from the JSON of `packed_units`."""
    places = json.loads(packed).get(granularity, ())
    return tuple(Unit(granularity, number, start, end, text[start:end]) for number, (start, end) in enumerate(places))
