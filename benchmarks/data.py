"""Shared by the benchmarks: data sets as their files have them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ccheck.core.types import Document


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON Lines, plain or compressed."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def documents(path: Path) -> dict[str, Document]:
    """The documents of a corpus in BEIR's format, by id."""
    return {row["_id"]: Document(row["_id"], row["title"], row["text"]) for row in rows(path)}
