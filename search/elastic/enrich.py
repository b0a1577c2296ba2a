"""Adding to an index that ccheck did not make: what is to be read of it, and where what was made of that goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import InvalidData, NotFound, UsageError
from ...core.layout import Layout
from ...core.types import Document, Entry
from . import changes, ownership
from .changes import Shard, Written
from .client import Client
from .companion import SEVERAL, Companion, JoinedStore, may_have_one
from .errors import Denied
from .fields import Index, document
from .reading import hits_by_id

COPIES = 5
"""How many documents of one id are looked for, to name their indices."""


@dataclass(frozen=True, slots=True)
class Source:
    """The index that is enriched, and what the server says about each index behind the name."""

    store: JoinedStore
    client: Client
    index: Index
    described: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The indices that were checked, which the store's name may leave meanwhile."""
        return ",".join(self.index.concrete)

    def document(self, written: Written) -> Document:
        """Its title and text. Raises InvalidData if they can't be read."""
        if written.source is None:
            raise InvalidData("the server returned no _source for it")
        found = document(self.index, written.id, written.source)
        return Document(written.id, found.title, found.text)

    def twice(self, some: Sequence[Written]) -> dict[str, str]:
        """Why ids can't be used that several documents have: in several indices, or in one by their routing."""
        routed = any(one.routing is not None for one in some)
        if len(self.index.concrete) == 1 and not routed:
            return {}
        homes: dict[str, Counter[str]] = {}
        for hit in hits_by_id(self.client, self.name, [one.id for one in some], copies=COPIES, _source=False):
            homes.setdefault(hit["_id"], Counter())[hit["_index"]] += 1
        said: dict[str, str] = {}
        for id_, found in homes.items():
            if len(found) > 1:
                said[id_] = f"{' and '.join(sorted(found))} both have this id. Enrich each index separately"
            elif found.total() > 1:
                said[id_] = f"{found.total()} documents of {next(iter(found))} have this id, with different routings"
        return said


@dataclass(frozen=True, slots=True)
class Page:
    """Documents to look at; of one shard, in the order of their writes, if that is known."""

    written: list[Written]
    shard: Shard | None = None
    upto: int = changes.NEVER
    """The number of the shard's writes up to which this and the pages before it have everything."""


@dataclass(frozen=True, slots=True)
class Wrote:
    """The outcome of a write: why documents were refused, and which ones somebody else wrote in between."""

    refused: Mapping[str, str]
    changed: frozenset[str] = frozenset()


class Target(ABC):
    """Where what is made of documents goes: a companion, or the documents themselves."""

    def __init__(self, source: Source, name: str) -> None:
        """`name`: what messages call the index that is written to."""
        self.source, self.name = source, name

    def consequences(self, layout: Layout) -> Iterator[str]:
        """Yields the consequences that the user should know before the index is changed."""
        yield from ()

    @abstractmethod
    def prepare(self, layout: Layout) -> None:
        """Make it ready for what this layout needs, or raise InvalidData."""

    @abstractmethod
    def pages(self) -> Iterator[Page]:
        """The documents to look at."""

    @abstractmethod
    def digests(self, page: Page) -> Mapping[str, str]:
        """The digests of what it has for a page's documents, by id."""

    @abstractmethod
    def write(self, entries: Sequence[tuple[Entry, Written]]) -> Wrote:
        """Store what was made."""

    @abstractmethod
    def finish(self, failures: int) -> int:
        """Make everything searchable, and remove what its index no longer has. Returns how much that was."""

    def done(self, page: Page, failed: bool) -> None:  # noqa: B027 - documents can say for themselves
        """All documents of the page were dealt with, those before it, too; some in vain where `failed`."""

    def remember(self) -> None:  # noqa: B027
        """Write down how far it is, for a run after one that was killed."""

    def release(self) -> None:  # noqa: B027
        """End a run, also one that failed."""


def open_source(store: Any) -> Source:
    """Raises UsageError, NotFound or InvalidData for what can't be enriched."""
    if not isinstance(store, JoinedStore):
        raise UsageError(
            f"{store.name} is not an index in Elasticsearch. Name one: ccheck index enrich https://host:9200/INDEX"
        )
    if not may_have_one(store.index):
        raise UsageError(f"{store.index!r} can't be enriched: name one index of this server. {SEVERAL}")
    info = store.info()
    if info is None:
        raise NotFound(f"there is no index {store.name}")
    if info.made_here:
        raise InvalidData(
            f"ccheck made {store.name}. To add what a recipe needs, ingest again: ccheck ingest FILE --recipe NAME "
            f"--store {store.name}"
        )
    index, described = store._looked(fresh=True)
    ownership.refuse_enriching(store.index, index, described)
    return Source(store, store.client, index, described)


class Beside(Target):
    """A companion as a target."""

    def __init__(self, source: Source, store: Companion) -> None:
        super().__init__(source, store.name)
        self.store = store
        self.checkpoints: dict[str, int] = {}
        self._shards: list[Shard] | None = None
        self._seen: Counter[str] = Counter()
        self._stuck: set[str] = set()
        self._was_empty = False
        self._begun: dict[str, int] = {}

    def prepare(self, layout: Layout) -> None:
        self.store.prepare(layout)
        self._was_empty = self.store.count() == 0
        try:
            self._shards = changes.shards(self.source.client, self.source.index.concrete)
        except Denied:
            self._shards = None
        kept = {} if self._was_empty else self.store.checkpoints()
        self._begun = {shard.key: kept.get(shard.key, changes.NEVER) for shard in self._shards or ()}
        self.checkpoints = dict(self._begun)

    def pages(self) -> Iterator[Page]:
        reading: Any = self.source.index.source or True
        if self._shards is None:
            for some in changes.all_written(self.source.client, self.source.name, reading):
                yield Page(some)
            return
        for shard in self._shards:
            for upto, some in changes.written_since(self.source.client, shard, self._begun[shard.key], reading):
                self._seen[shard.key] += len(some)
                yield Page(some, shard, upto)

    def digests(self, page: Page) -> Mapping[str, str]:
        return {} if self._was_empty else self.store.digests([one.id for one in page.written])

    def write(self, entries: Sequence[tuple[Entry, Written]]) -> Wrote:
        return Wrote(self.store.upsert([entry for entry, _ in entries]))

    def done(self, page: Page, failed: bool) -> None:
        if page.shard is None or page.shard.key in self._stuck:
            return
        if failed:
            self._stuck.add(page.shard.key)  # it is read again next time, from here on
            return
        self.checkpoints[page.shard.key] = page.upto

    def remember(self) -> None:
        self.store.remember(self.checkpoints)

    def finish(self, failures: int) -> int:
        self.store.publish()
        removed = 0 if self._was_empty or not self._may_have_removed(failures) else self._remove()
        if self._shards is not None:
            for shard in self._shards:
                if shard.key not in self._stuck:
                    self.checkpoints[shard.key] = shard.last
            self.remember()
        return removed

    def _may_have_removed(self, failures: int) -> bool:
        """Whether documents may have gone. A removal is a write that left no document, as a replaced write is."""
        if self._shards is None or set(self.store.checkpoints()) - set(self.checkpoints):
            return True
        gone = any(shard.last - self._begun[shard.key] > self._seen[shard.key] for shard in self._shards)
        return gone and (failures > 0 or self.store.count() != self.source.store.count())

    def _remove(self) -> int:
        gone = changes.lacking(self.source.client, self.store.index, self.source.name)
        removed = sum(self.store.delete(ids) for ids in gone)
        if removed:
            self.store.publish()
        return removed
