"""Creating and opening the database of a local store."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from ...core.errors import InvalidData
from ...core.layout import Layout
from .files import UNBORN, mark, new_name, sync_folder
from .records import Counts, SparseState, VectorFile, Words, vector_fields

FORMAT = "1"

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, mark BLOB NOT NULL) WITHOUT ROWID;
-- seq grows with every write and is never reused: an updated document gets a new one. head, body and cut are the
-- checksums of the columns before them. units has the places of the units in the text, by granularity.
CREATE TABLE documents (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, digest TEXT NOT NULL, published TEXT, metadata TEXT NOT NULL,
    head BLOB NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL, additional TEXT NOT NULL, body BLOB NOT NULL,
    units TEXT NOT NULL, cut BLOB NOT NULL
);
CREATE UNIQUE INDEX documents_by_id ON documents (id);
-- The seqs of documents that were removed or replaced. Their vectors and sparse lists no longer count.
CREATE TABLE gone (number INTEGER PRIMARY KEY, seqs BLOB NOT NULL, mark BLOB NOT NULL);
-- Blocks of rows of a field's file of vectors: the owner of each row (int64), and the checksum of the block.
CREATE TABLE vectors (
    field TEXT NOT NULL, number INTEGER NOT NULL, first INTEGER NOT NULL, owners BLOB NOT NULL, digest BLOB NOT NULL,
    mark BLOB NOT NULL, PRIMARY KEY (field, number)
) WITHOUT ROWID;
-- Sparse vectors of several documents: seqs and how many tokens each has (int64), token ids (int32), weights (float32).
CREATE TABLE sparse (
    number INTEGER PRIMARY KEY, seqs BLOB NOT NULL, lengths BLOB NOT NULL, ids BLOB NOT NULL, weights BLOB NOT NULL,
    mark BLOB NOT NULL
);
-- Digests of the files whose documents are all stored unchanged.
CREATE TABLE ingested (source TEXT PRIMARY KEY) WITHOUT ROWID;
"""


def format_without_checksums(connection: sqlite3.Connection) -> str | None:
    """The format of a store from before there were checksums; None for any other."""
    with contextlib.suppress(sqlite3.Error):
        columns = [row[1] for row in connection.execute("PRAGMA table_info(meta)")]
        row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        if "mark" not in columns and row is not None:
            return f"{row[0]}, without checksums"
    return None


def other_version(folder: Path, found: str) -> InvalidData | None:
    """Returns the error about a store whose format this version does not read; None for its own format."""
    if found == FORMAT:
        return None
    return InvalidData(
        f"the store {folder} was made by another version of ccheck (format {found}; this one reads {FORMAT}). Ingest "
        f"into another store, or delete this one (ccheck index delete --store {folder}) and ingest again"
    )


def create(path: Path, layout: Layout, words: Mapping[str, Words]) -> None:
    """Create a database without documents: all of it, or nothing.

    Removes what a killed creation left. Only the one writer may call this.
    """
    unborn = path.with_name(UNBORN)
    for name in (UNBORN, f"{UNBORN}-journal", f"{UNBORN}-wal", f"{UNBORN}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    os.close(os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    unborn.chmod(0o600)
    connection = _connect(unborn, "mode=rw")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        files = {name: asdict(VectorFile(new_vector_file())) for name in vector_fields(layout)}
        start = {
            "format": FORMAT,
            "id": uuid.uuid4().hex,
            "generation": "0",
            "layout": json.dumps(layout.to_dict()),
            "counts": json.dumps(asdict(Counts())),
            "words": json.dumps({name: asdict(one) for name, one in words.items()}),
            "vectors": json.dumps(files),
            "sparse": json.dumps(asdict(SparseState())),
        }
        rows = ((key, value, mark(key, value)) for key, value in start.items())
        connection.executemany("INSERT INTO meta VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    unborn.replace(path)
    sync_folder(path.parent)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is broken, and not just unusable now (no space, no permission, another writer)."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return True
    other = {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    }
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in other


def new_vector_file() -> str:
    return f"{new_name('vectors')}.f32"


def identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _connect(path: Path, mode: str) -> sqlite3.Connection:
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
        connection = _connect(path, mode)
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
