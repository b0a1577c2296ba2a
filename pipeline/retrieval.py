"""Searching the store for claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ..core.errors import CcheckError
from ..core.fusion import Scored
from ..core.memory import memory_key, recall
from ..core.stages import Retriever
from ..core.types import Hit, Query, SparseVector, document_of, unit_key
from ..search import Ranks, Search, answer
from ..search.answering import searched_units
from .run import ClaimState, Run

Ranked: TypeAlias = Scored[str]


def search(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in the hits of claims that have a query, or their error; with a trace, each stage's ranking too."""
    asked = [state for state in states if state.query is not None]
    queries = [state.query for state in asked if state.query is not None]
    if not queries:
        return
    search = Search(
        queries, run.retrievers, run.recipe.fusion, run.window, run.filters, run.reads_details or run.trace, run.trace
    )
    for state, ranking in zip(asked, answer(run.store, search, rank=partial(_rank, run)), strict=True):
        if isinstance(ranking, CcheckError):
            state.error = ranking
            continue
        state.hits = ranking.hits
        if run.trace:
            stages = {name: [key for key, _ in ranked] for name, ranked in ranking.rankings.items()}
            if len(stages) > 1:
                stages[run.recipe.fusion.method] = [_key(hit) for hit in ranking.hits]
            ranks_units = searched_units(run.retrievers) is not None
            state.stages = {
                name: tuple(dict.fromkeys(map(document_of, keys) if ranks_units else keys))
                for name, keys in stages.items()
            }
    _narrow(run, asked)


def _key(hit: Hit) -> str:
    return hit.document.id if hit.unit is None else unit_key(hit.document.id, hit.unit.number)


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


def _rank(run: Run, search: Search) -> list[Ranks | CcheckError]:
    """Returns the rankings of each query. The store is asked for those that the memory does not have."""
    memory, state = run.memory, run.plan.state
    if memory is None or state is None:
        return run.store.rank(search)
    import orjson

    by_name: dict[str, list[Ranked | CcheckError]] = {}
    for name, stage in search.retrievers.items():
        settings = stage.model_dump(mode="json", exclude={"weight", "required", "query", "model", "adapter"})
        keys = [
            memory_key(
                "ranking", [state, settings, [*map(str, (*search.filters, *query.filters))]], _content(query, name)
            )
            for query in search.queries
        ]

        def compute(places: list[int], name: str = name, stage: Retriever = stage) -> list[Ranked | CcheckError]:
            asked = replace(search.of([search.queries[place] for place in places], {name: stage}), k=0, whole=True)
            return [one if isinstance(one, CcheckError) else one.rankings[name] for one in run.store.rank(asked)]

        def dump(one: Ranked | CcheckError) -> bytes | None:
            return None if isinstance(one, CcheckError) else orjson.dumps([list(pair) for pair in one])

        def load(data: bytes) -> Ranked | CcheckError:
            return [(id_, score) for id_, score in orjson.loads(data)]

        by_name[name] = recall(memory, "ranking", keys, compute, dump, load)
    rankings: list[Ranks | CcheckError] = []
    for place in range(len(search.queries)):
        every = {name: found[place] for name, found in by_name.items()}
        error = next((one for one in every.values() if isinstance(one, CcheckError)), None)
        found = {name: one for name, one in every.items() if not isinstance(one, CcheckError)}
        rankings.append(error or Ranks(found))
    return rankings


def _content(query: Query, name: str) -> bytes:
    """Returns the query of one retriever as bytes."""
    own = query.own.get(name)
    if isinstance(own, SparseVector):
        return own.ids.tobytes() + b":" + own.weights.tobytes()
    if own is not None and not isinstance(own, str):
        return own.tobytes()
    return query.words(name).encode("utf-8", "surrogatepass")
