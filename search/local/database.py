"""The truth of a local store: one SQLite file. The BM25 index follows it; the vector file is addressed by it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import InvalidData
from ...types import Document, Entry, Passage
from ..filters import PUBLISHED, Filter, Kind, is_number
from ..store import MAIN_VECTORS, Layout
from .sparse import pack

FORMATS = ("1", "2")
"""Those that this version reads. A store is of the second from when its layout has more than text and one field of
vectors, so that a ccheck that would not keep these up to date leaves it alone."""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- seq grows with every write and is never used twice: an updated document gets a new one.
CREATE TABLE documents (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, published TEXT,
    title TEXT NOT NULL, metadata TEXT NOT NULL, text TEXT NOT NULL
);
-- row: the vector's place in the vector file.
CREATE TABLE passages (row INTEGER PRIMARY KEY, seq INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL);
CREATE INDEX passages_of ON passages (seq);
-- Documents that are gone from here and maybe not yet from the BM25 index.
CREATE TABLE removed (seq INTEGER PRIMARY KEY) WITHOUT ROWID;
-- Digests of the files whose documents are all here, unchanged.
CREATE TABLE ingested (source TEXT PRIMARY KEY) WITHOUT ROWID;
"""

_LATER_TABLES = """
-- The passages of further fields of vectors, each with a vector file of its own.
CREATE TABLE IF NOT EXISTS more_passages (
    field TEXT NOT NULL, row INTEGER NOT NULL, seq INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
    PRIMARY KEY (field, row)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS more_passages_of ON more_passages (seq);
-- Sparse vectors: token ids as int32 and weights as float32, both little-endian.
CREATE TABLE IF NOT EXISTS sparse (seq INTEGER PRIMARY KEY, ids BLOB NOT NULL, weights BLOB NOT NULL);
-- Additional texts, as a list in JSON.
CREATE TABLE IF NOT EXISTS additional (seq INTEGER PRIMARY KEY, texts TEXT NOT NULL);
"""
"""What stores of the first format may lack, until a writer opens them."""


