"""Answering a `Search`: the store ranks, and here rankings are fused and the best documents are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ..core.errors import CcheckError, InvalidData, ServerError, UsageError
from ..core.fusion import Places, Scored, fuse, places_in, ranking_of
from ..core.stages import Fusion, Retriever
from ..core.types import Document, FusedBy, Ranking, Unit, document_of
from .store import Ranks, Search, Store

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
        found = iter((rank or store.rank)(search.of(asked)) if asked else ())
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
                answers.setdefault(place, _unreadable(store, one.missing))
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


def _unreadable(store: Store, missing: Sequence[str]) -> ServerError:
    return ServerError(
        f"{store.name} found {len(missing)} documents but did not return them, such as {missing[0]}. Try again, and "
        "check that an index keeps _source"
    )


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
