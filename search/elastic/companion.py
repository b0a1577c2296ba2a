"""A companion: an index of ours beside one that ccheck did not make, with what was made of that one's documents.

It has the same ids, and vectors, sparse vectors and terms, but no texts. BM25 searches theirs, the other retrievers
search ours, and the rankings are joined here. Documents are always read from theirs, and filters are theirs, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...core.errors import CcheckError, UsageError
from ...core.fusion import Scored
from ...core.layout import Layout
from ...core.stages import Bm25, Retriever
from ...core.text import counted
from ...core.types import Query
from ..store import Ranks, Search, StoreInfo, searched_units
from . import bound, reading
from .errors import Denied
from .fields import Index
from .found import by_paper
from .queries import MAX_CANDIDATES, Body, filter_bodies
from .store import COMPANION, KNOWN_SECONDS, ElasticStore

PREFIX: Final = "ccheck-companion-"
"""Begins the name of every companion, so that no wildcard for their indices finds one."""
MOST_SCOPED = 10_000
"""A filter that no more documents pass is applied within the search of the companion, a wider one afterwards."""
SEVERAL: Final = (
    "For several, make an alias of them (POST _aliases), and use the alias: ccheck index enrich --store "
    "https://host:9200/ALIAS"
)
"""Advice for a list or a pattern, which can't have a companion."""


def may_have_one(name: str) -> bool:
    """Whether an index or alias of this name can have a companion: it is one name, on the server itself."""
    return not set(name) & set("*,") and not name.startswith((PREFIX, "."))


