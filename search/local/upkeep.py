"""What keeps a local store's derived files as its documents are: made, brought up to them, checked, made anew.

All of it is the one writer's, but for `check`. The order is always: write files, name them in the database, remove what
it no longer names; a crash in between leaves files that nobody names, which the next writer removes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...layout import Layout
from . import bm25, sparse, vectors
from .bm25 import Bm25Index, TextFields
from .database import Database
from .files import DATABASE, Damaged, Verified, file_digest, new_name, share, sweep, sync_folder
from .opening import create, is_damage
from .records import VectorBlock, Words
from .snapshot import open_vectors
from .sparse import Segment

ROWS_COPIED = 65_536
ALWAYS_SETTLED, SETTLED_FROM = 50_000, 0.001
"""Up to so many documents the statistics of words are always exact; in larger stores once this share was removed."""


def create_store(folder: Path, layout: Layout) -> None:
    """Make a store without documents in a folder that has none. What a creation that was killed left is removed."""
    sweep(folder, [])
    words = _write_words(folder, TextFields.of(layout), [], np.zeros(0, np.int64), None)
    create(folder / DATABASE, layout, words)


def open_words(database: Database, folder: Path, verified: Verified) -> Bm25Index:
    """The index of words that the database names. Raises Damaged, derived, where it is not as it was written."""
    words = database.words
    verified.check_files(folder / words.folder, words.files)
    return Bm25Index(folder / words.folder, TextFields.of(database.layout))


def mend(database: Database, folder: Path, verified: Verified, *, wholly: bool = False) -> None:
    """Remove what a crash left and make derived files anew that are not as they were written.

    Of sparse vectors only whether their files are there and begin rightly, unless `wholly`.
    """
    sweep(folder, database.named_files())
    sparse.sweep(folder, database.sparse.segments)
    words = database.words
    try:
        verified.check_files(folder / words.folder, words.files)
    except Damaged:
        rebuild_words(database, folder, database.layout)
    try:
        for segment in _segments(database, folder, verified):
            if wholly:
                segment.check_all()
    except Damaged:
        rebuild_sparse(database, folder, verified)


def catch_up(database: Database, folder: Path, verified: Verified) -> None:
    """Bring the indices up to the documents."""
    _catch_up_words(database, folder, verified)
    _catch_up_sparse(database, folder, verified)


def settle(database: Database, folder: Path) -> None:
    """Make the index of words anew where removed documents still count in its statistics.

    tantivy counts them until it merges their segment, and nothing makes it do so: scores were up to .14 off. In a large
    store a few of them wait for others.
    """
    removed, documents = bm25.removed_in(folder / database.words.folder), database.count()
    if removed and (documents <= ALWAYS_SETTLED or removed >= documents * SETTLED_FROM):
        rebuild_words(database, folder, database.layout)


def rebuild(database: Database, folder: Path, verified: Verified) -> None:
    """Make everything anew that is derived, and leave out what files still have of documents that are gone."""
    alive = database.alive()
    for name in database.vector_files():
        _pack_vectors(database, folder, name, verified)
    kept = (batch.without(alive) for batch in database.sparse_after(0))
    with database.writing():
        database.replace_sparse(batch for batch in kept if batch is not None)
        database.join_gone()
        database.touch()
    rebuild_words(database, folder, database.layout)
    _catch_up_sparse(database, folder, verified)
    sparse.sweep(folder, database.sparse.segments)


def rebuild_words(database: Database, folder: Path, layout: Layout) -> None:
    """An index of words with the fields of a layout, which becomes the store's in the same moment."""
    fields, counts = TextFields.of(layout), database.counts
    made = _write_words(folder, fields, database.texts_after(0, fields.additional), database.gone(counts.rows), None)
    with database.writing():
        if layout != database.layout:
            database.set_layout(layout)
        database.set_words(Words(made.folder, made.files, counts.highest, counts.rows))
        database.touch()
    sweep(folder, database.named_files())


def rebuild_sparse(database: Database, folder: Path, verified: Verified) -> None:
    with database.writing():
        database.set_segments([])
        database.touch()
    _catch_up_sparse(database, folder, verified)
    sparse.sweep(folder, database.sparse.segments)


def check(database: Database, folder: Path) -> list[Damaged]:
    """Compare everything with its checksum; what is damaged, the first place of each file."""
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
        open_words(database, folder, verified)
    with noting():
        for name in database.vector_files():
            with noting():
                index = open_vectors(database, folder, name, database.alive(), verified)
                if index.blocks is not None:
                    index.blocks.check_all()
    with noting():
        for segment in _segments(database, folder, verified):
            segment.check_all()
    return list({str(error): error for error in found}.values())


def _segments(database: Database, folder: Path, verified: Verified) -> Iterator[Segment]:
    field = database.layout.sparse
    if field is not None:
        for named in database.sparse.segments:
            yield sparse.open_segment(folder, named, field.vocabulary, verified)


def _catch_up_words(database: Database, folder: Path, verified: Verified) -> None:
    words, counts = database.words, database.counts
    if (words.last, words.gone) == (counts.highest, counts.rows):
        return
    fields = TextFields.of(database.layout)
    added, removed = database.texts_after(words.last, fields.additional), database.gone(words.gone)
    try:
        verified.check_files(folder / words.folder, words.files)
        made = _write_words(folder, fields, added, removed[removed <= words.last], folder / words.folder)
    except (Damaged, OSError) as error:
        if isinstance(error, Damaged) and not error.derived:
            raise
        rebuild_words(database, folder, database.layout)
        return
    with database.writing():
        database.set_words(Words(made.folder, made.files, counts.highest, counts.rows))
        database.touch()
    sweep(folder, database.named_files())


def _catch_up_sparse(database: Database, folder: Path, verified: Verified) -> None:
    field = database.layout.sparse
    if field is None:
        return
    before = database.sparse.segments
    after = sparse.catch_up(folder, field.vocabulary, before, database.sparse_after, verified)
    if after != list(before):
        with database.writing():
            database.set_segments(after)
            database.touch()
        sparse.sweep(folder, after)


def _write_words(
    folder: Path, fields: TextFields, added: Iterable[bm25.Row], removed: NDArray[np.int64], old: Path | None
) -> Words:
    """A new index of words, whole and on the disk, that the database does not name yet."""
    made = folder / new_name("bm25")
    try:
        bm25.write(made, fields, added, removed.tolist(), old)
    except Damaged as error:
        if error.where == made:  # a new folder is not damaged: there is no room, or the like
            raise OSError(error.problem) from error
        raise
    share(made, folder)
    files = [file for file in made.iterdir() if file.suffix != ".lock"]
    for file in files:
        share(file, folder)
    sync_folder(made)
    return Words(made.name, {file.name: file_digest(file) for file in files})


def _pack_vectors(database: Database, folder: Path, name: str, verified: Verified) -> None:
    """Another file for a field's vectors, without those of documents that are gone."""
    index = open_vectors(database, folder, name, database.alive(), verified)
    if index.blocks is not None:
        index.blocks.check_all()
    owners = index.owners()
    kept = np.flatnonzero(owners >= 0)
    file, blocks = f"{new_name(f'vectors-{name}')}.f32", []
    for first in range(0, len(kept), ROWS_COPIED):
        rows = kept[first : first + ROWS_COPIED]
        for at, count, digest in vectors.write_rows(folder / file, first, index.rows[rows]):
            blocks.append(VectorBlock(at, owners[kept[at : at + count]], digest))
    with database.writing():
        database.replace_vectors(name, file, blocks)
        database.touch()
