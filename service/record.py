"""The record of checks: what was checked, and what people said about it. Beside a local store, in one SQLite file.

What `put` and `correct` returned from is on the disk: it survives a kill and a loss of power. Any number of threads and
processes may use one file. The claim and the answer are kept as they were, but for known secrets (keys, passwords).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import orjson

from ..core.closing import Closing
from ..core.errors import Incomplete, InvalidData, NotFound, ServerError, UsageError
from ..core.redaction import without_secrets
from ..core.settings import Settings
from ..core.text import did_you_mean, json_line
from .types import Check, Correction, Wanted, check_from, refuse_unknown_label

if TYPE_CHECKING:
    from .record_elastic import ElasticRecord

FORMAT = 2
MOST_BYTES = 32 << 20
"""The largest check that is kept: one of 10,000 documents has about 20 MB."""
NO_STANCES = (None, "CONFLICTING")
UNLABELLED = ("not relevant", "withdrawn")
_TIMEOUT_S = 30.0
_TABLES = (
    "CREATE TABLE checks (id TEXT PRIMARY KEY, created TEXT NOT NULL, words TEXT NOT NULL, label TEXT, "
    "data TEXT NOT NULL)",
    "CREATE INDEX checks_by_time ON checks (created, id)",
    "CREATE TABLE corrections (number INTEGER PRIMARY KEY, id TEXT NOT NULL, data TEXT NOT NULL)",
    "CREATE INDEX corrections_by_check ON corrections (id)",
    "CREATE TABLE files (id TEXT PRIMARY KEY, data TEXT NOT NULL)",
)

R = TypeVar("R")
Record: TypeAlias = "FileRecord | ElasticRecord"


def text_of(data: Mapping[str, Any]) -> str:
    """JSON to keep: without known secrets."""
    return without_secrets(json_line(data).rstrip("\n"))


def within_limit(text: str) -> str:
    """The same. Raises Incomplete for a check that is too large to keep."""
    if (size := len(text.encode())) > MOST_BYTES:
        raise Incomplete(f"the answer has {size:,} bytes. The record takes {MOST_BYTES:,}: use a smaller -k")
    return text


def stored(check: Check) -> dict[str, Any]:
    """What is kept of a check: corrections are kept for themselves."""
    data = check.to_dict()
    del data["kept"], data["corrections"]
    return data


def kept_check(text: str, corrections: Sequence[str]) -> Check:
    """The check that a record has. Raises InvalidData if somebody changed it."""
    try:
        beside = {"corrections": [json.loads(one) for one in corrections], "kept": True}
        check = check_from({**_read(text), **beside})
        object.__setattr__(check, "text", text)
        return check
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidData(f"it is not as ccheck wrote it ({type(error).__name__})") from error


def _read(text: str) -> dict[str, Any]:
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:  # which refuses lone surrogates
        data = json.loads(text)
    return dict(data)


def permalink(settings: Settings, id_: str) -> str | None:
    """Where people find a check on the page of `ccheck serve web`, if the settings say where that is."""
    return None if settings.public_url is None else f"{settings.public_url.rstrip('/')}/checks/{id_}"


def _words(text: str) -> str:
    """A text to search in, or for: without case. SQLite takes no lone surrogates."""
    return text.casefold().encode("utf-8", "replace").decode()


def _has_word(words: str, beginning: str) -> bool:
    """Whether a word begins so: `ice` finds icebergs, and no mice. Other scripts than ours may not part their words."""
    start = r"\b" if beginning[0].isascii() and beginning[0].isalnum() else ""
    return re.search(start + re.escape(beginning), words) is not None


def missing(id_: str) -> NotFound:
    """The error for an id that the record does not have."""
    return NotFound(
        f"the record has no check {id_}. ccheck history lists the checks. Each store has its own: name it with --store"
    )


def refuse_unfit(correction: Correction, check: Check) -> None:
    """Raises UsageError unless the correction fits the check."""
    refuse_unknown_label(correction.label)
    if correction.what == "wrong verdict":
        if correction.doc_id is not None:
            raise UsageError("a verdict is corrected without a document: use wrong stance for one")
        return
    if correction.what == "withdrawn":
        if (correction.doc_id, correction.user) not in [(one.doc_id, one.user) for one in check.standing]:
            of = "its verdict" if correction.doc_id is None else repr(correction.doc_id)
            by = correction.user or "somebody without a name"
            raise UsageError(f"the check {check.id} has no correction of {of} by {by} that could be withdrawn")
        if correction.label is not None:
            raise UsageError("a correction is withdrawn without a label")
        return
    ids = [one["doc_id"] for one in (check.result or {}).get("evidence", ())]
    if correction.doc_id not in ids:
        said = did_you_mean(str(correction.doc_id), ids, f"it has {', '.join(ids[:5])}" if ids else "it has none")
        raise UsageError(f"the check {check.id} has no document {correction.doc_id!r}: {said}")
    if correction.what == "wrong stance" and correction.label in NO_STANCES:
        raise UsageError("say what the document's stance is: SUPPORTS, REFUTES or NOT_ENOUGH_INFO")
    if correction.what == "not relevant" and correction.label is not None:
        raise UsageError("a document that is not relevant has no label: use wrong stance to give it one")


class FileRecord(Closing):
    """Keeps checks by id, and corrections beside them, in one SQLite file: the first `put` makes it for its owner only.

    Methods raise ServerError, InvalidData or Incomplete. `ElasticRecord` has the same ones.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is opened yet. `name` is where it is, for people to read."""
        self.path, self.name = path, str(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def refuse_unwritable(self) -> None:
        """Raises InvalidData if the file takes no checks."""
        if self.path.exists() and not os.access(self.path, os.W_OK):
            raise InvalidData(f"the record {self.name} can't be written to: its permissions forbid it")

    @property
    def busy(self) -> bool:
        """Whether a call would have to open the file first, or to wait for another thread."""
        return self._connection is None or self._lock.locked()

    def put(self, check: Check) -> Check:
        """Keep a check in the place of the one with its id. Returns it as it is kept, with corrections of before."""
        text = within_limit(text_of(stored(check)))
        row = (check.id, check.created, _words(without_secrets(check.claim)), check.label, text)
        insert = "INSERT OR REPLACE INTO checks VALUES (?, ?, ?, ?, ?)"

        def write(database: sqlite3.Connection) -> Check:
            database.execute(insert, row)
            return self._check(database, check.id, text)

        return self._do("make", write) or check

    def get(self, ids: Sequence[str]) -> dict[str, Check]:
        """The checks with these ids, with their corrections, as far as there are any."""

        def read(database: sqlite3.Connection) -> dict[str, Check]:
            found = {}
            for id_ in dict.fromkeys(ids):
                row = database.execute("SELECT data FROM checks WHERE id = ?", (id_,)).fetchone()
                if row is not None:
                    found[id_] = self._check(database, id_, row[0])
            return found

        return self._do("read", read) or {}

    def list(self, wanted: Wanted) -> list[Check]:
        values = _words(wanted.search or "").split()
        where = ["TRUE", *["has_word(words, ?)"] * len(values)]
        if wanted.label is not None:
            where.append("label = ?")
            values.append(wanted.label)
        if wanted.before is not None:
            where.append("(created < ? OR created = ? AND id > ?)")
            values += [wanted.before, wanted.before, wanted.after]
        if wanted.corrected:
            where.append("id IN (SELECT id FROM corrections)")
        if wanted.ids is not None:
            where.append("id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(list(wanted.ids)))
        query = f"SELECT id, data FROM checks WHERE {' AND '.join(where)} ORDER BY created DESC, id LIMIT ?"  # noqa: S608

        def read(database: sqlite3.Connection) -> list[Check]:
            rows = database.execute(query, (*values, wanted.limit)).fetchall()
            return [self._check(database, id_, data) for id_, data in rows]

        return self._do("read", read) or []

    def correct(self, correction: Correction) -> None:
        """Add a correction. Raises NotFound without its check."""
        row = (correction.check, text_of(correction.to_dict()))
        insert = "INSERT INTO corrections (id, data) SELECT id, ? FROM checks WHERE id = ?"
        if not self._do("write", lambda database: database.execute(insert, (row[1], row[0])).rowcount):
            raise missing(correction.check)

    def put_file(self, id_: str, text: str) -> None:
        """Keep what a file of claims asked for. Its id begins with the time, as ISO 8601 writes it."""
        row = (id_, within_limit(text))
        self._do("make", lambda database: database.execute("INSERT OR REPLACE INTO files VALUES (?, ?)", row))

    def file(self, id_: str) -> str | None:
        query = "SELECT data FROM files WHERE id = ?"
        found = self._do("read", lambda database: database.execute(query, (id_,)).fetchone())
        return None if found is None else str(found[0])

    def forget(self, before: str) -> int:
        """Remove the files sent and the checks made before a time, but for those with corrections. Returns how many
        checks."""
        self._do("write", lambda database: database.execute("DELETE FROM files WHERE id < ?", (before,)))
        query = "DELETE FROM checks WHERE created < ? AND id NOT IN (SELECT id FROM corrections)"
        return self._do("write", lambda database: database.execute(query, (before,)).rowcount) or 0

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # -- inside

    def _check(self, database: sqlite3.Connection, id_: str, data: str) -> Check:
        query = "SELECT data FROM corrections WHERE id = ? ORDER BY number"
        try:
            return kept_check(data, [text for (text,) in database.execute(query, (id_,))])
        except InvalidData as error:
            raise InvalidData(f"the check {id_} in {self.path} can't be read: {error}") from error

    def _do(self, what: Literal["read", "write", "make"], work: Callable[[sqlite3.Connection], R]) -> R | None:
        """Do the work in one transaction and return its result; None if no file is there: `make` alone creates it."""
        with self._lock, self._reported():
            if self._connection is None:
                if what != "make" and not self.path.exists():
                    return None
                if what == "read" and not all(os.access(one, os.W_OK) for one in (self.path, self.path.parent)):
                    # For this once: it would not see what others write later.
                    with contextlib.closing(self._opened(only_read=True)) as once, once:
                        once.execute("BEGIN")
                        return work(once)
                self._connection = self._opened()
            with self._connection:  # who writes takes the file at once, and so never has to give up
                self._connection.execute("BEGIN" if what == "read" else "BEGIN IMMEDIATE")
                return work(self._connection)

    def _opened(self, *, only_read: bool = False) -> sqlite3.Connection:
        # Not through a link, which a stranger's folder could hold.
        flags = (os.O_RDONLY if only_read else os.O_CREAT | os.O_RDWR) | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(self.path, flags, 0o600))
        name = f"{self.path.absolute().as_uri()}?mode={'ro' if only_read else 'rw'}"
        beside = [Path(f"{self.path}{end}") for end in ("-wal", "-shm")]
        if only_read and not any(one.exists() and one.stat().st_size for one in beside):
            name += "&immutable=1"  # nobody is writing: without it, SQLite wants to make these files
        connection = sqlite3.connect(
            name, timeout=_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=16, uri=True
        )
        try:
            # A file of a stranger runs nothing: neither views nor triggers, and it has our tables or is refused.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.create_function("has_word", 2, _has_word, deterministic=True)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            with connection:
                connection.execute("BEGIN" if only_read else "BEGIN IMMEDIATE")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                query = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"
                made = tuple(sql for (sql,) in connection.execute(query))
                if version == 0 and not made:
                    for sql in _TABLES:
                        connection.execute(sql)
                    connection.execute(f"PRAGMA user_version = {FORMAT}")
                elif version != FORMAT or made != _TABLES:
                    raise InvalidData(
                        f"{self.path} is not a record of checks that this version of ccheck reads (format {version}; "
                        f"this one reads {FORMAT}). Move the file away, or use --no-record"
                    )
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise ServerError(
                    f"another process has been writing to the record {self.path} for {_TIMEOUT_S:g} s. Try again"
                ) from error
            raise Incomplete(f"the record {self.path} can't be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise InvalidData(
                f"the record {self.path} is damaged: {error}. Move the file away, or use --no-record"
            ) from error
        except OSError as error:
            raise Incomplete(f"the record {self.path} can't be used: {error.strerror or error}") from error