class Companion(ElasticStore):
    """A companion as a store. Its documents have ids and digests, but neither texts nor metadata."""

    _whole = False

    def __init__(self, theirs: JoinedStore) -> None:
        """The companion of an index, which need not exist yet. It uses the connection of `theirs`."""
        super().__init__(theirs.client.connection, f"{PREFIX}{theirs.index}", client=theirs.client)
        self._theirs = theirs

    def prepare(self, layout: Layout, reading: Sequence[str] = ()) -> None:
        super().prepare(layout, reading)
        index = self._index()
        if COMPANION not in index.meta:  # it is new, or its layout has grown
            self.remember({})
        self._theirs.forget_companion()

    def drop(self) -> list[Path]:
        self._theirs.forget_companion()
        return super().drop()

    def checkpoints(self) -> reading.Checkpoints:
        """Up to which write of each of their shards it has everything."""
        kept = self._index(fresh=True).meta.get(COMPANION, {}).get("checkpoints", {})
        return {key: number for key, number in kept.items() if isinstance(number, int)}

    def remember(self, checkpoints: reading.Checkpoints) -> None:
        index = self._writer.index(fresh=True)
        self._writer.remember({**index.meta, COMPANION: {"of": self._theirs.index, "checkpoints": dict(checkpoints)}})

    def close(self) -> None:
        """Nothing: the connection is that of the other index."""

    # -- both together

    def joined(self, theirs: StoreInfo, *, figures: bool = True) -> StoreInfo:
        """Returns the combined info of the other index and this one."""
        ours = self.info(figures=figures)
        assert ours is not None
        documents = self._theirs.count(), self.count()
        lacking, late = documents[0] - documents[1], self.behind()
        said = f"{ours.name}: {documents[1]:,} documents, {ours.layout.describe()}"
        degraded, problem = theirs.degraded, ""
        if late:
            problem = f"has not seen {counted(late, 'document')} written since it was last up to date"
            said += f"; it {problem}"
        if lacking > 0:
            problem = f"lacks {lacking:,} of {documents[0]:,} documents, which only BM25 finds"
        if problem:
            hides = "" if documents[1] else ". If a role hides documents, grant read on the companion without its query"
            run = f"Run ccheck index enrich --store {theirs.name}{hides}"
            degraded = (*degraded, f"the companion {ours.name} {problem}. {run}")
        return replace(
            theirs,
            passages=ours.passages,
            layout=ours.layout,
            dimensions=ours.dimensions or theirs.dimensions,
            state=_joined(theirs.state, ours.state),
            details={**theirs.details, "companion": said},
            semantic=() if ours.layout.dense else theirs.semantic,
            degraded=degraded,
        )

    def behind(self) -> int | None:
        """How many documents of the other index were written since this was made or renewed; None if that is unknown.

        It takes no privilege but to search. What was removed since is not found anyway.
        """
        late = 0
        if not (checkpoints := self.checkpoints()):
            return None
        for concrete, one in self._theirs._looked()[1].items():
            for number in range(int(one["settings"]["index"]["number_of_shards"])):
                upto = checkpoints.get(f"{bound.uuid_of(one)}/{number}", reading.NEVER)
                newer = [{"term": {"_index": concrete}}, {"range": {"_seq_no": {"gt": upto}}}]
                body = {"query": {"bool": {"filter": newer}}, "size": 0, "track_total_hits": True}
                found = self.client.search(self._theirs.index, body, preference=f"_shards:{number}")
                late += int(found["hits"]["total"]["value"])
        return late

    def join_rankings(self, search: Search) -> list[Ranks | CcheckError]:
        """The rankings of both; see `Store.rank`."""
        beside = _served(self._index().layout, search.retrievers)
        rest = {name: one for name, one in search.retrievers.items() if name not in beside}
        search = replace(search, details=True, whole=True)
        queries, theirs = search.queries, self._theirs._index()
        found: list[dict[str, Scored[str]] | CcheckError] = [{} for _ in queries]

        def add(places: Sequence[int], answers: Sequence[Ranks | CcheckError]) -> None:
            for place, answer in zip(places, answers, strict=True):
                before = found[place]
                if isinstance(before, dict):
                    found[place] = {**before, **answer.rankings} if isinstance(answer, Ranks) else answer

        if rest:
            add(range(len(queries)), self._theirs.rank(replace(search, retrievers=rest)))
        for conditions, places in search.scopes.items():
            asked = [replace(queries[place], filters=()) for place in places]
            add(places, self._rank(asked, beside, filter_bodies(theirs, conditions)))
        papers = self.passing(_ids(found)) if theirs.group is not None else None
        depths = {name: one.depth for name, one in search.retrievers.items()}

        def joined(one: Mapping[str, Scored[str]]) -> Ranks:
            # Equal scores keep the order of the retrievers.
            ordered = {name: list(one[name]) for name in search.retrievers}
            return Ranks(ordered if papers is None else by_paper(ordered, papers, depths))

        return [one if isinstance(one, CcheckError) else joined(one) for one in found]

    def _rank(
        self, queries: Sequence[Query], retrievers: Mapping[str, Retriever], filters: list[Body]
    ) -> list[Ranks | CcheckError]:
        """Returns this index's rankings, without documents that the other index lacks or that its filters reject."""
        within: list[Body] = []
        index = self._theirs._index()
        factor = index.chunks_asked
        if filters:
            ids, passing = self._scope(filters)
            if passing <= MOST_SCOPED:
                within = [{"ids": {"values": ids}}]
            else:
                factor *= math.ceil(2 * max(1.0, self.count() / passing))
        deeper = {
            name: one.model_copy(update={"depth": max(one.depth, min(MAX_CANDIDATES, one.depth * factor))})
            for name, one in retrievers.items()
        }
        answers = self._following(lambda: self._ranked(Search(queries, deeper, whole=True), within))
        alive = self.passing(_ids([one.rankings if isinstance(one, Ranks) else one for one in answers]), filters)

        def kept(one: Ranks) -> Ranks:
            there = {name: [hit for hit in ranked if hit[0] in alive] for name, ranked in one.rankings.items()}
            # Chunks are cut to the depth when they are papers.
            depths = {name: None if index.group is not None else retrievers[name].depth for name in there}
            return Ranks({name: ranked[: depths[name]] for name, ranked in there.items()})

        return [kept(one) if isinstance(one, Ranks) else one for one in answers]

    def _scope(self, filters: Sequence[Body]) -> tuple[list[str], int]:
        """The ids of the other index's documents that pass, if they are few, and how many pass."""
        body = {"query": {"bool": {"filter": filters}}, "size": MOST_SCOPED, "track_total_hits": True}
        answer = self.client.search(self._theirs.index, body | {"_source": False, "sort": ["_doc"]})
        with self.client.understanding():
            return [hit["_id"] for hit in answer["hits"]["hits"]], int(answer["hits"]["total"]["value"])

    def passing(self, ids: Iterable[str], filters: Sequence[Body] = ()) -> dict[str, Hashable]:
        """Those of the ids that the other index has, in documents that pass, with the paper that each is a chunk of."""
        index = self._theirs._index()
        body: Body = {"_source": False} | ({} if index.group is None else {"docvalue_fields": [index.group]})
        found: dict[str, Hashable] = {}
        for hit in reading.hits_by_id(
            self.client, self._theirs.index, sorted(ids), filters=filters, copies=len(index.concrete), **body
        ):
            papers = hit.get("fields", {}).get(index.group)
            found[hit["_id"]] = papers[0] if papers else (hit["_id"],)
        return found


