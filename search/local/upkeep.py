"""Keeping a local store's derived files in step with its documents: creating, updating, checking, rebuilding them.

Only the one writer may call these functions, except `check`. The order is always: write files, name them in the
database, remove files that it no longer names. A crash in between leaves unnamed files, which the next writer removes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.layout import Layout
from . import bm25, vectors
from .bm25 import TextFields
from .database import FORMAT, Database, mark
from .files import (
    DATABASE,
    DOCUMENTS,
    SPARSE,
    UNBORN,
    Counts,
    Damaged,
    VectorBlock,
    VectorFile,
    Verified,
    Words,
    connect,
    file_digest,
    is_damage,
    new_name,
    new_vector_file,
    share,
    sweep,
    sync_folder,
    unit_id,
    unpacked_units,
    vector_fields,
)
from .snapshot import open_vectors, open_words

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, mark BLOB NOT NULL) WITHOUT ROWID;
-- seq grows with every write and is never reused: an updated document gets a new one. head and body are the
-- checksums of the columns before them. units has the places of the units in the text, by granularity,
-- and pages those at which pages begin.
CREATE TABLE documents (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, digest TEXT NOT NULL, published TEXT, metadata TEXT NOT NULL,
    head BLOB NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL, additional TEXT NOT NULL, units TEXT NOT NULL,
    pages TEXT NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX documents_by_id ON documents (id);
-- The seqs of documents that were removed or replaced. Their vectors no longer count.
CREATE TABLE gone (number INTEGER PRIMARY KEY, seqs BLOB NOT NULL, mark BLOB NOT NULL);
-- Blocks of rows of a field's file of vectors: their owners, and how many rows each has (int64), and the checksum of
-- the block.
CREATE TABLE vectors (
    field TEXT NOT NULL, number INTEGER NOT NULL, first INTEGER NOT NULL, owners BLOB NOT NULL, digest BLOB NOT NULL,
    mark BLOB NOT NULL, PRIMARY KEY (field, number)
) WITHOUT ROWID;
"""

ROWS_COPIED = 65_536
ALWAYS_SETTLED, SETTLED_FROM = 50_000, 0.001
"""BM25 statistics are always exact up to so many documents or units; above, once this share has been removed."""


