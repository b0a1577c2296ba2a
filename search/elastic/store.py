"""The store in Elasticsearch, 8.19 and 9.x: an alias in front of a numbered index.

The same class searches an index that ccheck did not make, and never writes to one. What is written goes to the one
index that was checked before (`bound`), whatever becomes of the alias.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ...core.analysis import open_analysis
from ...core.errors import CcheckError, InvalidData, NotFound, ServerError, StoreChanged, UsageError
from ...core.layout import Layout
from ...core.profiles import StoreProfile
from ...core.stages import Bm25, Retriever
from ...core.text import counted
from ...core.types import Document, Entry, Filter, Hit, Query, Unit
from ..filters import Kind
from ..store import Ranks, Search, Store, StoreInfo, no_store, searched_units, unfinished
from . import bound, bulk, mappings, ownership, reading, units
from .bulk import Writer
from .client import Client, path_of
from .connection import Connection
from .errors import AlreadyExists, Denied
from .fields import Index, document, field_kinds
from .found import read_index, sampled, with_hidden, with_papers
from .moving import Numbered, numbered
from .queries import FUSINGS, Body, Fusing, check, filter_bodies, fusing
from .search import Moved, NotNative, Searcher

T = TypeVar("T")
Known: TypeAlias = tuple[float, Index, Mapping[str, Any]]
"""When an index was asked for, the index, and what the server said of each index behind the name."""

FIRST = "-000001"  # of the index behind an alias
READING = "reading"
"""Where `_meta` has what ingests read that have not ended."""
COMPANION = "companion"
"""Where a companion's `_meta` says whose it is, and up to which writes it has everything."""
MOST_SAID = 20
"""How many left-out fields `info` explains."""
KNOWN_SECONDS = 30.0
"""Seconds for which a mapping is reused after it was read."""
CREATED_TRIES, CREATED_PAUSE = 20, 0.25
"""How often, and how many seconds apart, an index is looked for that another process made: nodes learn of it later."""
MOVES = 3
"""How often one search follows an alias to another index."""


