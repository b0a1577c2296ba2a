"""Several queries for one question: each is searched separately, and the fusion joins their rankings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..core.errors import CcheckError, UsageError
from ..core.fusion import Scored, fuse, ranking_of
from ..core.stages import Fusion, Retriever
from ..core.types import Document, Filter, Query, Ranking, Unit, document_of
from .store import Store


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


def hits_of(
    store: Store,
    granularity: str | None,
    tops: Sequence[Scored[str]],
    rankings: Sequence[Mapping[str, Scored[str]]],
    fusions: Sequence[Fusion | None],
) -> list[Ranking]:
    """The hits for the best keys of several questions, read from the store in one go. See `ranking_of`."""
    keys = list(dict.fromkeys(key for top in tops for key, _ in top))
    units: Mapping[str, Unit] = {}
    documents: Mapping[str, Document]
    if granularity is None:
        documents = store.get(keys)
    else:
        units = store.get_units(granularity, keys)
        found = store.get(list(dict.fromkeys(map(document_of, units))))
        documents = {key: found[document_of(key)] for key in units if document_of(key) in found}
    return [
        ranking_of(top, one, documents, fusion, units) for top, one, fusion in zip(tops, rankings, fusions, strict=True)
    ]


def search_several(
    store: Store,
    questions: Sequence[Sequence[Query]],
    retrievers: Mapping[str, Retriever],
    fusion: Fusion,
    *,
    k: int,
    filters: Sequence[Filter] = (),
    pooled: bool = False,
) -> list[Ranking | CcheckError]:
    """The `k` best documents or units for each question. A question that failed has an error in its place.

    A question is one or more queries. With `rrf`, a hit's score is the sum of weight / (k + rank) over all queries and
    retrievers, with ranks within each query (AVeriTeC's 1 / (4 + rank) is `Fusion(k=4)`). `Hit.scores` and `Hit.ranks`
    have each retriever's best over the queries. A question without queries finds nothing. With `pooled`, a retriever's
    `depth` counts over all queries of a question: those with its highest scores. Raises as `Store.search`.
    """
    granularity = searched_units(retrievers)
    found = iter(store.rankings([query for question in questions for query in question], retrievers, filters=filters))
    answers: list[Ranking | CcheckError] = []
    joined: list[tuple[int, Scored[str], dict[str, Scored[str]], Fusion | None]] = []
    for question in questions:
        each = [next(found) for _ in question]
        error = next((one for one in each if isinstance(one, CcheckError)), None)
        if error is not None:
            answers.append(error)
            continue
        rankings = {
            (name, number): ranking
            for number, one in enumerate(each)
            if not isinstance(one, CcheckError)
            for name, ranking in one.items()
        }
        if pooled:
            rankings = _pooled(rankings, {name: stage.depth for name, stage in retrievers.items()})
        weights = {key: retrievers[key[0]].weight for key in rankings}
        several = len(rankings) > 1
        top = fuse(rankings, weights, fusion)[:k] if several else list(*rankings.values())[:k]
        joined.append((len(answers), top, _best(rankings), fusion if several else None))
        answers.append(Ranking(()))
    places, tops, scored, fusions = zip(*joined, strict=True) if joined else ((), (), (), ())
    for place, ranking in zip(places, hits_of(store, granularity, tops, scored, fusions), strict=True):
        answers[place] = ranking
    return answers


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