def create_store(folder: Path, layout: Layout) -> None:
    """Create an empty store in a folder without one: all of it, or nothing. Removes what a killed creation left."""
    sweep(folder, [])
    nothing = np.zeros(0, np.int64)
    words = {name: _write_words(folder, TextFields.of(layout, name), [], nothing, None) for name in words_of(layout)}
    unborn = folder / UNBORN
    for name in (UNBORN, f"{UNBORN}-journal", f"{UNBORN}-wal", f"{UNBORN}-shm"):
        (folder / name).unlink(missing_ok=True)
    os.close(os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    unborn.chmod(0o600)
    connection = connect(unborn, "mode=rw")
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
        }
        rows = ((key, value, mark(key, value)) for key, value in start.items())
        connection.executemany("INSERT INTO meta VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    unborn.replace(folder / DATABASE)
    sync_folder(folder)


def words_of(layout: Layout) -> list[str]:
    """The names of a store's BM25 indices."""
    return [DOCUMENTS, *layout.units]


def mend(database: Database, folder: Path, verified: Verified) -> None:
    """Remove what a crash left, and rebuild derived files that are not as they were written."""
    sweep(folder, database.named_files())
    broken = []
    for name, words in database.words.items():
        try:
            verified.check_files(folder / words.folder, words.files)
        except Damaged:
            broken.append(name)
    if broken:
        rebuild_words(database, folder, broken)


def catch_up(database: Database, folder: Path, verified: Verified) -> None:
    """Bring the BM25 indices up to date with the documents."""
    made, broken = {}, []
    for name in database.behind():
        words = database.words[name]
        try:
            verified.check_files(folder / words.folder, words.files)
            made[name] = _next_words(database, folder, name, database.layout, words)
        except (Damaged, OSError) as error:
            if isinstance(error, Damaged) and not error.derived:
                raise
            broken.append(name)
    if made:
        with database.writing():
            database.set_words(made)
            database.touch()
        sweep(folder, database.named_files())
    if broken:
        rebuild_words(database, folder, broken)


def settle(database: Database, folder: Path) -> None:
    """Rebuild the BM25 indices whose statistics still include removed documents.

    tantivy includes them until it merges their segment, which nothing forces it to do: scores were off by up to .14. In
    a large store this waits until enough documents have been removed.
    """
    stale = []
    for name, words in database.words.items():
        removed, others = bm25.removed_in(folder / words.folder)
        if removed and (others <= ALWAYS_SETTLED or removed >= others * SETTLED_FROM):
            stale.append(name)
    if stale:
        rebuild_words(database, folder, stale)


def code(database: Database, folder: Path, verified: Verified) -> None:
    """Write the codes of large fields that are missing. Raises Damaged."""
    for name, file in database.vector_files().items():
        if name != SPARSE and file.rows >= vectors.LEAST_ROWS:
            vectors.write_codes(open_vectors(database, folder, name, database.alive(), verified).blocks)


def rebuild(database: Database, folder: Path, verified: Verified) -> None:
    """Rebuild everything that is derived, and drop what files still have of removed documents."""
    for name in database.vector_files():
        _pack_vectors(database, folder, name, verified)
    with database.writing():
        database.join_gone()
        database.touch()
    rebuild_words(database, folder, words_of(database.layout))
    code(database, folder, verified)


def adopt(database: Database, folder: Path, layout: Layout, reading: Sequence[str] = ()) -> None:
    """Change the store's layout, create the indices that the new one needs, and note what an ingest is to read."""
    if reading:
        noted = json.loads(database.meta("reading", "[]"))
        database.set_meta(reading=json.dumps(list(dict.fromkeys([*noted, *reading]))))
    old, known = database.layout, database.words
    names = words_of(layout)
    new = [name for name in names if name not in known or TextFields.of(old, name) != TextFields.of(layout, name)]
    if new:
        rebuild_words(database, folder, new, layout)
    elif old != layout:
        with database.writing():
            database.set_layout(layout)
            database.touch()


def rebuild_words(database: Database, folder: Path, names: Iterable[str], layout: Layout | None = None) -> None:
    """Rebuild these BM25 indices. A new `layout` becomes the store's in the same transaction."""
    made = {name: _next_words(database, folder, name, layout or database.layout, None) for name in names}
    with database.writing():
        if layout is not None:
            database.set_layout(layout)
        database.set_words(made)
        database.touch()
    sweep(folder, database.named_files())


def _next_words(database: Database, folder: Path, name: str, layout: Layout, old: Words | None) -> Words:
    """Write a BM25 index that has all documents: anew, or with what came and went since the `old` one."""
    fields, counts = TextFields.of(layout, name), database.counts
    since, gone = (old.last, old.gone) if old is not None else (0, counts.rows)
    added, removed = _rows_after(database, since, name, fields), database.gone(gone)
    before = folder / old.folder if old is not None else None
    written = _write_words(folder, fields, added, removed[removed <= since], before)
    return replace(written, last=counts.highest, gone=counts.rows)


def _rows_after(database: Database, seq: int, name: str, fields: TextFields) -> Iterator[bm25.Row]:
    """The rows of a BM25 index for the documents above `seq`."""
    for number, title, text, additional, units in database.texts_after(seq):
        if name == DOCUMENTS:
            yield fields.document_row(number, title, text, json.loads(additional) if fields.additional else [])
        else:
            for unit in unpacked_units(name, text, units):
                yield {"seq": unit_id(number, unit.number), "document": number, "content": unit.text}


def check(database: Database, folder: Path) -> list[Damaged]:
    """Compare everything with its checksum. Returns the first damage of each file."""
    found: list[Damaged] = []
    verified = Verified()

    @contextmanager
    def noting() -> Iterator[None]:
        try:
            yield
        except Damaged as error:
            found.append(error)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            found.append(Damaged(database.path, f"is broken: {error}"))

    with noting():
        found.extend(Damaged(database.path, f"is broken: {problem}") for problem in database.quick_check())
    with noting():
        database.check_all()
    with noting():
        for name in database.words:
            with noting():
                open_words(database, folder, name, verified)
    with noting():
        for name in database.vector_files():
            with noting():
                blocks = open_vectors(database, folder, name, database.alive(), verified).blocks
                blocks.check_all()
                if name != SPARSE:
                    vectors.check_codes(blocks)
    return list({str(error): error for error in found}.values())


def _write_words(
    folder: Path, fields: TextFields, added: Iterable[bm25.Row], removed: NDArray[np.int64], old: Path | None
) -> Words:
    """Write a new BM25 index, complete and on the disk. The database does not name it yet."""
    made = folder / new_name("bm25")
    try:
        bm25.write(made, fields, added, removed.tolist(), old)
    except Damaged as error:
        if error.where == made:  # a new folder can't be damaged: the disk is full, or the like
            raise OSError(error.problem) from error
        raise
    share(made, folder)
    files = [file for file in made.iterdir() if file.suffix != ".lock"]
    for file in files:
        share(file, folder)
    sync_folder(made)
    return Words(made.name, {file.name: file_digest(file) for file in files})


def _pack_vectors(database: Database, folder: Path, name: str, verified: Verified) -> None:
    """Rewrite the file of a field's vectors without those of removed documents."""
    index = open_vectors(database, folder, name, database.alive(), verified)
    index.blocks.check_all()
    owners = index.owner_of_rows()
    kept = np.flatnonzero(owners >= 0)
    file, blocks = new_vector_file(), list[VectorBlock]()
    for first in range(0, len(kept), ROWS_COPIED):
        rows = kept[first : first + ROWS_COPIED]
        blocks += vectors.write_rows(folder / file, first, index.rows[rows], owners[rows])
    with database.writing():
        database.replace_vectors(name, file, blocks)
        database.touch()
