"""An index's record of an ingest, and the figures of its shards, which every write changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ...core.errors import CcheckError
from .client import Client
from .fields import Index

READING = "reading"
"""Under the index's `_meta`: what the last ingest reads, unless it has ended."""


def reading(index: Index) -> list[str]:
    """Returns the sources of the last ingest into an index, as its command named them; empty if it ended."""
    noted = index.meta.get(READING)
    return list(map(str, noted)) if isinstance(noted, list) else []


@dataclass(frozen=True, slots=True)
class Figures:
    """How many writes an index has had, its bytes with all copies, and a hash that changes with what searches see."""

    operations: int
    bytes: int
    state: str


def figures(client: Client, index: Index) -> Figures | None:
    """None if the key or user lacks the privilege."""
    path = f"/{quote(','.join(index.concrete), safe=',')}/_stats/docs,store"
    try:
        answer = client.request("GET", path, params={"level": "shards"})
        numbers, seen = 0, []
        for uuid, shard, primary in sorted(_primaries(answer["indices"]), key=lambda found: found[:2]):
            last, docs = int(primary["seq_no"]["max_seq_no"]), primary["docs"]
            numbers += last + 1
            # A write is in the first at once, and in the others when it has become searchable.
            seen.append((uuid, shard, last, int(docs["count"]), int(docs["deleted"])))
        state = hashlib.sha256(repr(seen).encode()).hexdigest()[:32]
        return Figures(numbers, int(answer["_all"]["total"]["store"]["size_in_bytes"]), state)
    except (CcheckError, KeyError):
        return None


def _primaries(indices: Mapping[str, Any]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """The index's unique id, number and figures of each primary shard."""
    for found in indices.values():
        for number, copies in found["shards"].items():
            for copy in copies:
                if copy["routing"]["primary"]:
                    yield str(found["uuid"]), int(number), copy
