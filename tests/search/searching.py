"""How tests search a store, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ccheck.core.errors import CcheckError
from ccheck.core.stages import Fusion, Retriever
from ccheck.core.types import Filter, Query, Ranking
from ccheck.search import Search, Store, answer


def answer_all(
    store: Store,
    queries: Sequence[Query],
    retrievers: Mapping[str, Retriever],
    fusion: Fusion | None = None,
    *,
    k: int,
    filters: Sequence[Filter] = (),
    details: bool = True,
) -> list[Ranking | CcheckError]:
    """The hits of each query."""
    return answer(store, Search(queries, retrievers, fusion or Fusion(), k, filters, details))


def rank_all(
    store: Store, queries: Sequence[Query], retrievers: Mapping[str, Retriever], *, filters: Sequence[Filter] = ()
) -> list[Any]:
    """Each retriever's ranking for each query, or the query's error."""
    found = store.rank(Search(queries, retrievers, filters=filters))
    return [one if isinstance(one, CcheckError) else one.rankings for one in found]
