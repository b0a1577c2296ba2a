"""The results of reading a file: a record for each document, or a reject in its place."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

LINE_BYTES = 64 << 20
"""A longer line is a reject. Also the most that a .json file may hold that is not JSON Lines."""
RECORD_CHARS = 1000
"""How much of a rejected record is kept."""
NOT_UTF8 = "not valid UTF-8"
TO_UTF8 = '. Save the file as UTF-8 (in Excel as "CSV UTF-8"), or convert it: iconv -f cp1252 -t utf-8 IN > OUT'
"""What to do about it where no option says what it is, as for a file of claims from Excel."""
FULL_TEXTS = "full texts"
"""The kind of records of articles (`articles/types.py`)."""


@dataclass(frozen=True, slots=True)
class Record:
    """A file's data for one document. `line` starts at 1: the line on which the data begin, or Parquet's row.

    `untyped` values are all text, as in CSV. `kind` says what it was recognised as, in the plural: `OpenAlex works`.
    `raw` is then the file's own record, where the user named fields of it.
    """

    file: str
    line: int
    data: dict[str, Any]
    untyped: bool = False
    kind: str = ""
    raw: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that could not be ingested, and why. `record` has its first `RECORD_CHARS` characters."""

    file: str
    line: int
    reason: str
    record: str = ""


def reject_of(record: Record, reason: str) -> Reject:
    try:
        held = json.dumps(record.data, ensure_ascii=False)
    except (RecursionError, MemoryError, ValueError, TypeError):
        held = ""  # nested too deeply to be written again
    return Reject(record.file, record.line, reason, excerpt(held))


def excerpt(raw: bytes | str) -> str:
    """The start of what was rejected, as text."""
    if isinstance(raw, bytes):
        raw = raw[: 4 * RECORD_CHARS].decode("utf-8", "replace")
    return raw[:RECORD_CHARS]
