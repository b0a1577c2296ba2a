"""Answers that were paid for before: the same question is never asked twice.

One SQLite file. A key is a hash of everything that the answer depends on; what is kept is the reply's text and its
tokens, never a failure and never a key of a server. It only saves money: where it can't be used the run goes on without
it, with a notice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_BYTES = 256 << 20
_TIMEOUT_S = 30.0


class AnswerCache:
    """The replies of language models, by `answer_key`. Use it in one thread at a time."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        """Open `folder`/answers.sqlite.

        Beyond `max_bytes` the oldest answers are forgotten; 0 keeps none after the run.
        Never fails: `notice` says where something is wrong.
        """
        self.path = folder / "answers.sqlite"
        self.notice: str | None = None
        self._max_bytes = max_bytes
        self._database: sqlite3.Connection | None = None
        if max_bytes <= 0:
            self._max_bytes, self._database = MAX_BYTES, _open("")  # a temporary file, which SQLite removes
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Claims can be confidential: for their owner only.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self._database = _open(str(self.path))
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, key: bytes) -> str | None:
        """The text of the reply."""
        if self._database is None:
            return None
        try:
            row = self._database.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        return row[0] if row is not None and isinstance(row[0], str) else None

    def put(self, key: bytes, text: str) -> None:
        if self._database is None:
            return
        try:
            with self._database:
                self._database.execute("INSERT OR REPLACE INTO answers (key, text) VALUES (?, ?)", (key, text))
            pages, free, size = (
                self._database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            if (pages - free) * size > self._max_bytes:
                with self._database:
                    self._database.execute(
                        "DELETE FROM answers WHERE age <= (SELECT min(age) + (max(age) - min(age)) / 10 FROM answers)"
                    )
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    def _give_up(self, error: Exception) -> None:
        self.notice = f"the cache of answers {self.path} can't be used ({error}); deleting it is safe"
        self.close()


def answer_key(parts: Mapping[str, Any]) -> bytes:
    """A hash of JSON values, the same in every process."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def _open(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_TIMEOUT_S, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(
            "CREATE TABLE IF NOT EXISTS answers (age INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, text TEXT NOT NULL)"
        )
        with database:
            database.execute("PRAGMA user_version = 1")
    except sqlite3.Error:
        database.close()
        raise
    return database
