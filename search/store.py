"""The contract of a store, which ingestion writes to and retrieval reads from."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, Self

from more_itertools import map_reduce

from ..core.errors import CcheckError, InvalidData, NotFound, ServerError, UsageError
from ..core.fusion import Places, Scored, fuse, places_in, ranking_of
from ..core.layout import Layout
from ..core.profiles import StoreProfile
from ..core.stages import Fusion, Retriever
from ..core.types import Document, Entry, Filter, FusedBy, Hit, Query, Ranking, Unit, document_of
from .filters import Kind


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The contents of a store.

    `pending` documents are stored, but BM25 can't find them yet. `dimensions` is the size of the vectors, None without
    vectors; an index that ccheck did not make (`made_here` is false) can have vectors without a model in its layout.
    `profile` has the fields of such an index, and the model that the settings name for its vectors.
    `state` changes whenever the content does, and is None if that is unknown. `words`: there is text for BM25 to
    search. `semantic` are fields that the server itself embeds, as it does claims. `notices` are messages for the
    person who searches; `degraded` says why searches find less than they should.
    """

    name: str
    documents: int | None
    passages: int
    layout: Layout
    dimensions: int | None = None
    bytes: int | None = None
    pending: int = 0
    state: str | None = None
    made_here: bool = True
    details: Mapping[str, str] = field(default_factory=dict)
    words: bool = True
    semantic: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    profile: StoreProfile | None = None

    @property
    def model(self) -> str | None:
        """The model that the settings name for the vectors of an index that ccheck did not make."""
        return self.profile.model if self.profile is not None else None

    @property
    def made_with(self) -> str:
        """Its layout in words, or what is known of the vectors of an index that ccheck did not make."""
        if self.made_here or self.dimensions is None or self.layout.embedding is not None:
            return self.layout.describe()
        return f"vectors of {self.dimensions} dimensions by {self.model or 'a model that the index does not name'}"


@dataclass(frozen=True, slots=True)
class Search:
    """What a store is asked.

    The ranking of a single retriever is the answer; `fusion` joins those of several. `k` is how many hits are wanted;
    with 0, only rankings are. Without `details`, each retriever's ranks and scores may be missing if the store fuses
    the rankings, which can save time. With `whole`, each ranking is as deep as its retriever, even if fewer hits are
    wanted.
    """

    queries: Sequence[Query]
    retrievers: Mapping[str, Retriever]
    fusion: Fusion = field(default_factory=Fusion)
    k: int = 0
    filters: Sequence[Filter] = ()
    details: bool = True
    whole: bool = False

    @property
    def scopes(self) -> dict[tuple[Filter, ...], list[int]]:
        """Each scope (the filters of the search and of a query) with the places of the queries that share it."""
        return map_reduce(
            range(len(self.queries)), lambda place: tuple(dict.fromkeys((*self.filters, *self.queries[place].filters)))
        )

    @property
    def alone(self) -> bool:
        """Whether the `k` best of the only retriever are all that is wanted."""
        return len(self.retrievers) == 1 and self.k > 0 and not self.whole


@dataclass(frozen=True, slots=True)
class Ranks:
    """A store's answer to one query: keys (ids, or those of units) with scores, best first, by retriever.

    If the store itself fused the rankings, `fused` is the result, and `places` has where its keys were in each ranking,
    instead of the `rankings`. `documents` are those that the search brought along.
    """

    rankings: Mapping[str, Scored[str]]
    fused: Scored[str] | None = None
    places: Places[str] = field(default_factory=dict)
    documents: Mapping[str, Document] = field(default_factory=dict)


