"""A store in memory, as simple as the contract allows, for tests of what writes to stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ccheck.core.errors import CcheckError, NotFound
from ccheck.core.layout import MAIN_VECTORS, Layout
from ccheck.core.types import Document, Entry, Hit, Query
from ccheck.search.filters import Filter, Kind
from ccheck.search.store import Ranks, Search, StoreInfo


class MemoryStore:
    """Keeps entries by id. `on_upsert` sees each batch first and can raise, or return refusals."""

    name = "memory"
    upserts_at_once = 1

    def __init__(self, on_upsert: Callable[[Sequence[Entry]], dict[str, str] | None] | None = None) -> None:
        self.on_upsert = on_upsert
        self.entries: dict[str, Entry] = {}
        self.layout: Layout | None = None
        self.calls: list[str] = []
        self.upserts: list[list[str]] = []
        self.writers: set[str] = set()
        self._changes = 0

    def info(self, *, figures: bool = True) -> StoreInfo | None:
        if self.layout is None:
            return None
        passages = sum(len(entry.passages.get(MAIN_VECTORS, ())) for entry in self.entries.values())
        return StoreInfo(self.name, len(self.entries), passages, self.layout, state=f"{id(self)}-{self._changes}")

    def prepare(self, layout: Layout, reading: Sequence[str] = ()) -> None:
        self.calls.append("prepare")
        if self.layout is not None:
            self.layout.check(layout, self.name)
        self.layout = layout

    def scan(self, filters: Sequence[Filter] = ()) -> Iterator[Document]:
        assert not filters
        return iter([entry.document for entry in self.entries.values()])

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        self.calls.append("digests")
        return {id_: self.entries[id_].digest for id_ in ids if id_ in self.entries}

    def upsert(self, entries: Sequence[Entry]) -> dict[str, str]:
        self._exists()
        self.calls.append("upsert")
        self.writers.add(threading.current_thread().name)
        refused = (self.on_upsert(entries) if self.on_upsert else None) or {}
        self._changes += 1
        taken = [entry for entry in entries if entry.document.id not in refused]
        self.entries.update({entry.document.id: entry for entry in taken})
        self.upserts.append([entry.document.id for entry in taken])
        return refused

    def delete(self, ids: Sequence[str]) -> int:
        self._changes += 1
        return sum(self.entries.pop(id_, None) is not None for id_ in ids)

    def abandon(self) -> None:
        self.calls.append("abandon")

    def publish(self) -> None:
        self.calls.append("publish")

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        return {id_: self.entries[id_].document for id_ in ids if id_ in self.entries}

    def count(self, filters: Sequence[Filter] = ()) -> int:
        return len(self.entries)

    def fields(self) -> Mapping[str, Kind]:
        return {name: "either" for entry in self.entries.values() for name in entry.document.metadata}

    def narrowed(self, queries: Sequence[Query], hits: Sequence[Sequence[Hit]]) -> list[tuple[Hit, ...]]:
        return list(map(tuple, hits))

    def rank(self, search: Search) -> list[Ranks | CcheckError]:
        return [Ranks(dict.fromkeys(search.retrievers, ())) for _ in search.queries]

    def read(self, ids: Sequence[str]) -> dict[str, Document]:
        return self.get(ids)

    def mark_ingested(self, reading: Sequence[str] = ()) -> None:
        self._exists()

    def removal(self) -> str:
        return f"{self.count()} documents in memory"

    def drop(self) -> list[Path]:
        self.layout = None
        self.entries.clear()
        return []

    def close(self) -> None: ...

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _exists(self) -> None:
        if self.layout is None:
            raise NotFound("there is no store memory")