class Database:
    """One connection. Not for several threads at once."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._kinds: tuple[int, dict[str, Kind]] | None = None
        try:
            self._connection = _connect(path, "mode=rwc") if create else _connect_to_read(path)
            self._connection.execute("PRAGMA synchronous = NORMAL")
            if create:
                self._create()
            found = self.meta("format")
        except sqlite3.DatabaseError as error:
            if hasattr(self, "_connection"):
                self._connection.close()
            raise InvalidData(f"{path} is not a store that ccheck can read: {error}") from error
        if found not in FORMATS:
            self._connection.close()
            raise InvalidData(
                f"{path} has format {found}, this ccheck reads {' and '.join(FORMATS)}: ingest into another store"
            )

    def close(self) -> None:
        self._connection.close()

    def _create(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        with self.writing():
            if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
                for statement in _TABLES.split(";"):
                    self._connection.execute(statement)
                self.set_meta(format=FORMATS[0], generation="0", rows="0", vectors="vectors.f32", layout="{}")
            for statement in _LATER_TABLES.split(";"):
                self._connection.execute(statement)
            self._connection.execute("INSERT OR IGNORE INTO meta VALUES ('id', ?)", (uuid.uuid4().hex,))

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A write transaction: all of it happens, or nothing."""
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
        """All that is read within is of one moment."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    # -- what the store remembers of itself

    def meta(self, key: str) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set_meta(self, **values: str) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    @property
    def layout(self) -> Layout:
        return Layout.from_dict(json.loads(self.meta("layout") or "{}"))

    def set_layout(self, layout: Layout) -> None:
        data = layout.to_dict()
        self.set_meta(layout=json.dumps(data), format=FORMATS[data.keys() > {"embedding", "chunking"}])

    @property
    def state(self) -> str:
        """Another whenever what is stored changes, and in each store."""
        identity = self.meta("id")
        if identity is None:  # a store that no ccheck wrote to since stores have one
            digest = hashlib.sha256((self.meta("layout") or "").encode())
            for row in self._connection.execute("SELECT seq, id, digest FROM documents ORDER BY seq"):
                digest.update(repr(row).encode())
            identity = digest.hexdigest()[:32]
        return f"{identity}-{self.generation}"

    @property
    def generation(self) -> int:
        """Grows with every change; what was read at one generation holds until the next."""
        return int(self.meta("generation") or 0)

    def rows(self, field: str = MAIN_VECTORS) -> int:
        """How many rows of a field's vector file count."""
        return int(self.meta(_key("rows", field)) or 0)

    def vector_file(self, field: str = MAIN_VECTORS) -> str:
        """The name of a field's vector file."""
        usual = "vectors.f32" if field == MAIN_VECTORS else f"vectors-{field}.f32"
        return self.meta(_key("vectors", field)) or usual

    def touch(self) -> None:
        self._connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'")

    # -- documents

    def count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def last(self) -> int:
        """The highest seq; 0 where there is none."""
        return int(self._connection.execute("SELECT coalesce(max(seq), 0) FROM documents").fetchone()[0])

    def highest(self) -> int:
        """The highest seq that ever was."""
        found = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'documents'").fetchone()
        return int(found[0]) if found else 0

    def count_after(self, seq: int) -> int:
        return int(self._connection.execute("SELECT count(*) FROM documents WHERE seq > ?", (seq,)).fetchone()[0])

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        return dict(self._select("SELECT id, digest FROM documents WHERE id IN", ids))

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        rows = self._select("SELECT id, title, text, metadata, published FROM documents WHERE id IN", ids)
        return {row[0]: _document(*row) for row in rows}

    def documents_by_seq(self, seqs: Sequence[int]) -> dict[int, Document]:
        rows = self._select("SELECT seq, id, title, text, metadata, published FROM documents WHERE seq IN", seqs)
        return {row[0]: _document(*row[1:]) for row in rows}

    def ids_by_seq(self, seqs: Sequence[int]) -> dict[int, str]:
        return dict(self._select("SELECT seq, id FROM documents WHERE seq IN", seqs))

    def ids(self) -> dict[int, str]:
        """Of all documents: read from the index on ids alone."""
        return dict(self._connection.execute("SELECT seq, id FROM documents").fetchall())

    def texts_after(self, seq: int, additional: bool) -> Iterator[tuple[int, str, str, list[str]]]:
        """(seq, title, text, additional texts) of every document above `seq`, in order."""
        more = "(SELECT texts FROM additional WHERE additional.seq = documents.seq)" if additional else "NULL"
        query = f"SELECT seq, title, text, {more} FROM documents WHERE seq > ? ORDER BY seq"
        for found, title, text, texts in self._connection.execute(query, (seq,)):
            yield found, title, text, json.loads(texts) if texts else []

    def add(self, entries: Sequence[Entry], first_rows: Mapping[str, int]) -> None:
        """Store documents; their vectors lie in each field's file from its first row on, in order."""
        self.remove([entry.document.id for entry in entries])
        rows = dict(first_rows)
        for entry in entries:
            document = entry.document
            metadata = json.dumps(dict(document.metadata), ensure_ascii=False, separators=(",", ":"))
            seq = self._connection.execute(
                "INSERT INTO documents (id, digest, published, title, metadata, text) VALUES (?, ?, ?, ?, ?, ?)",
                (document.id, entry.digest, document.published, document.title, metadata, document.text),
            ).lastrowid
            for field, passages in vectors_of(entry).items():
                if not passages:
                    continue
                places = [(rows[field] + i, seq, passage.start, passage.end) for i, passage in enumerate(passages)]
                if field == MAIN_VECTORS:
                    self._connection.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", places)
                else:
                    named = [(field, *place) for place in places]
                    self._connection.executemany("INSERT INTO more_passages VALUES (?, ?, ?, ?, ?)", named)
                rows[field] += len(passages)
            if entry.sparse is not None and len(entry.sparse.ids):
                self._connection.execute("INSERT INTO sparse VALUES (?, ?, ?)", (seq, *pack(entry.sparse)))
            if entry.additional:
                texts = json.dumps(list(entry.additional), ensure_ascii=False)
                self._connection.execute("INSERT INTO additional VALUES (?, ?)", (seq, texts))
        self.set_meta(**{_key("rows", field): str(row) for field, row in rows.items()})
        self.touch()

    def remove(self, ids: Sequence[str]) -> int:
        seqs = [row[0] for row in self._select("SELECT seq FROM documents WHERE id IN", ids)]
        if not seqs:
            return 0
        self._connection.executemany("INSERT INTO removed VALUES (?)", ((seq,) for seq in seqs))
        for table in ("passages", "more_passages", "sparse", "additional", "documents"):
            self._connection.executemany(f"DELETE FROM {table} WHERE seq = ?", ((seq,) for seq in seqs))
        # A file that once was all here no longer is.
        self._connection.execute("DELETE FROM ingested")
        self.touch()
        return len(seqs)

    def removed(self) -> list[int]:
        return [row[0] for row in self._connection.execute("SELECT seq FROM removed")]

    def forget_removed(self, seqs: Sequence[int]) -> None:
        self._connection.executemany("DELETE FROM removed WHERE seq = ?", ((seq,) for seq in seqs))

    # -- passages

    def count_passages(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM passages").fetchone()[0])

    def passages(self, field: str = MAIN_VECTORS) -> list[tuple[int, int]]:
        """(row, seq) of every passage of a field, in the order of rows, which is also the order of seqs."""
        if field == MAIN_VECTORS:
            return self._connection.execute("SELECT row, seq FROM passages ORDER BY row").fetchall()
        query = "SELECT row, seq FROM more_passages WHERE field = ? ORDER BY row"
        return self._connection.execute(query, (field,)).fetchall()

    def renumber_passages(self, field: str, vector_file: str) -> None:
        """Close the gaps: the n-th passage gets row n, in another vector file."""
        table, where = ("passages", "1") if field == MAIN_VECTORS else ("more_passages", "field = :field")
        columns = "row, seq, start, end" if field == MAIN_VECTORS else "field, row, seq, start, end"
        numbered = columns.replace("row", "row_number() OVER (ORDER BY row) - 1 AS row")
        named = {"field": field}
        self._connection.execute(f"CREATE TEMP TABLE packed AS SELECT {numbered} FROM {table} WHERE {where}", named)
        self._connection.execute(f"DELETE FROM {table} WHERE {where}", named)
        self._connection.execute(f"INSERT INTO {table} SELECT {columns} FROM packed")
        count = self._connection.execute("SELECT count(*) FROM packed").fetchone()[0]
        self._connection.execute("DROP TABLE packed")
        self.set_meta(**{_key("rows", field): str(count), _key("vectors", field): vector_file})

    # -- sparse vectors

    def with_sparse(self) -> list[int]:
        """The seqs of the documents that have a sparse vector."""
        return [row[0] for row in self._connection.execute("SELECT seq FROM sparse")]

    def sparse_after(self, seq: int) -> Iterator[tuple[int, bytes, bytes]]:
        """(seq, ids, weights) of the documents above `seq`, in order."""
        return iter(self._connection.execute("SELECT seq, ids, weights FROM sparse WHERE seq > ? ORDER BY seq", (seq,)))

    # -- files

    def is_ingested(self, source: str) -> bool:
        return bool(self._connection.execute("SELECT 1 FROM ingested WHERE source = ?", (source,)).fetchone())

    def mark_ingested(self, source: str) -> None:
        self._connection.execute("INSERT OR IGNORE INTO ingested VALUES (?)", (source,))

    # -- filters

    def passing(self, filters: Sequence[Filter]) -> list[int]:
        """The seqs of the documents that pass all filters."""
        conditions, values = [], []
        for filter_ in filters:
            condition, parameters = _condition(filter_)
            conditions.append(condition)
            values += parameters
        query = f"SELECT seq FROM documents WHERE {' AND '.join(conditions)}"
        return [row[0] for row in self._connection.execute(query, values)]

    def field_kinds(self) -> dict[str, Kind]:
        """What filters can be on, see `Store.fields`. Reads the metadata of every document, once in a generation."""
        generation = self.generation
        if self._kinds is None or self._kinds[0] != generation:
            self._kinds = generation, self._read_field_kinds()
        return self._kinds[1]

    def _read_field_kinds(self) -> dict[str, Kind]:
        numbers: set[str] = set()
        texts: set[str] = set()
        for (metadata,) in self._connection.execute("SELECT metadata FROM documents"):
            for name, value in json.loads(metadata).items():
                for one in value if isinstance(value, list) else (value,):
                    if isinstance(one, str):
                        (numbers if is_number(one) else texts).add(name)
                    elif one is not None:
                        (texts if isinstance(one, bool) else numbers).add(name)
        kinds: dict[str, Kind] = {
            name: "text" if name not in numbers else "either" if name in texts else "numbers"
            for name in numbers | texts
        }
        kinds.pop(PUBLISHED, None)  # filters mean the document's own date by this name
        if self._connection.execute("SELECT 1 FROM documents WHERE published IS NOT NULL LIMIT 1").fetchone():
            kinds[PUBLISHED] = "dates"
        return kinds

    def _select(self, query: str, keys: Sequence[str] | Sequence[int]) -> list[Any]:
        """Rows whose key is among many: as one JSON parameter, past SQLite's limit on the number of them."""
        return self._connection.execute(
            f"{query} (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)
        ).fetchall()


def vectors_of(entry: Entry) -> dict[str, tuple[Passage, ...]]:
    """The passages of a document by the field of vectors that they belong to."""
    return {MAIN_VECTORS: entry.passages, **entry.more}


def _key(what: str, field: str) -> str:
    """Under which name something of a field of vectors is remembered."""
    return what if field == MAIN_VECTORS else f"{what}:{field}"


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=30, isolation_level=None, check_same_thread=False
    )


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Also where the folder can only be read, in which SQLite can't keep what readers of a WAL share."""
    wal = path.with_name(f"{path.name}-wal")
    modes = ["mode=rw", "mode=ro"]
    if not wal.exists() or wal.stat().st_size == 0:
        modes.append("immutable=1")  # nobody who could write it does; only without a WAL is this the whole of it
    for mode in modes:
        connection = _connect(path, mode)
        try:
            connection.execute("SELECT 1 FROM meta").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            if mode == modes[-1]:
                raise
        except sqlite3.DatabaseError:
            connection.close()
            raise
        else:
            return connection
    raise AssertionError("unreachable")


