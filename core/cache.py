"""A cache on disk: bytes by key, in one SQLite file.

It only saves time and money: where the file can't be used a temporary one takes its place, with a notice, and the run
goes on. Any number of processes may use one file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from more_itertools import chunked

from .closing import Closing
from .errors import CcheckError
from .files import private_folder

_TIMEOUT_S = 30.0
_AT_ONCE = 500
"""Keys of one question: any SQLite takes 999 parameters."""
_BYTES = (
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
)


class Cache(Closing):
    """Values by key, in any thread. `notice` says where something is wrong; nothing here ever fails a run."""

    def __init__(self, path: Path, max_bytes: int, what: str) -> None:
        """Open the file at `path`, which is made for its owner only: claims can be confidential.

        Beyond `max_bytes` the oldest values are forgotten; 0 keeps none after the run. `what` is what a notice calls
        it.
        """
        self.path = path
        self.notice: str | None = None
        self._what, self._max_bytes, self._temporary = what, max_bytes, max_bytes <= 0
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        if self._temporary:
            self._fall_back()
            return
        try:
            private_folder(path.parent)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            with contextlib.suppress(PermissionError):  # another user's
                path.chmod(0o600)
            self._database = self._open(str(path))
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that are known."""
        found: dict[bytes, bytes] = {}
        with self._lock:
            try:
                for some in chunked(keys if self._database is not None else (), _AT_ONCE):
                    marks = ",".join("?" * len(some))
                    query = f"SELECT key, value FROM entries WHERE key IN ({marks})"  # noqa: S608
                    found.update(self._database.execute(query, some) if self._database is not None else ())
            except sqlite3.Error as error:
                self._give_up(error)
        return found

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Keep values, in one transaction."""
        with self._lock:
            try:
                self._put(values)
            except sqlite3.Error as error:
                self._give_up(error)
                with contextlib.suppress(sqlite3.Error):  # no space for a temporary file either
                    self._put(values)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _put(self, values: Mapping[bytes, bytes]) -> None:
        database = self._database
        if database is None or not values:
            return
        with database:
            database.executemany("INSERT OR REPLACE INTO entries (key, value) VALUES (?, ?)", values.items())
        while not self._temporary and database.execute(_BYTES).fetchone()[0] > self._max_bytes:
            with database:
                oldest = "SELECT min(age) + (max(age) - min(age)) / 10 FROM entries"
                if not database.execute(f"DELETE FROM entries WHERE age <= ({oldest})").rowcount:  # noqa: S608
                    break

    def _open(self, path: str) -> sqlite3.Connection:
        database = sqlite3.connect(path, timeout=_TIMEOUT_S, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            # Writing shows at once what is wrong: a folder that is read-only, a file that is no database.
            with database:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS entries "
                    "(age INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, value BLOB NOT NULL)"
                )
                database.execute("PRAGMA user_version = 1")
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _give_up(self, error: Exception) -> None:
        ours = all(os.access(one, os.W_OK) for one in (self.path, self.path.parent))
        then = "It is safe to delete" if ours else "Make it and its folder writable, or set CCHECK_CACHE_DIR to another"
        self.notice = f"{self._what} {self.path} can't be used ({error}). {then}"
        self._temporary = True
        self._close()
        self._fall_back()

    def _fall_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._database = self._open("")  # a temporary file, which SQLite removes

    def _close(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None


# -- memory for the results of stages

T = TypeVar("T")


class Memory(Protocol):
    """Values by key. `kind` is that of their stage: `embedding`, `sparse`, `ranking`, `rerank`."""

    def get(self, kind: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that are known."""
        ...

    def put(self, kind: str, values: Mapping[bytes, bytes]) -> None: ...


def memory_key(*parts: Any) -> bytes:
    """A hash of bytes and JSON values, the same in every process."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True, ensure_ascii=True).encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()


def recall(
    memory: Memory | None,
    kind: str,
    keys: Sequence[bytes],
    compute: Callable[[list[int]], Sequence[T]],
    dump: Callable[[T], bytes],
    load: Callable[[bytes], T],
) -> list[T]:
    """A value for each key: what is known, and for the rest what `compute` makes of their places among the keys.

    An error among the values is not kept. Without a memory everything is computed.
    """
    if memory is None:
        return list(compute(list(range(len(keys)))))
    known = memory.get(kind, keys)
    missing = [place for place, key in enumerate(keys) if key not in known]
    made = dict(zip(missing, compute(missing), strict=True)) if missing else {}
    kept = {place: value for place, value in made.items() if not isinstance(value, CcheckError)}
    memory.put(kind, {keys[place]: dump(value) for place, value in kept.items()})
    return [made[place] if place in made else load(known[key]) for place, key in enumerate(keys)]
