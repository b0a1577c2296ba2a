"""The truth of a local store: one SQLite file. The indices follow it, and it addresses the files of vectors.

Every row has a checksum (`mark`), which is compared when the row is read. Nothing can disappear unnoticed: each seq
from 1 to the highest is that of a document or noted as gone, and other tables number their rows without gaps.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from ...core.errors import InvalidData
from ...core.layout import Layout
from ...core.types import Document, Entry, Filter, Unit
from ..filters import Kind, as_number, refuse_ordered_ids
from .files import (
    Counts,
    Damaged,
    VectorBlock,
    VectorFile,
    Words,
    connect_to_read,
    id_sum,
    is_damage,
    new_vector_file,
    packed_units,
    unpacked_units,
    vector_fields,
)
from .filtering import condition, kinds
from .vectors import codes_file

FORMAT = "3"
_HEAD = "seq, id, digest, published, metadata, head"
_BODY = "seq, title, text, additional, units, pages, body"
_INTS = np.dtype("<i8")
_TO_64_BITS = 2**64 - 1


class Database:
    """One connection, for one thread at a time. All methods raise Damaged for rows that are not as written."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidData if the file is not a store of this format."""
        self.path = path
        self._kinds: tuple[int, dict[str, Kind]] | None = None
        self._layout: tuple[str, Layout] | None = None
        self._checked: set[str] = set()
        try:
            self._connection = connect_to_read(path)
            self._connection.create_function("as_number", 1, as_number, deterministic=True)  # which conditions call
            self.identity = identity(path)
            # Each commit syncs the log, so that a finished write survives a loss of power.
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA cell_size_check = ON")
            self._connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            found = self.meta("format")
        except (sqlite3.Error, Damaged) as error:
            if hasattr(self, "_connection"):
                self._connection.close()
            if isinstance(error, sqlite3.Error) and not is_damage(error):
                raise
            said = error.problem if isinstance(error, Damaged) else str(error)
            raise Damaged(path, f"can't be read as a store: {said}") from error
        if found != FORMAT:
            self._connection.close()
            raise InvalidData(
                f"the store {path.parent} was made by another version of ccheck (format {found}; this one reads "
                f"{FORMAT}). Ingest into another store, or delete this one (ccheck index delete --store {path.parent}) "
                "and ingest again"
            )

    def close(self) -> None:
        self._connection.close()

    @property
    def in_place(self) -> bool:
        """Whether the open file is still the one at its path."""
        return identity(self.path) == self.identity

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction: all writes in it happen, or none."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A transaction in which everything is read as of one moment."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    # -- what the store remembers of itself

    def meta(self, key: str, default: str | None = None) -> str:
        row = self._connection.execute("SELECT value, mark FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None and default is not None:
            return default
        if row is None:
            raise self._damaged(f"has lost its note on {key}")
        self._compare(row[1], key, row[0], what=f"its note on {key}")
        return str(row[0])

    def set_meta(self, **values: str) -> None:
        rows = ((key, value, mark(key, value)) for key, value in values.items())
        self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", rows)

    @property
    def layout(self) -> Layout:
        said = self.meta("layout")
        if self._layout is None or self._layout[0] != said:
            self._layout = said, Layout.from_dict(json.loads(said))
        return self._layout[1]

    def set_layout(self, layout: Layout) -> None:
        """Change the layout. New fields have no vectors yet."""
        self.set_meta(layout=json.dumps(layout.to_dict()))
        known = self.vector_files()
        files = {name: known.get(name) or VectorFile(new_vector_file()) for name in vector_fields(layout)}
        self._set("vectors", files)

    @property
    def state(self) -> str:
        """Changes whenever the content does, and differs between stores."""
        return f"{self.meta('id')}-{self.generation}"

    @property
    def generation(self) -> int:
        """Grows with every change. What was read at one generation is valid until the next."""
        return int(self.meta("generation"))

    def touch(self) -> None:
        self.set_meta(generation=str(self.generation + 1))

    @property
    def counts(self) -> Counts:
        return Counts(**self._get("counts"))

    @property
    def words(self) -> dict[str, Words]:
        """The BM25 indices: that of documents (`DOCUMENTS`) and that of each granularity."""
        return {name: Words(**one) for name, one in self._get("words").items()}

    def set_words(self, words: Mapping[str, Words]) -> None:
        self._set("words", {**self.words, **words})

    def behind(self) -> list[str]:
        """The BM25 indices that lack documents, or still have some that are gone."""
        counts = self.counts
        now = counts.highest, counts.rows
        return [name for name, one in self.words.items() if (one.last, one.gone) != now]

    def vector_files(self) -> dict[str, VectorFile]:
        """Each field's file of vectors."""
        return {name: VectorFile(**one) for name, one in self._get("vectors").items()}

    def named_files(self) -> list[str]:
        """The files and folders that belong to the store, beside the database."""
        vectors = [one.file for one in self.vector_files().values()]
        return [*(one.folder for one in self.words.values()), *vectors, *map(codes_file, vectors)]

    def _get(self, key: str) -> Any:
        return json.loads(self.meta(key))

    def _set(self, key: str, value: Any) -> None:
        self.set_meta(**{key: json.dumps(value, default=asdict)})

    # -- documents

    def count(self) -> int:
        counts = self.counts
        return counts.highest - counts.gone

    def alive(self) -> NDArray[np.bool_]:
        """alive[seq]: whether the document exists."""
        alive = np.ones(self.counts.highest + 1, np.bool_)
        alive[0] = False
        alive[self.gone()] = False
        return alive

    def count_after(self, seq: int) -> int:
        return int(np.count_nonzero(self.alive()[seq + 1 :]))

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        return {row[1]: row[2] for row in self._heads(ids)}

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        by_seq = self.documents_by_seq([row[0] for row in self._heads(ids)])
        return {document.id: document for document in by_seq.values()}

    def documents_by_seq(self, seqs: Sequence[int]) -> dict[int, Document]:
        rows = self._select(f"SELECT {_HEAD}, {_BODY} FROM documents WHERE seq IN", seqs)
        return {row[0]: self._document(row) for row in rows}

    def units(self, granularity: str, ids: Sequence[str]) -> dict[str, tuple[Unit, ...]]:
        """The units of documents, by id."""
        seqs = {row[0]: row[1] for row in self._heads(ids)}
        rows = map(self._body, self._select(f"SELECT {_BODY} FROM documents WHERE seq IN", list(seqs)))
        return {seqs[seq]: unpacked_units(granularity, text, units) for seq, _, text, _, units in rows}

    def ids_by_seq(self, seqs: Sequence[int]) -> dict[int, str]:
        rows = self._select(f"SELECT {_HEAD} FROM documents WHERE seq IN", seqs)
        return {seq: id_ for seq, id_, *_ in map(self._head, rows)}

    def ids(self) -> dict[int, str]:
        """The ids of all documents, read from the index on ids alone."""
        rows = self._connection.execute(
            "SELECT id, seq FROM documents INDEXED BY documents_by_id ORDER BY id"
        ).fetchall()
        total, before = 0, ""
        for id_, seq in rows:
            if not isinstance(id_, str) or id_ < before or not isinstance(seq, int):
                raise self._damaged("has a broken index of ids")
            total, before = total + id_sum(seq, id_), id_
        if total & _TO_64_BITS != self.counts.ids or len(rows) != self.count():
            raise self._damaged("has a broken index of ids")
        return {seq: id_ for id_, seq in rows}

    def texts_after(self, seq: int) -> Iterator[tuple[int, str, str, str, str]]:
        """(seq, title, text, additional texts, units) of all documents above `seq`, in order; the last two as JSON."""
        expected, found = self.count_after(seq), 0
        for row in self._connection.execute(f"SELECT {_BODY} FROM documents WHERE seq > ? ORDER BY seq", (seq,)):
            found += 1
            yield self._body(row)
        if found != expected:
            raise self._damaged(f"has lost {abs(expected - found)} of its documents")

    def add(self, entries: Sequence[Entry], blocks: Mapping[str, Sequence[VectorBlock]]) -> None:
        """Store documents with the next seqs. Their vectors are in these blocks of each field's file."""
        self.remove([entry.document.id for entry in entries])
        counts = self.counts
        ids_sum = counts.ids
        for seq, entry in enumerate(entries, counts.highest + 1):
            document = entry.document
            metadata = json.dumps(dict(document.metadata), ensure_ascii=False, separators=(",", ":"))
            additional = json.dumps(list(entry.additional), ensure_ascii=False)
            head = (seq, document.id, entry.digest, document.published, metadata)
            units, pages = json.dumps(packed_units(entry)), json.dumps(document.pages)
            body = (document.title, document.text, additional, units, pages)
            self._connection.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*head, mark(*head), *body, mark(seq, *body)),
            )
            ids_sum += id_sum(seq, document.id)
        for name, some in blocks.items():
            self._add_blocks(name, some)
        highest = counts.highest + len(entries)
        self._set("counts", Counts(highest, counts.gone, counts.rows, ids_sum & _TO_64_BITS))
        self.touch()

    def remove(self, ids: Sequence[str]) -> int:
        removed = [(row[0], row[1]) for row in self._heads(ids)]
        if not removed:
            return 0
        seqs = sorted(seq for seq, _ in removed)
        self._connection.executemany("DELETE FROM documents WHERE seq = ?", ((seq,) for seq in seqs))
        counts = self.counts
        self._add_gone(counts.rows, seqs)
        ids_sum = counts.ids - sum(id_sum(seq, id_) for seq, id_ in removed)
        self._set("counts", Counts(counts.highest, counts.gone + len(seqs), counts.rows + 1, ids_sum & _TO_64_BITS))
        self.touch()
        return len(seqs)

    def gone(self, first: int = 0) -> NDArray[np.int64]:
        """The seqs of removed documents, as noted in the rows from `first` on."""
        found = [np.zeros(0, _INTS)]
        count = self.counts.rows - first
        for number, seqs, made in self._rows("SELECT number, seqs, mark FROM gone WHERE number >= ?", first, count):
            self._compare(made, number, seqs, what="a note of removed documents")
            found.append(np.frombuffer(seqs, _INTS))
        return np.concatenate(found)

    def _add_gone(self, number: int, seqs: Sequence[int] | NDArray[np.int64]) -> None:
        packed = np.asarray(seqs, _INTS).tobytes()
        self._connection.execute("INSERT INTO gone VALUES (?, ?, ?)", (number, packed, mark(number, packed)))

    def join_gone(self) -> None:
        """Put all seqs that are gone into one row. The BM25 indices must know them all."""
        seqs = np.sort(self.gone())
        self._connection.execute("DELETE FROM gone")
        self._add_gone(0, seqs)
        counts = self.counts
        self._set("counts", Counts(counts.highest, counts.gone, 1, counts.ids))

    def _heads(self, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """The heads of the documents with these ids. It is certain that others do not exist."""
        rows = [self._head(row) for row in self._select(f"SELECT {_HEAD} FROM documents WHERE id IN", ids)]
        if len(rows) < len(set(ids)) and "ids" not in self._checked:
            self.ids()
            self._checked.add("ids")
        return rows

    def _head(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self._compare(row[-1], *row[:-1], what=f"the document {row[0]}")
        return row

    def _body(self, row: tuple[Any, ...]) -> tuple[int, str, str, str, str]:
        self._compare(row[-1], *row[:-1], what=f"the text of the document {row[0]}")
        seq, title, text, additional, units = row[:5]
        return seq, title, text, additional, units

    def _document(self, row: tuple[Any, ...]) -> Document:
        """The document in the columns of the head and the body."""
        _, id_, _, published, metadata = self._head(row[:6])[:5]
        _, title, text, *_ = self._body(row[6:])
        return Document(id_, title, text, json.loads(metadata), published, tuple(json.loads(row[-2])))

    # -- vectors

    def vector_blocks(self, name: str) -> list[VectorBlock]:
        """The blocks of a field's file of vectors, in order."""
        query = "SELECT number, first, owners, digest, mark FROM vectors WHERE field = ? AND number >= ?"
        file, blocks, row_count = self.vector_files()[name], [], 0
        for number, first, owners, made, own in self._rows(query, 0, file.blocks, name):
            self._compare(own, name, number, first, owners, made, what="a note of vectors")
            whose, rows = np.frombuffer(owners, _INTS).reshape(2, -1)
            blocks.append(VectorBlock(first, np.repeat(whose, rows), made))
            row_count += len(blocks[-1].owners)
        if row_count != file.rows:
            raise self._damaged("has lost notes of vectors")
        return blocks

    def replace_vectors(self, name: str, file: str, blocks: Sequence[VectorBlock]) -> None:
        """Replace the file of a field's vectors."""
        self._connection.execute("DELETE FROM vectors WHERE field = ?", (name,))
        self._set("vectors", self.vector_files() | {name: VectorFile(file)})
        self._add_blocks(name, blocks)

    def _add_blocks(self, name: str, blocks: Sequence[VectorBlock]) -> None:
        files = self.vector_files()
        before = files[name]
        for number, block in enumerate(blocks, before.blocks):
            runs = np.flatnonzero(np.r_[True, block.owners[1:] != block.owners[:-1]])
            owners = np.stack([block.owners[runs], np.diff(np.r_[runs, len(block.owners)])]).astype(_INTS)
            row = (name, number, block.first, owners.tobytes(), block.digest)
            self._connection.execute("INSERT INTO vectors VALUES (?, ?, ?, ?, ?, ?)", (*row, mark(*row)))
        rows = before.rows + sum(len(block.owners) for block in blocks)
        self._set("vectors", files | {name: VectorFile(before.file, rows, before.blocks + len(blocks))})

    # -- filters

    def passing(self, filters: Sequence[Filter]) -> list[int]:
        """The seqs of the documents that pass all filters."""
        refuse_ordered_ids(filters)
        self.check_heads()
        conditions, values = [], []
        for filter_ in filters:
            sql, parameters = condition(filter_)
            conditions.append(sql)
            values += parameters
        query = f"SELECT seq FROM documents WHERE {' AND '.join(conditions)}"
        return [row[0] for row in self._connection.execute(query, values)]

    def field_kinds(self) -> dict[str, Kind]:
        """The fields for filters, see `Store.fields`. Reads the metadata of all documents, once in a generation."""
        generation = self.generation
        if self._kinds is None or self._kinds[0] != generation:
            heads = self._connection.execute(f"SELECT {_HEAD} FROM documents")
            self._kinds = generation, kinds((row[3], row[4]) for row in map(self._head, heads))
        return self._kinds[1]

    # -- damage

    def check_heads(self) -> None:
        """Compare the heads of all documents, which filters read, with their checksums, once."""
        if "heads" in self._checked:
            return
        found = sum(1 for row in self._connection.execute(f"SELECT {_HEAD} FROM documents") if self._head(row))
        if found != self.count():
            raise self._damaged(f"has lost {abs(self.count() - found)} of its documents")
        self._checked.add("heads")

    def quick_check(self) -> list[str]:
        """Returns the problems that SQLite's own check finds."""
        return [row[0] for row in self._connection.execute("PRAGMA quick_check(5)") if row[0] != "ok"]

    def check_all(self) -> None:
        """Compare everything with its checksum, even if that was done before."""
        self._checked.clear()
        for key in ("format", "id", "generation", "layout", "counts", "words", "vectors"):
            self.meta(key)
        self.check_heads()
        self.ids()
        for _ in self.texts_after(0):
            pass
        for name in self.vector_files():
            self.vector_blocks(name)

    def _damaged(self, problem: str) -> Damaged:
        return Damaged(self.path, problem)

    def _compare(self, expected: object, *values: Any, what: str) -> None:
        with contextlib.suppress(TypeError):
            if mark(*values) == expected:
                return
        raise self._damaged(f"does not match its checksum at {what}")

    def _rows(self, query: str, first: int, count: int, *named: str) -> Iterator[tuple[Any, ...]]:
        """`count` rows, numbered from `first` without a gap. The query's first column is the number."""
        expected = first
        for row in self._connection.execute(f"{query} ORDER BY number LIMIT ?", (*named, first, max(0, count))):
            if row[0] != expected:
                break
            expected += 1
            yield row
        if expected != first + count:
            raise self._damaged("has lost rows that it had")

    def _select(self, query: str, keys: Sequence[str] | Sequence[int]) -> list[Any]:
        """The rows with these keys. One JSON parameter avoids SQLite's limit on the number of parameters."""
        return self._connection.execute(
            f"{query} (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)
        ).fetchall()


def identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def mark(*values: str | int | bytes | None) -> bytes:
    """The checksum of a row of the database. Raises TypeError for a value that no row can have."""
    parts = [b""]
    for value in values:
        if isinstance(value, str):
            parts.append(value.encode("utf-8", "surrogateescape"))
        elif isinstance(value, bytes):
            parts.append(value)
        elif isinstance(value, int):
            parts.append(b"%d" % value)
        elif value is None:
            parts.append(b"\xff")
        else:
            raise TypeError(f"{type(value)} can't be in a row")
    parts[0] = repr([len(part) for part in parts]).encode()
    return xxhash.xxh3_64_digest(b"".join(parts))