class JoinedStore(ElasticStore):
    """An index or alias, together with its companion if there is one that the key or user may read."""

    _beside: tuple[float, Companion | None] | None = None
    _denied: str | None = None
    """Why its companion can't be read."""

    def companion(self, fresh: bool = False) -> Companion | None:
        if self._index().made_here or not may_have_one(self.index):
            return None
        if self._beside is None or fresh or time.monotonic() - self._beside[0] > KNOWN_SECONDS:
            beside = Companion(self)
            self._denied = None
            try:
                there = beside._load() is not None
            except Denied as error:
                there, self._denied = False, f"its companion can't be searched: {error}"
            self._beside = time.monotonic(), beside if there else None
        return self._beside[1]

    def forget_companion(self) -> None:
        """Look for it again at the next search."""
        self._beside = None

    def info(self, *, figures: bool = True) -> StoreInfo | None:
        found = super().info(figures=figures)
        beside = self.companion(fresh=True) if found is not None else None
        if found is not None and self._denied is not None:
            return replace(found, degraded=(*found.degraded, self._denied))
        return found if found is None or beside is None else beside.joined(found, figures=figures)

    def state(self) -> str | None:
        own, beside = super().state(), self.companion()
        return own if beside is None else _joined(own, beside.state())

    def searched(self, retrievers: Mapping[str, Retriever]) -> Index:
        if (beside := self.companion()) is not None and _served(beside._index().layout, retrievers):
            raise UsageError(
                f"{self.name} is searched together with {beside.name}, in requests that depend on answers: no template "
                "or console can hold them"
            )
        return super().searched(retrievers)

    def rank(self, search: Search) -> list[Ranks | CcheckError]:
        beside = self.companion()
        if beside is None or not _served(beside._index().layout, search.retrievers):
            return super().rank(search)
        searched_units(search.retrievers)  # they rank the same things, or this says so
        return beside.join_rankings(search)


def _joined(*states: str | None) -> str | None:
    return None if None in states else "+".join(map(str, states))


def _ids(answers: Iterable[Mapping[str, Scored[str]] | CcheckError]) -> set[str]:
    """All ids in rankings."""
    found = [one for one in answers if not isinstance(one, CcheckError)]
    return {id_ for one in found for ranked in one.values() for id_, _ in ranked}


def _served(layout: Layout, retrievers: Mapping[str, Retriever]) -> dict[str, Retriever]:
    """The retrievers that search in a companion with this layout. Plain BM25 searches the texts of the other index."""
    return {
        name: one
        for name, one in retrievers.items()
        if one.searches.missing(layout) is None and not (isinstance(one, Bm25) and one.analysis is None)
    }
