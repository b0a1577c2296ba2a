"""Ranking for queries: many in one `_msearch`, fused by the server where its licence and version allow."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from elastic_transport import ApiError, TransportError
from more_itertools import constrained_batches

from ...core.errors import CcheckError, InvalidData, ServerError
from ...core.stages import Bm25, Retriever
from ...core.types import Document, Query
from ..store import Ranks, Search
from .client import Client, path_of
from .errors import (
    WHOLE,
    Busy,
    TooManyClauses,
    busy_part,
    is_security,
    part_error,
    refuse_parts,
    translate,
    unknown_retriever,
)
from .fields import Index, document
from .found import by_paper
from .mappings import ID
from .queries import (
    CLAUSES,
    FUZZY_CLAUSES,
    MAX_CANDIDATES,
    Body,
    filter_bodies,
    fused,
    initial_ranks,
    scaled,
    score_reader,
    search_part,
)
from .reading import Key, key_of, public_id, shared_ids
from .units import EXPECTED, INNER_HITS
from .units import ranked as ranked_units

SEARCHES_AT_ONCE = 100
BYTES_AT_ONCE = 4 << 20
HITS_AT_ONCE = 20_000
"""How many hits the searches of one request may ask for, so that an answer has some megabytes."""
ALONG = 100
"""How many documents searches may bring along. More are read for all queries together, each once."""
NATIVE = ""
"""The name of the server's own fusion among a query's searches."""

_NUMBERS = re.compile(r"\[[-\d.,e\s]+\]")
_WITHOUT_TOTAL = {"track_total_hits": False}

Ranked = list[tuple[Key, float]]


class WithoutId(Exception):
    """A document that somebody else wrote lacks the field that repeats its id."""


class Moved(Exception):
    """The alias stands for another index than when the search was made."""


class NotNative(Exception):
    """The server does not fuse in this way: its licence, its version or the key's privileges do not allow it (a key for
    the alias alone may not search the point in time inside), or it does not say how it did. `at_all`: in no way."""

    def __init__(self, at_all: bool = False) -> None:
        super().__init__()
        self.at_all = at_all


class Unscaled(CcheckError):
    """The server's `linear` left scores as they are, which ccheck's fusion would not."""


@dataclass(frozen=True, slots=True)
class Searches:
    """The searches of one query, by retriever's name or `NATIVE`, and their lines in a `_msearch`.

    `size` is the bytes that they count in a request: a search, and a hit that it asks for, count as some at least.
    """

    query: Query
    bodies: Mapping[str, Body]
    lines: bytes
    size: int


@dataclass(slots=True)
class Found:
    """The server's answer to one query."""

    rankings: dict[str, Ranked]
    fused: Ranked | None = None
    places: dict[str, dict[Key, tuple[int, float]]] = field(default_factory=dict)
    documents: dict[Key, Document] = field(default_factory=dict)

    def ranks(self, shared: frozenset[str]) -> Ranks:
        """The same by public ids, given the ids that documents in several indices have."""

        def named(ranked: Ranked) -> list[tuple[str, float]]:
            return [(public_id(key, shared), score) for key, score in ranked]

        documents = {public_id(key, shared): one for key, one in self.documents.items()}
        return Ranks(
            {name: named(ranked) for name, ranked in self.rankings.items()},
            None if self.fused is None else named(self.fused),
            {name: {public_id(key, shared): at for key, at in found.items()} for name, found in self.places.items()},
            {id_: replace(one, id=id_) for id_, one in documents.items()},
        )


