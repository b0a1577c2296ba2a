"""An index's record of its writes: how many it has had, and which files are completely in it, unchanged.

Every write to an index has a sequence number. What was marked holds as long as the highest number has not moved, or
has moved only by documents that were new; then nothing that was there can have changed, whoever else writes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ...core.errors import CcheckError
from .bulk import Outcome
from .client import Client
from .fields import Index

KEPT = 200
"""How many files an index remembers."""
KEY, READING = "ingested", "reading"
"""Under the index's `_meta`: those files, and what the last ingest reads, unless it has ended."""


class Writes:
    """The writes of this process since it prepared the index, or last marked a file."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._before: int | None = None
        self._done = Outcome()

    def begin(self, client: Client, index: Index) -> None:
        operations = _operations(client, index)
        with self._guard:
            self._before, self._done = operations, Outcome()

    def add(self, outcome: Outcome) -> None:
        with self._guard:
            self._done.add(Outcome(outcome.results))

    def marks(self, client: Client, index: Index, sources: Sequence[str]) -> dict[str, Any]:
        """Returns what the index should record after an ingest. It has these files unless others wrote meanwhile."""
        kept = {name: value for name, value in index.meta.items() if name != READING}
        marked = self._marked(client, index, sources) if sources else None
        return kept if marked is None else kept | {KEY: marked}

    def _marked(self, client: Client, index: Index, sources: Sequence[str]) -> dict[str, Any] | None:
        operations = _operations(client, index)
        with self._guard:
            results = self._done.results
            if operations is None or self._before is None or operations != self._before + sum(results.values()):
                return None
            marked = index.meta.get(KEY, {})
            kept = marked["sources"] if marked.get("operations") == self._before and set(results) <= {"created"} else []
            self._before, self._done = operations, Outcome()
        return {"operations": operations, "sources": [*(old for old in kept if old not in sources), *sources][-KEPT:]}


def reading(index: Index) -> list[str]:
    """Returns the sources of the last ingest into an index, as its command named them; empty if it ended."""
    noted = index.meta.get(READING)
    return list(map(str, noted)) if isinstance(noted, list) else []


def is_ingested(client: Client, index: Index, source: str) -> bool:
    marked = index.meta.get(KEY, {})
    return source in marked.get("sources", ()) and _operations(client, index) == marked["operations"]


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


def _operations(client: Client, index: Index) -> int | None:
    """How many writes the index has had; None if the key or user lacks the privilege."""
    found = figures(client, index)
    return None if found is None else found.operations