def _document(id_: str, title: str, text: str, metadata: str, published: str | None) -> Document:
    return Document(id_, title, text, json.loads(metadata), published)


def _condition(filter_: Filter) -> tuple[str, list[str | float]]:
    """SQL for one filter with its parameters."""
    if filter_.field == PUBLISHED:
        return f"coalesce(published {filter_.operator} ?, ?)", [filter_.value, int(filter_.operator == "!=")]
    # json_each yields a scalar as one row and a list as one row for each of its values.
    path = "$." + json.dumps(filter_.field, ensure_ascii=False)
    negated = filter_.operator == "!="
    operator = "=" if negated else filter_.operator
    text = "CASE type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE atom END"
    parameters: list[str | float] = [filter_.value]
    condition = f"type NOT IN ('integer', 'real') AND {text} {operator} ?"
    if filter_.number is not None:
        number = f"CAST(atom AS REAL) {operator} ?"
        # As `is_number` has it: digits, after a sign, with a fraction.
        digits = "CASE WHEN atom GLOB '[+-]*' THEN substr(atom, 2) ELSE atom END"
        numeric = (
            f"type IN ('integer', 'real') OR (type = 'text' AND ({digits}) GLOB '[0-9]*' "
            f"AND ({digits}) NOT GLOB '*[^0-9.]*' AND atom NOT GLOB '*.*.*' AND atom NOT GLOB '*.')"
        )
        condition = f"({numeric}) AND {number}" if operator != "=" else f"({condition}) OR (({numeric}) AND {number})"
        parameters = [filter_.number] if operator != "=" else [filter_.value, filter_.number]
    return f"{'NOT ' * negated}EXISTS (SELECT 1 FROM json_each(metadata, ?) WHERE {condition})", [path, *parameters]