@dataclass(frozen=True, slots=True)
class Searcher:
    """One call of `ElasticStore.rank`.

    `within`: queries that all documents match, too. `stored_ids`: read ids from where documents are stored. `clauses`:
    what fuzzy words may become.
    """

    client: Client
    name: str
    index: Index
    search: Search
    within: Sequence[Body] = ()
    native: bool = False
    stored_ids: bool = False
    clauses: int = FUZZY_CLAUSES

    def run(self) -> list[Ranks | CcheckError]:
        """Raises NotNative if `native` was tried in vain, UsageError or InvalidData for what fits no query."""
        answers: list[Ranks | CcheckError] = []
        plans = [self._plan(query) for query in self.search.queries]
        for chunk in constrained_batches(plans, BYTES_AT_ONCE, get_len=attrgetter("size"), strict=False):
            answers += self._named(self._answer(chunk))
        return answers

    def console(self) -> str:
        """The searches as Kibana's console takes them, an empty line between two."""
        params = "?include_named_queries_score=true" if self._explains else ""
        asked = f"GET {path_of(self.name, '_search')[1:]}{params}"
        bodies = [body for query in self.search.queries for body in self.bodies(query).values()]
        written = (json.dumps(body, indent=2, ensure_ascii=False) for body in bodies)
        # A vector stays in one line.
        return "\n\n".join(f"{asked}\n{_NUMBERS.sub(lambda row: ' '.join(row[0].split()), one)}" for one in written)

    def bodies(self, query: Query) -> Mapping[str, Body]:
        """The searches of a query, by retriever's name or `NATIVE`."""
        return {name: body | _WITHOUT_TOTAL for name, body in self._plan(query).bodies.items()}

    def _plan(self, query: Query) -> Searches:
        filters = [*self.within, *filter_bodies(self.index, (*self.search.filters, *query.filters))]
        bodies: dict[str, Body] = {}
        for name, retriever in self.search.retrievers.items():
            asked = retriever.model_copy(update={"depth": self._depth(retriever)})
            body = search_part(self.index, name, query, asked, filters, self.clauses)
            if body is not None:
                bodies[name] = body
        searches: dict[str, Body] = {}
        k = self.search.k
        source = (self.index.source or True) if k * len(self.search.queries) <= ALONG else False
        if self.native and len(bodies) == len(self.search.retrievers):
            joined = fused({name: body["retriever"] for name, body in bodies.items()}, self.search)
            explain = {"explain": True} if self._explains else {}
            searches[NATIVE] = {"retriever": joined, "size": k, "_source": source} | explain
        else:
            # The only retriever's ranking is the answer, so that its search brings the documents along.
            alone = self.search.alone and not (self._of_units or self.index.group)
            for name, body in bodies.items():
                depth = self._depth(self.search.retrievers[name])
                if alone:
                    read: Body = {"size": min(depth, k), "_source": source}
                elif self.index.group is not None:
                    read = {"size": depth, "_source": False, "docvalue_fields": [self.index.group]}
                elif self.stored_ids or not self.index.made_here:
                    read = {"size": depth, "_source": False}
                else:
                    read = {"size": depth, "stored_fields": "_none_", "docvalue_fields": [ID]}
                searches[name] = body | read
        # The same copies of the shards answer all searches of a query, so that their ranks fit together.
        header = {"preference": f"ccheck-{zlib.crc32(query.text.encode('utf-8', 'ignore'))}"} | WHOLE
        parts = [json.dumps(part) for body in searches.values() for part in (header, body | _WITHOUT_TOTAL)]
        lines = "".join(f"{part}\n" for part in parts).encode()
        hits = sum(body["size"] * (EXPECTED if name in self._of_units else 1) for name, body in searches.items())
        by_count = len(searches) * (BYTES_AT_ONCE // SEARCHES_AT_ONCE)
        return Searches(query, searches, lines, max(len(lines), by_count, hits * (BYTES_AT_ONCE // HITS_AT_ONCE)))

    @property
    def _explains(self) -> bool:
        """Whether the server must say how it fused."""
        return self.native and (self.search.details or self.search.fusion.method == "minmax")

    @property
    def _wanted(self) -> str:
        """The parts of an answer that are read (`filter_path`): a small share of 10,000 hits, or of explanations."""
        parts = ["_id", "_score", "fields", "_index", "_source"]
        if self._explains:
            parts += ["matched_queries", "_explanation.description", "_explanation.details.description"]
        parts += ["sort", f"inner_hits.{INNER_HITS}.hits.hits"] if self._of_units else []
        whole = ("status", "error", "timed_out", "_shards.total", "_shards.failed", "_shards.failures")
        return ",".join([f"responses.{part}" for part in (*whole, *(f"hits.hits.{part}" for part in parts))])

    @property
    def _of_units(self) -> set[str]:
        """The retrievers that search units."""
        return {name for name, retriever in self.search.retrievers.items() if retriever.units}

    def _depth(self, retriever: Retriever) -> int:
        """How many hits a retriever is asked for: several chunks in place of each paper."""
        return min(retriever.depth * self.index.chunks_asked, MAX_CANDIDATES)

    def _answer(self, plans: Sequence[Searches]) -> list[Found | CcheckError]:
        try:
            answers = self._ask(plans)
        except WithoutId:
            if self.stored_ids:
                raise ServerError(f"{self.client.connection.url} returned documents without ids") from None
            return self._again(plans, stored_ids=True)
        except InvalidData as error:
            # One search that the server can't even read makes it refuse them all.
            return [error] if len(plans) == 1 else [answer for plan in plans for answer in self._answer([plan])]
        return [self._with_fewer(plan, one) for plan, one in zip(plans, answers, strict=True)]

    def _with_fewer(self, plan: Searches, answer: Found | CcheckError) -> Found | CcheckError:
        """The answer, or if its fuzzy words became too many, that to a search in which they become fewer; or if the
        server did not scale scores, that of ccheck's fusion."""
        if isinstance(answer, Unscaled):
            return self._again([plan], native=False)[0]
        fuzzy = any(isinstance(one, Bm25) and one.fuzziness for one in self.search.retrievers.values())
        if not isinstance(answer, TooManyClauses) or not fuzzy or self.clauses == CLAUSES:
            return answer
        return self._again([plan], clauses=CLAUSES)[0]

    def _again(self, plans: Sequence[Searches], **otherwise: Any) -> list[Found | CcheckError]:
        """The answers to the same queries, asked otherwise."""
        other = replace(self, **otherwise)
        return other._answer([other._plan(plan.query) for plan in plans])

    def _ask(self, plans: Sequence[Searches]) -> list[Found | CcheckError]:
        """Returns the server's answer to each query. Those that it had no time for are sent again, without the rest."""
        path = path_of(self.name, "_msearch")
        params: dict[str, Any] = {"max_concurrent_searches": self.client.connection.concurrency}  # fewer when rejected
        params |= {"filter_path": self._wanted}
        if self._explains:
            params["include_named_queries_score"] = "true"
        found: dict[int, Found | CcheckError] = {}
        left = dict(enumerate(plans))

        def attempt() -> None:
            nonlocal left
            lines = b"".join(plan.lines for plan in left.values())
            answer = self.client.send("POST", path, lines, params) if lines else {"responses": ()}
            again: dict[int, Searches] = {}
            busy: Busy | None = None
            with self.client.understanding():
                responses = iter(answer["responses"])
                for place, plan in left.items():
                    own = {name: next(responses) for name in plan.bodies}
                    refused = next(filter(None, map(busy_part, own.values())), None)
                    if refused is None:
                        found[place] = self._found(plan, own)
                    else:
                        again[place], busy = plan, refused
            others, left = len(again) < len(left), again
            if busy is not None:
                params["max_concurrent_searches"] = max(1, params["max_concurrent_searches"] // 2)
                raise Busy(busy.status, busy.body, others)

        try:
            self.client.again(path, attempt)
        except (ApiError, TransportError, Busy) as error:
            if self.native and isinstance(error, ApiError):
                denied = is_security(error.body)
                if denied or unknown_retriever(error.body):
                    raise NotNative(at_all=denied) from error
            failure = translate(error, self.client.connection, self.name)
            if not found and not isinstance(error, Busy):
                raise failure from error
            found |= dict.fromkeys(left, failure)
        return [found[place] for place in range(len(plans))]

    def _found(self, plan: Searches, responses: Mapping[str, dict[str, Any]]) -> Found | CcheckError:
        """Raises Moved if the alias of an index of ccheck's is on another one by now."""
        there = self.index.concrete[0]
        for response in responses.values():
            if "error" in response:
                if NATIVE in responses and is_security(response):
                    raise NotNative(at_all=True)
                return part_error(response, self.client.connection, self.name)
            try:
                refuse_parts(response, self.client.connection, self.name)
            except ServerError as error:
                return error
            if self.index.made_here and any(hit.get("_index", there) != there for hit in _hits(response)[:1]):
                raise Moved
        try:
            found = self._fused(responses[NATIVE]) if NATIVE in responses else Found(self._rankings(responses))
        except Unscaled as error:
            return error
        for hit in (hit for response in responses.values() for hit in _hits(response)):
            if "_source" in hit:
                key = key_of(hit)
                found.documents.setdefault(key, document(self.index, key[1], hit["_source"]))
        return found

    def _rankings(self, responses: Mapping[str, dict[str, Any]]) -> dict[str, Ranked]:
        retrievers, group = self.search.retrievers, self.index.group
        rankings = {name: self._ranked(name, responses[name]) if name in responses else [] for name in retrievers}
        if group is None:
            return rankings
        hits = (hit for response in responses.values() for hit in _hits(response))
        papers = {key_of(hit): hit["fields"][group][0] for hit in hits if group in hit.get("fields", {})}
        return by_paper(rankings, papers, {name: retriever.depth for name, retriever in retrievers.items()})

    def _fused(self, response: Mapping[str, Any]) -> Found:
        """The server's own fusion. With details, it is what `core.fusion.fuse` would make of the same ranks: scores of
        more digits, and equal ones in the order in which the retrievers found the documents.

        Raises NotNative if the details are not there, Unscaled for scores that `minmax` would scale.
        """
        if self.search.fusion.method == "minmax":
            said = [scaled(hit, self.search.retrievers) for hit in _hits(response)]
            if None in said:
                raise NotNative
            if False in said:
                raise Unscaled("scores are not scaled")
        if not self.search.details:
            return Found({}, self._ranked(NATIVE, response))
        places: dict[str, dict[Key, tuple[int, float]]] = {name: {} for name in self.search.retrievers}
        readers = {name: score_reader(self.index, one) for name, one in self.search.retrievers.items()}
        order: dict[Key, tuple[float, int, int]] = {}
        for hit in _hits(response):
            key, scores, ranks = _key(hit), hit.get("matched_queries", {}), initial_ranks(hit) or []
            found = [(name, place, rank) for place, (name, rank) in enumerate(zip(places, ranks, strict=False)) if rank]
            if len(ranks) != len(places) or any(name not in scores for name, _, _ in found):
                raise NotNative
            # With a routing of their own two documents of an index can have the same id.
            if key not in order:
                weights = self.search.retrievers
                total = sum(weights[name].weight / (self.search.fusion.k + rank) for name, _, rank in found)
                order[key] = (-total, *found[0][1:])
                for name, _, rank in found:
                    places[name][key] = rank, readers[name](scores[name])
        return Found({}, [(key, -order[key][0]) for key in sorted(order, key=order.__getitem__)], places)

    def _ranked(self, name: str, response: Mapping[str, Any]) -> Ranked:
        read = float if name == NATIVE else score_reader(self.index, self.search.retrievers[name])
        if name in self._of_units:
            retriever = self.search.retrievers[name]
            return ranked_units(retriever, [(_key(hit), hit) for hit in _hits(response)], read)
        best: dict[Key, float] = {}
        for hit in _hits(response):
            # With a routing of their own two documents of an index can have the same id.
            best.setdefault(_key(hit), read(hit["_score"]))
        return list(best.items())

    def _named(self, answers: Sequence[Found | CcheckError]) -> list[Ranks | CcheckError]:
        """The answers by public ids: an alias can stand for several indices that share some."""
        found = [one for one in answers if isinstance(one, Found)]
        rankings = (ranked for one in found for ranked in (one.fused or (), *one.rankings.values()))
        try:
            shared = shared_ids(self.client, self.name, self.index, (id_ for one in rankings for (_, id_), _ in one))
        except CcheckError as error:
            return [error if isinstance(one, Found) else one for one in answers]
        return [one.ranks(shared) if isinstance(one, Found) else one for one in answers]


def _hits(response: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The hits of a search; a filtered answer leaves out what is empty."""
    hits: Sequence[Mapping[str, Any]] = response.get("hits", {}).get("hits", ())
    return hits


def _key(hit: Mapping[str, Any]) -> Key:
    try:
        return key_of(hit)
    except KeyError:
        raise WithoutId from None
