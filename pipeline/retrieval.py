"""Searching the store for claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..core.errors import CcheckError
from ..core.fusion import fuse
from ..core.memory import memory_key, recall
from ..core.stages import Retriever
from ..core.types import Query, SparseVector, document_of
from ..search.several import hits_of, searched_units
from .run import ClaimState, Run

Ranked: TypeAlias = Sequence[tuple[str, float]]
Rankings: TypeAlias = Mapping[str, Ranked]
"""The ranking that each retriever returns for one query, by the retriever's name."""


def search(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in the hits of claims that have a query, or their error.

    The store does it all, fusion too, unless somebody wants to see or to remember what each retriever returned.
    """
    queries = [state.query for state in states if state.query is not None]
    states = [state for state in states if state.query is not None]
    if not queries:
        return
    if not run.trace and run.memory is None:
        rankings = run.store.search(
            queries, run.retrievers, run.recipe.fusion, k=run.window, filters=run.filters, details=run.reads_details
        )
        for state, ranking in zip(states, rankings, strict=True):
            if isinstance(ranking, CcheckError):
                state.error = ranking
            else:
                state.hits = ranking.hits
        _narrow(run, states)
        return
    weights = {name: stage.weight for name, stage in run.retrievers.items()}
    fusion = run.recipe.fusion if len(weights) > 1 else None
    found: list[tuple[ClaimState, Rankings]] = []
    for state, one in zip(states, _rankings(run, queries), strict=True):
        if isinstance(one, CcheckError):
            state.error = one
        else:
            found.append((state, one))
    granularity = searched_units(run.retrievers)
    tops = [(fuse(one, weights, fusion) if fusion else list(*one.values()))[: run.window] for _, one in found]
    joined = hits_of(run.store, granularity, tops, [one for _, one in found], [fusion] * len(found))
    for (state, one), top, ranking in zip(found, tops, joined, strict=True):
        state.hits = ranking.hits
        if run.trace:
            stages = {**one, fusion.method: top} if fusion is not None else one
            state.stages = {name: _documents(ranked, granularity) for name, ranked in stages.items()}
    _narrow(run, states)


def _narrow(run: Run, states: Sequence[ClaimState]) -> None:
    """Replaces whole documents with the parts that matched, where the store knows parts of documents."""
    found = [(state, state.query) for state in states if state.query is not None and state.hits]
    try:
        answers = run.store.narrowed([query for _, query in found], [state.hits for state, _ in found])
    except CcheckError as error:
        for state, _ in found:
            state.error = error
        return
    for (state, _), hits in zip(found, answers, strict=True):
        state.hits = hits


def _documents(ranked: Ranked, granularity: str | None) -> tuple[str, ...]:
    """The ids of the documents of a ranking, each once."""
    return tuple(dict.fromkeys(key if granularity is None else document_of(key) for key, _ in ranked))


def _rankings(run: Run, queries: Sequence[Query]) -> list[Rankings | CcheckError]:
    """Returns each retriever's ranking for each query. The store is asked for those that the memory does not have."""
    store, memory, state = run.store, run.memory, run.plan.state
    if memory is None or state is None:
        return list(store.rankings(queries, run.retrievers, filters=run.filters))
    import orjson

    by_name: dict[str, list[Ranked | CcheckError]] = {}
    for name, stage in run.retrievers.items():
        settings = stage.model_dump(mode="json", exclude={"weight", "required", "query", "model", "adapter"})
        keys = [
            memory_key("ranking", [state, settings, [*map(str, (*run.filters, *query.filters))]], _content(query, name))
            for query in queries
        ]

        def compute(places: list[int], name: str = name, stage: Retriever = stage) -> list[Ranked | CcheckError]:
            found = store.rankings([queries[place] for place in places], {name: stage}, filters=run.filters)
            return [one if isinstance(one, CcheckError) else one[name] for one in found]

        def dump(one: Ranked | CcheckError) -> bytes | None:
            return None if isinstance(one, CcheckError) else orjson.dumps([list(pair) for pair in one])

        def load(data: bytes) -> Ranked | CcheckError:
            return [(id_, score) for id_, score in orjson.loads(data)]

        by_name[name] = recall(memory, "ranking", keys, compute, dump, load)
    rankings: list[Rankings | CcheckError] = []
    for place in range(len(queries)):
        every = {name: found[place] for name, found in by_name.items()}
        error = next((one for one in every.values() if isinstance(one, CcheckError)), None)
        rankings.append(error or {name: one for name, one in every.items() if not isinstance(one, CcheckError)})
    return rankings


def _content(query: Query, name: str) -> bytes:
    """Returns the query of one retriever as bytes."""
    own = query.own.get(name)
    if isinstance(own, SparseVector):
        return own.ids.tobytes() + b":" + own.weights.tobytes()
    if own is not None and not isinstance(own, str):
        return own.tobytes()
    return query.words(name).encode("utf-8", "surrogatepass")