class ElasticStore(Store):
    """An index or alias on a server; see `ccheck.search.store.Store` for what the methods promise.

    Safe to use from several threads, and from several processes that write different documents.
    """

    _whole = True
    """Whether texts and metadata are written too."""

    def __init__(
        self, connection: Connection, index: str, profile: StoreProfile | None = None, *, client: Client | None = None
    ) -> None:
        """Asks the server nothing yet: an index that does not exist is made by `prepare`. Raises UsageError."""
        parts = index.split(",")
        if any(not one or one[0] in "_-+" or any(character in one for character in '?"<>| \\/:') for one in parts):
            raise UsageError(
                f"{index!r} does not name an index: use lower-case letters, digits, - and _, such as papers"
            )
        self.index = index
        self.name = f"{connection.url}/{index}"
        self._named = profile or StoreProfile()
        self.client = client or Client(connection)
        """For requests that only Elasticsearch can serve, too."""
        self._known: Known | None = None
        self._read: tuple[Mapping[str, Any], Index] | None = None
        self._told: Layout | None = None
        """The layout of the store when it was last asked. Queries are made for this layout."""
        self._writer = Writer(self)
        self._going: ownership.Removal | None = None
        """What the user was last told would be removed."""
        self.upserts_at_once = 2  # so that the server has work while the last requests of one are under way

    # -- what is there

    def info(self, *, figures: bool = True) -> StoreInfo | None:
        if (known := self._load()) is None:
            if (lost := self._lost_alias()) is not None:
                raise lost
            return None
        index = known[1]
        self._told = index.layout
        details = {"server": self.client.connection.url, "index": ", ".join(index.concrete)}
        if not index.made_here:
            details |= {
                "made by": "not ccheck",
                "title field": index.title or "none",
                "text fields": ", ".join(index.text) or "none",
                "vector field": index.vector or "none",
            }
            if index.group is not None:
                details["papers"] = f"chunks grouped by {index.group}, {index.chunks:.1f} each on average"
            if index.semantic:
                details["semantic fields"] = f"{', '.join(index.semantic)}, which the server itself embeds"
            if index.left_out:
                said = [f"{name} ({why})" for name, why in index.left_out.items()]
                more = f"; and {len(said) - MOST_SAID:,} more" if len(said) > MOST_SAID else ""
                details["left out"] = "; ".join(said[:MOST_SAID]) + more
        elif figures:
            without_id = {"bool": {"must_not": [{"exists": {"field": mappings.ID}}]}}
            if strangers := self.client.count(self.index, without_id):
                details["not written by ccheck"] = counted(strangers, "document")
        notices = (*index.notices, *unfinished(self.name, _noted(index)))
        if (of := index.meta.get(COMPANION, {}).get("of")) is not None:
            details["made for"] = f"companion of {of}, without texts"
            notices = (*notices, f"{self.name} is the companion of {of} and has no texts. Search {of}")
        size, state = reading.figures(self.client, index) if figures else (None, None)
        return StoreInfo(
            name=self.name,
            documents=self.count() if figures else None,
            passages=reading.count_passages(self.client, self.index, index) if figures else 0,
            layout=index.layout,
            dimensions=index.dimensions,
            bytes=size,
            state=state,
            made_here=index.made_here,
            details=details,
            words=bool(index.searched["content"]),
            semantic=index.semantic,
            notices=notices,
            profile=None if index.made_here else self._profile(index),
        )

    def state(self) -> str | None:
        return reading.figures(self.client, self._index())[1]

    def _profile(self, index: Index) -> StoreProfile:
        return StoreProfile(
            title=index.title and _searched(index, index.title),
            text=tuple(_searched(index, name) for name in index.text),
            vector=index.vector,
            model=self._named.model or self._made_by(index),
            metadata=self._named.metadata,
            group=index.group or self._named.group,
        )

    def _made_by(self, index: Index) -> str | None:
        """The model that the field of vectors names in its `meta`, as `ccheck index enrich --in-place` writes it."""
        models = set()
        for one in self._looked()[1].values():
            mapped: Any = one.get("mappings", {})
            for part in (index.vector or "").split("."):
                mapped = mapped.get("properties", {}).get(part, {})
            models.add(mapped.get("meta", {}).get("model"))
        return models.pop() if len(models) == 1 else None

    def get_units(self, granularity: str, keys: Sequence[str]) -> dict[str, Unit]:
        check(self._index(), Bm25(units=granularity))
        return units.got(self.client, self.index, granularity, keys)

    def count(self, filters: Sequence[Filter] = ()) -> int:
        return self.client.count(self.index, self._passing(filters) if filters else None)

    def scan(self, filters: Sequence[Filter] = ()) -> Iterator[Document]:
        return reading.scan(self.client, self._where, self._index(), self._passing(filters))

    def _passing(self, filters: Sequence[Filter]) -> Body:
        return {"bool": {"filter": filter_bodies(self._index(), filters)}}

    def with_vectors(self, count: int) -> list[tuple[Document, list[float]]]:
        """Some documents with their vectors, to learn which model made these; none where ccheck made the index."""
        index = self._index()
        return [] if index.made_here else reading.with_vectors(self.client, self.index, index, count)

    def vectors_of(self) -> str:
        """Identifies the field of vectors, and the indices that it is in."""
        index, described = self._looked()
        return f"{self.name} {index.vector} {sorted(map(bound.uuid_of, described.values()))}"

    def fields(self) -> Mapping[str, Kind]:
        return field_kinds(self.client, self.index, self._index())

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        if not self._index().made_here:
            return {}
        found = reading.stored(self.client, self._where, ids, {"includes": ["digest"]})
        # What somebody else wrote has none: it is as unknown as if it were not there.
        return {id_: digest for id_, source in found if isinstance(digest := source.get("digest"), str)}

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        index = self._index()
        if not index.made_here:
            return self.read(ids)
        found = reading.stored(self.client, self._where, ids, index.source)
        return {id_: document(index, id_, source) for id_, source in found}

    # -- writing

    def prepare(self, layout: Layout, reading: Sequence[str] = ()) -> None:
        for analysis in layout.analyses:
            open_analysis(analysis)  # what its terms need is here, or nothing is made
        ownership.refuse_several(self.index)
        # Its own name: several threads may prepare one store at once.
        writer = self._writer = Writer(self, layout)
        _, index, described = self._load() or self._create(layout)
        if not index.made_here:
            raise ownership.foreign(self.name)
        index.layout.check(layout, self.name)
        ownership.refuse_writing(self.client, self.index, index, described)
        index = writer.index()
        meta, fields = index.meta, None
        if index.layout != layout:
            flat = any(not index.fields[f"{name}.vector"].nested for name in index.layout.dense)
            if layout.additional is not None and flat:
                raise InvalidData(
                    f"the store {self.name} has one vector for each document, and additional texts need one each. "
                    "Ingest into another store (--store)"
                )
            type_ = index.meta.get(mappings.INDEX_TYPE)
            meta = mappings.remembered(layout, type_)
            fields = mappings.layout_mappings(layout, type_, index.layout.dense)
        if noted := list(dict.fromkeys([*_noted(index), *reading])):
            meta = {**meta, READING: noted}
        if meta != index.meta or fields:
            writer.remember(meta, fields)
            writer.index(fresh=True)

    def upsert(self, entries: Sequence[Entry]) -> dict[str, str]:
        refused: dict[str, str] = {}

        def operations(index: Index) -> Iterator[bulk.Operation]:
            # Requests are sent in parallel, so an id may be in one of them only.
            for entry in {entry.document.id: entry for entry in entries}.values():
                try:
                    yield bulk.index_operation(entry, index.layout, whole=self._whole)
                except InvalidData as error:
                    refused[entry.document.id] = str(error)

        return self._writer.write(operations).refused | refused

    def delete(self, ids: Sequence[str]) -> int:
        return self._writer.write(lambda _: map(bulk.delete_operation, dict.fromkeys(ids))).results.get("deleted", 0)

    def abandon(self) -> None:
        self.client.abandon()

    def release(self) -> None:
        pass  # any number of processes may write

    def publish(self) -> None:
        self._writer.index()
        self._writer.request("POST", "_refresh", slow=True)

    def mark_ingested(self, reading: Sequence[str] = ()) -> None:
        index = self._writer.index(fresh=True)
        left = [one for one in _noted(index) if one not in reading]
        if left != _noted(index):
            self._writer.remember({**index.meta, READING: left})
        self._writer = Writer(self)

    def removal(self) -> str:
        self._going = self._removal()
        return str(self._going)

    def drop(self) -> list[Path]:
        going = self._removal()
        if self._going is not None and self._going.all != going.all:
            raise InvalidData(
                f"{self.name} changed: it was {self._going}, and is now {going}. Nothing was removed. Run the same "
                "command again"
            )
        for one in going.all:
            bound.delete(self.client, one)
        self._known, self._writer = None, Writer(self)
        return []

    def _removal(self) -> ownership.Removal:
        ownership.refuse_several(self.index)
        removal = ownership.removal(self.client, self.index, *self._looked(fresh=True))
        others = (one.name for one in numbered(self.client, self.index) if one.one != removal.one)
        connection = self.client.connection
        kept = (ElasticStore(connection, one, client=self.client)._removal() for one in others)
        return dataclasses.replace(removal, kept=tuple(kept))

    # -- searching

    def rank(self, search: Search) -> list[Ranks | CcheckError]:
        return self._following(lambda: self._ranked(search))

    def _ranked(self, search: Search, within: Sequence[Body] = ()) -> list[Ranks | CcheckError]:
        """See `Store.rank`. `within` are further queries that every document matches."""
        searched_units(search.retrievers)  # they rank the same things, or this says so
        index = self.searched(search.retrievers)
        searcher = Searcher(self.client, self.index, index, search, within)
        try:
            if (way := self.fuses(index, search)) is not None:
                try:
                    return dataclasses.replace(searcher, native=True).run()
                except NotNative as refused:
                    self.client.unfused.update(FUSINGS if refused.at_all else {way})
            return searcher.run()
        except CcheckError:
            self._known = None  # the index may have been made again
            raise

    def console(self, search: Search) -> str:
        """What `rank` sends, as Kibana's console takes it. Raises as `rank` does."""
        self.rank(search)  # after which it is known whether the server fuses
        index = self.searched(search.retrievers)
        native = self.fuses(index, search) is not None
        return Searcher(self.client, self.index, index, search, native=native).console()

    def fuses(self, index: Index, search: Search) -> Fusing | None:
        """How the server fuses this search, as far as is known; None if it does not."""
        way = fusing(index, search)
        return None if way in self.client.unfused else way

    def read(self, ids: Sequence[str]) -> dict[str, Document]:
        index = self._index()
        if not index.made_here:
            return reading.got(self.client, self.index, index, ids)
        return {id_: one for (_, id_), one in reading.found_by_id(self.client, self.index, index, ids).items()}

    def narrowed(self, queries: Sequence[Query], hits: Sequence[Sequence[Hit]]) -> list[tuple[Hit, ...]]:
        return units.with_passages(self.client, self.index, self._index(), queries, hits)

    # -- inside

    def _load(self) -> Known | None:
        """Ask for the current index; None if it does not exist."""
        described: Mapping[str, Any] = {}
        with contextlib.suppress(NotFound):
            described = bound.described(self.client, self.index)
        if not described:  # a pattern that no index fits
            self._known = None
            return None
        with self.client.understanding():
            found = {name: {"mappings": one["mappings"]} for name, one in described.items()}
        index = self._read[1] if self._read is not None and self._read[0] == found else self._understood(found)
        self._known = known = time.monotonic(), index, described
        return known

    @property
    def _where(self) -> str:
        """The name to read documents by that are to be written: while writing, that of the index that is written to."""
        return self.index if self._writer.bound is None else self._writer.bound.name

    def _understood(self, found: Mapping[str, Any]) -> Index:
        with self.client.understanding():
            index = read_index(found, self._named, self.name, partial(sampled, self.client, self.index))
            if not index.made_here:
                index = with_papers(self.client, self.index, index, self._named.group)
                index = with_hidden(self.client, self.index, index, found)
        # As long as the mapping stays, the same fields are searched, whichever documents come.
        self._read = (found, index) if index.made_here or self.count() else None
        return index

    def _index(self, fresh: bool = False) -> Index:
        return self._looked(fresh)[0]

    def _looked(self, fresh: bool = False, within: float = KNOWN_SECONDS) -> tuple[Index, Mapping[str, Any]]:
        """The index, and what the server said of each index behind the name."""
        known = self._known
        if known is None or fresh or time.monotonic() - known[0] >= within:
            known = self._load()
        if known is None:
            raise self._lost_alias() or no_store(self.name)
        return known[1:]

    def _lost_alias(self) -> NotFound | None:
        """The error for a name that is gone from an index of ccheck's that is there."""
        there: list[Numbered] = []
        with contextlib.suppress(CcheckError):  # this key may see nothing but the name
            there = [one for one in numbered(self.client, self.index) if one.filled_from is None]
        if not there or any(one.in_use for one in there):  # another process has made it since
            return None
        add = {"index": there[-1].name, "alias": self.index, "is_write_index": True}
        return NotFound(
            f"there is no {self.name}: the index {there[-1].name} has lost this alias. Put it back with "
            f"POST _aliases {json.dumps({'actions': [{'add': add}]})}"
        )

    def searched(self, retrievers: Mapping[str, Retriever]) -> Index:
        """The index, which has all that the retrievers search in; raises NotFound or UsageError if it does not."""
        index = self._index()
        try:
            for retriever in retrievers.values():
                check(index, retriever)
        except (NotFound, UsageError):
            index = self._index(fresh=True)  # it may have gained a field meanwhile
            for retriever in retrievers.values():
                check(index, retriever)
        if index.made_here and self._told is not None and not index.layout.answers(self._told):
            raise StoreChanged(
                f"{self.name} is now made with {index.layout.describe()}. Open it again: queries were made for "
                f"{self._told.describe()}"
            )
        return index

    def _following(self, search: Callable[[], T]) -> T:
        """Returns the result of a search, which is repeated if the alias has moved to another index meanwhile."""
        for _ in range(MOVES):
            try:
                return search()
            except Moved:
                self._known = None
        raise ServerError(f"the alias {self.name} moved {MOVES} times during one search: try again later")

    def _create(self, layout: Layout) -> Known:
        first = f"{self.index}{FIRST}"
        tries = 1
        try:
            body = mappings.create_body(first, self.index, layout)
            self.client.request("PUT", path_of(first), body, index=self.index)
        except AlreadyExists:  # another process was faster, or the alias was taken away
            tries = CREATED_TRIES
        except Denied as error:
            # Whoever may write to a store need not be allowed to make it.
            asked = f"ccheck index create --store {self.name}" if self._whole else "the same command"
            raise Denied(
                f"there is no {self.name}, and this key or user lacks the privilege to create it. Ask an administrator "
                f"to run {asked} ({error})"
            ) from error
        known = self._load()
        while known is None and (tries := tries - 1):
            time.sleep(CREATED_PAUSE)
            known = self._load()
        if known is None:
            raise InvalidData(
                f"the index {first} exists on {self.client.connection.url}, but not its alias {self.index}: add the "
                "alias, or delete the index"
            )
        return known

    def close(self) -> None:
        self.client.close()


def _noted(index: Index) -> list[str]:
    """What ingests read that have not ended. Others can write there what they like."""
    read = index.meta.get(READING)
    return list(map(str, read)) if isinstance(read, list) else []


def _searched(index: Index, name: str) -> str:
    """The field that BM25 searches for this one: a multi-field of it, or itself."""
    return next(iter(index.searched.get(name, ())), name)
