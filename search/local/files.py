"""The files of a local store: which names are ccheck's, who may read them, and their checksums.

The checksums are XXH3 (64 bits), which is as fast as memory. They detect damage, not forgery.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np
import xxhash
from numpy.typing import NDArray

from ...core.errors import InvalidData

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
        except sqlite3.OperationalError as error:
            connection.close()
            if mode == modes[-1] or is_damage(error):
                raise
        except sqlite3.DatabaseError:
            connection.close()
            raise
        else:
            return connection
    raise AssertionError("unreachable")
