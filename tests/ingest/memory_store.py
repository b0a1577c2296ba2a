"""A store in memory, with what an ingest asks of one, for tests of what it writes."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ccheck.core.errors import NotFound
from ccheck.core.layout import MAIN_VECTORS, Layout
from ccheck.core.types import Document, Entry
from ccheck.search.store import StoreInfo


def rows(count: int, **extra: object) -> list[dict[str, Any]]:
    return [{"_id": str(n), "title": f"Title {n}", "text": f"Text of paper {n}."} | extra for n in range(count)]


class MemoryStore:
    """Keeps entries by id. `on_upsert` sees each batch first and can raise, or return refusals."""

    name = "memory"
    upserts_at_once = 1

    def __init__(self, on_upsert: Callable[[Sequence[Entry]], dict[str, str] | None] | None = None) -> None:
        self.on_upsert = on_upsert
        self.entries: dict[str, Entry] = {}
        self.layout: Layout | None = None
        self.calls: list[str] = []
        self.writers: set[str] = set()

    def info(self, *, figures: bool = True) -> StoreInfo | None:
        if self.layout is None:
            return None
        passages = sum(len(entry.passages.get(MAIN_VECTORS, ())) for entry in self.entries.values())
        return StoreInfo(self.name, len(self.entries), passages, self.layout)

    def prepare(self, layout: Layout, reading: Sequence[str] = ()) -> None:
        self.calls.append("prepare")
        if self.layout is not None:
            self.layout.check(layout, self.name)
        self.layout = layout

    def scan(self) -> Iterator[Document]:
        return iter([entry.document for entry in self.entries.values()])

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        self.calls.append("digests")
        return {id_: self.entries[id_].digest for id_ in ids if id_ in self.entries}

    def upsert(self, entries: Sequence[Entry]) -> dict[str, str]:
        self._exists()
        self.calls.append("upsert")
        self.writers.add(threading.current_thread().name)
        refused = (self.on_upsert(entries) if self.on_upsert else None) or {}
        self.entries.update({entry.document.id: entry for entry in entries if entry.document.id not in refused})
        return refused

    def abandon(self) -> None:
        self.calls.append("abandon")

    def release(self) -> None:
        pass

    def publish(self) -> None:
        self.calls.append("publish")

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        return {id_: self.entries[id_].document for id_ in ids if id_ in self.entries}

    def count(self) -> int:
        return len(self.entries)

    def mark_ingested(self, reading: Sequence[str] = ()) -> None:
        self._exists()

    def _exists(self) -> None:
        if self.layout is None:
            raise NotFound("there is no store memory")
