"""Which ids came already in this run."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from ..core.closing import Closing
from ..core.errors import Incomplete


@dataclass(frozen=True, slots=True)
class Earlier:
    """Where an id came first, and with what digest."""

    digest: str
    file: str
    line: int


class Seen(Closing):
    """The ids of a run, exactly, in a temporary database: millions of them take little memory."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA cache_size = -32768")  # KiB; beyond, SQLite uses a temporary file
        self._database.execute(
            "CREATE TABLE seen (id TEXT PRIMARY KEY, digest BLOB, file INTEGER, line INTEGER) WITHOUT ROWID"
        )
        self._database.execute("CREATE TABLE dois (doi TEXT PRIMARY KEY, id TEXT) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, id_: str, digest: str, file: str, line: int) -> Earlier | None:
        """Note an id; where it came before, say where, and keep that. `digest` is hexadecimal.

        Raises Incomplete if there is no room for it.
        """
        number = self._files.setdefault(file, len(self._files))
        row = (id_, bytes.fromhex(digest), number, line)
        try:
            added = self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?)", row).rowcount
        except sqlite3.OperationalError as error:
            raise Incomplete(
                f"the temporary folder is full ({error}). What was stored so far is safe: free "
                "some space, or set SQLITE_TMPDIR to another folder, and run the same command again"
            ) from error
        return None if added else self.earlier(id_)

    def earlier(self, id_: str) -> Earlier | None:
        """Where an id came first; None if it did not come."""
        query = "SELECT digest, file, line FROM seen WHERE id = ?"
        found = self._database.execute(query, (id_,)).fetchone()
        return None if found is None else Earlier(found[0].hex(), list(self._files)[found[1]], found[2])

    def add_doi(self, doi: str, id_: str) -> str:
        """Note whose DOI it is. Returns the id of the document that had it first."""
        self._database.execute("INSERT OR IGNORE INTO dois VALUES (?, ?)", (doi, id_))
        (first,) = self._database.execute("SELECT id FROM dois WHERE doi = ?", (doi,)).fetchone()
        return str(first)

    def close(self) -> None:
        self._database.close()