class Store(Protocol):
    """Documents and their units, with BM25, dense and sparse retrieval over them.

    To write, call `prepare`, then `upsert` and `delete` any number of times, then `publish`. Once `upsert` has
    returned, its documents survive a crash of this process; searches find them after `publish` at the latest. Answers
    leave out ids that do not exist. All methods raise `NotFound` if the store does not exist and `ServerError` if its
    server fails.
    """

    name: str
    """Its name as `--store` takes it, without secrets."""
    upserts_at_once: int
    """How many threads may call `upsert` at a time, with different ids."""

    def info(self, *, figures: bool = True) -> StoreInfo | None:
        """Returns the contents of the store; None if it does not exist.

        Without `figures`, which cost requests or time, `passages` may be 0, `documents`, `bytes` and `state` None.
        """

    def state(self) -> str | None:
        """`StoreInfo.state`, which costs a request at most."""

    def prepare(self, layout: Layout, reading: Sequence[str] = ()) -> None:
        """Create the store, or raise InvalidData unless it accepts documents of this layout.

        `reading` are the sources of an ingest that begins: until `mark_ingested` says that they were read, `info` says
        so.
        """

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """The digests of the documents that are stored, by id."""

    def upsert(self, entries: Sequence[Entry]) -> dict[str, str]:
        """Store documents, replacing those with the same ids. Returns the reason for each id that was refused."""

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents with their units. Returns how many of them existed."""

    def abandon(self) -> None:
        """Stop waiting: calls in other threads that wait for a server give up and raise."""

    def release(self) -> None:
        """Let other processes write, after an ingest that went well or not."""

    def publish(self) -> None:
        """Make everything that was written searchable."""

    def get(self, ids: Sequence[str]) -> dict[str, Document]: ...

    def get_units(self, granularity: str, keys: Sequence[str]) -> dict[str, Unit]:
        """The units with these keys (see `unit_key`). Raises NotFound if the store lacks the granularity."""

    def scan(self, filters: Sequence[Filter] = ()) -> Iterator[Document]:
        """All documents that pass the filters, a few at a time, in no particular order; documents written meanwhile may
        be among them or not."""

    def count(self, filters: Sequence[Filter] = ()) -> int:
        """How many documents pass the filters."""

    def fields(self) -> Mapping[str, Kind]:
        """The fields that filters can use: all metadata fields, and `PUBLISHED` if any document has a date.

        This is cheap, however many documents there are.
        """

    def rank(self, search: Search) -> list[Ranks | CcheckError]:
        """Each query's rankings, before any fusion, or fused where the store does that itself.

        A query that failed has an error in its place. Each query is searched within the search's filters and its own.
        Retrievers with `units` and without `parents` rank units: their keys are those of `unit_key`. All retrievers of
        a search must rank units of the same granularity, or all must rank documents. Dense retrievers find nothing for
        a query without a vector. Only documents that a search brings along are read: thousands of keys are cheap.

        Raises NotFound if the store lacks a retriever's field or granularity, and UsageError if the retrievers rank
        different things. See `answer` for hits.
        """

    def read(self, ids: Sequence[str]) -> dict[str, Document]:
        """Documents that a search found, as searches see them. `get` has them as they were last written."""
        return self.get(ids)

    def narrowed(self, queries: Sequence[Query], hits: Sequence[Sequence[Hit]]) -> list[tuple[Hit, ...]]:
        """The hits of each query, with the part of a document that matched as `Hit.unit`.

        Only documents of an index that ccheck did not make have such parts: passages in nested documents.
        """
        return list(map(tuple, hits))

    def mark_ingested(self, reading: Sequence[str] = ()) -> None:
        """An ingest has read these sources, which `prepare` was told of. Those of other ingests stay noted."""

    def removal(self) -> str:
        """Says what `drop` would remove, worded for a question, even if the store is damaged.

        Raises NotFound if there is no store, and InvalidData if somebody else uses any of it.
        """

    def drop(self) -> list[Path]:
        """Remove the whole store. Returns the files in its folder that ccheck did not make, which stay.

        Raises as `removal` does.
        """

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


# -- what a store lacks, in the same words for all stores

MOST_NAMED = 3
"""How many sources of an ingest a notice names."""


def no_store(name: str) -> NotFound:
    """The error for a store that does not exist, with what to do."""
    return NotFound(
        f"there is no store {name} (ccheck index list shows those that exist). Create it with ccheck ingest FILE "
        f"--store {name}, or run ccheck demo, which makes one from sample papers"
    )


def no_documents(name: str) -> NotFound:
    """The error for a store without documents."""
    return NotFound(f"the store {name} is empty. Fill it with ccheck ingest FILE")


def unfinished(store: str, reading: Sequence[str]) -> tuple[str, ...]:
    """Returns the notice about a store that not all sources were read into; `reading` are those that were not."""
    if not reading:
        return ()
    files = f" of {' '.join(map(shlex.quote, reading))}" if len(reading) <= MOST_NAMED else ""
    return (
        f"an ingest{files} into {store} did not finish, or is still running, so documents may be missing. To finish "
        "it, run the same ccheck ingest again, with all options that it had",
    )


def not_held(store: str, what: str, command: str | None = None) -> NotFound:
    """The error for what a store lacks, with the `command` that adds it."""
    how = "with an embedding model" if what == "vectors" else "for a recipe that uses them"
    example = "--model MODEL" if what == "vectors" else "--recipe NAME"
    command = command or f"ccheck ingest FILE {example} --store {store}"
    return NotFound(f"the store {store} has no {what}. To add them, ingest {how}: {command}")


def refuse_missing(retrievers: Mapping[str, Retriever], layout: Layout, store: str, command: str | None = None) -> None:
    """Raise NotFound if a store with this layout lacks what a retriever searches."""
    for retriever in retrievers.values():
        if (what := retriever.searches.missing(layout)) is not None:
            raise not_held(store, what, command)


# -- answering a search: the store ranks, and here rankings are fused and the best documents are read

TRIES = 4
"""How often a search is made if documents that it found are removed before they are read."""


def searched_units(retrievers: Mapping[str, Retriever]) -> str | None:
    """The granularity of the units that these retrievers rank; None if they rank documents.

    Raises UsageError if they rank different things, which no fusion can join.
    """
    ranked = {name: None if stage.parents is not None else stage.units for name, stage in retrievers.items()}
    if len(set(ranked.values())) > 1:
        said = ", ".join(f"{name} ranks {f'units {units}' if units else 'documents'}" for name, units in ranked.items())
        raise UsageError(
            f"these retrievers rank different things: {said}. Set the same units for all of them, or set "
            "parents = 'max' for each retriever with units"
        )
    return next(iter(ranked.values()), None)


def answer(
    store: Store,
    search: Search,
    *,
    questions: Sequence[int] | None = None,
    pooled: bool = False,
    rank: Callable[[Search], Sequence[Ranks | CcheckError]] | None = None,
) -> list[Ranking | CcheckError]:
    """The `k` best documents or units for each query. A query that failed has an error in its place.

    With `questions`, each of which is that many of the queries, there is one answer for each question. With `rrf`, a
    hit's score is the sum of weight / (k + rank) over all queries and retrievers, with ranks within each query
    (AVeriTeC's 1 / (4 + rank) is `Fusion(k=4)`). `Hit.scores` and `Hit.ranks` have each retriever's best over the
    queries. A question without queries finds nothing. With `pooled`, a retriever's `depth` counts over all queries of a
    question: those with its highest scores.

    `rank` takes the place of `Store.rank`. Raises what that raises.
    """
    granularity = searched_units(search.retrievers)
    if questions is not None:
        search = replace(search, details=True, whole=True)
    queries = iter(search.queries)
    groups = [list(islice(queries, size)) for size in ([1] * len(search.queries) if questions is None else questions)]
    answers: dict[int, Ranking | CcheckError] = {}
    for tries in range(1, TRIES + 1):
        places = [place for place in range(len(groups)) if place not in answers]
        asked = [query for place in places for query in groups[place]]
        found = iter((rank or store.rank)(replace(search, queries=asked)) if asked else ())
        joined: dict[int, _Joined] = {}
        for place in places:
            each = [next(found) for _ in groups[place]]
            error = next((one for one in each if isinstance(one, CcheckError)), None)
            if error is not None:
                answers[place] = error
            else:
                joined[place] = _join(search, [one for one in each if isinstance(one, Ranks)], pooled)
        try:
            _read(store, granularity, joined.values())
        except InvalidData:  # a damaged store fails for all
            raise
        except CcheckError as error:
            answers |= {place: error for place, one in joined.items() if one.missing}
        for place, one in joined.items():
            if not one.missing:
                answers[place] = one.ranking(search.whole)
            elif tries == TRIES:
                said = (
                    f"{store.name} found {len(one.missing)} documents but did not return them, such as {one.missing[0]}"
                )
                answers.setdefault(place, ServerError(f"{said}. Try again, and check that an index keeps _source"))
        if len(answers) == len(groups):
            break
        # A document that was removed after it was found is not found again, but another one may be.
    return [answers[place] for place in range(len(groups))]


@dataclass(slots=True)
class _Joined:
    """One question's best keys, the rankings and places that they come from, and what was read for them."""

    top: Scored[str]
    rankings: Mapping[str, Scored[str]]
    places: Places[str]
    fusion: Fusion | None
    fused_by: FusedBy | None
    documents: dict[str, Document]
    units: Mapping[str, Unit] | None = None

    @property
    def missing(self) -> list[str]:
        return [key for key, _ in self.top if key not in self.documents]

    def ranking(self, whole: bool) -> Ranking:
        made = ranking_of(self.top, self.places, self.documents, self.fusion, self.units)
        return replace(made, rankings=self.rankings if whole else {}, fused_by=self.fused_by)


def _join(search: Search, ranks: Sequence[Ranks], pooled: bool) -> _Joined:
    documents = {id_: document for one in ranks for id_, document in one.documents.items()}
    fusion = search.fusion if len(ranks) * len(search.retrievers) > 1 else None
    if len(ranks) == 1 and ranks[0].fused is not None:
        return _Joined(ranks[0].fused[: search.k], {}, ranks[0].places, fusion, "server", documents)
    rankings = {(name, number): found for number, one in enumerate(ranks) for name, found in one.rankings.items()}
    if pooled:
        rankings = _pooled(rankings, {name: stage.depth for name, stage in search.retrievers.items()})
    weights = {key: search.retrievers[key[0]].weight for key in rankings}
    top = (
        fuse(rankings, weights, fusion) if fusion is not None else [one for found in rankings.values() for one in found]
    )
    best = ranks[0].rankings if len(ranks) == 1 and not pooled else _best(rankings)
    return _Joined(top[: search.k], best, places_in(best), fusion, "ccheck" if fusion is not None else None, documents)


def _read(store: Store, granularity: str | None, questions: Iterable[_Joined]) -> None:
    """Read what the questions lack, in one go."""
    questions = list(questions)
    wanted = list(dict.fromkeys(key for one in questions for key in one.missing))
    if granularity is None:
        read = store.read(wanted) if wanted else {}
    else:
        units = store.get_units(granularity, wanted) if wanted else {}
        found = store.read(list(dict.fromkeys(map(document_of, units)))) if units else {}
        read = {key: found[document_of(key)] for key in units if document_of(key) in found}
    for one in questions:
        one.documents |= {key: read[key] for key in one.missing if key in read}
        one.units = None if granularity is None else units


def _pooled(
    rankings: Mapping[tuple[str, int], Scored[str]], depths: Mapping[str, int]
) -> dict[tuple[str, int], Scored[str]]:
    """The beginnings of the rankings that hold the `depth` highest scores of each retriever over all queries."""
    kept: dict[tuple[str, int], Scored[str]] = dict.fromkeys(rankings, ())
    for name, depth in depths.items():
        rows = [
            (-score, rank, number)
            for (retriever, number), ranking in rankings.items()
            if retriever == name
            for rank, (_, score) in enumerate(ranking)
        ]
        counts = Counter(number for _, _, number in sorted(rows)[:depth])
        for number, count in counts.items():
            kept[name, number] = rankings[name, number][:count]
    return kept


def _best(rankings: Mapping[tuple[str, int], Scored[str]]) -> dict[str, Scored[str]]:
    """One ranking for each retriever: keys with their best scores over all queries."""
    best: dict[str, dict[str, float]] = {}
    for (name, _), ranking in rankings.items():
        scores = best.setdefault(name, {})
        for key, score in ranking:
            scores[key] = max(score, scores.get(key, score))
    return {name: sorted(scores.items(), key=lambda item: -item[1]) for name, scores in best.items()}
