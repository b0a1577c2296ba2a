"""How tests fill a store, and how they search it in one call."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ccheck.core.errors import CcheckError
from ccheck.core.layout import Layout
from ccheck.core.stages import Fusion, Retriever
from ccheck.core.types import Entry, Filter, Query, Ranking
from ccheck.search import Search, Store, StoreInfo, answer


def fill(store: Store, layout: Layout, entries: Sequence[Entry]) -> None:
    """Prepare a store for a layout, and write to it."""
    store.prepare(layout)
    write(store, entries)


def write(store: Store, entries: Sequence[Entry]) -> None:
    """Store entries, none of which may be refused, and make them searchable."""
    assert store.upsert(entries) == {}
    store.publish()


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


def answer_one(
    store: Store, query: Query, retrievers: Mapping[str, Retriever], fusion: Fusion | None = None, **options: Any
) -> Ranking:
    """The hits of one query, which may not fail."""
    (found,) = answer_all(store, [query], retrievers, fusion, **options)
    assert isinstance(found, Ranking), found
    return found


def rank_one(
    store: Store, query: Query, retrievers: Mapping[str, Retriever], **options: Any
) -> dict[str, Sequence[tuple[str, float]]]:
    """Each retriever's ranking for one query, which may not fail."""
    (found,) = rank_all(store, [query], retrievers, **options)
    assert not isinstance(found, CcheckError), found
    return dict(found)


def info_of(store: Store) -> StoreInfo:
    """What a store that exists says of itself."""
    info = store.info()
    assert info is not None
    return info


def bm25(frequency: int, terms: int, average: float, having: int, total: int) -> float:
    """Lucene's BM25 score of one term (k1 = 1.2, b = 0.75), which `having` of a total of texts have."""
    idf = math.log(1 + (total - having + 0.5) / (having + 0.5))
    return idf * frequency * 2.2 / (frequency + 1.2 * (1 - 0.75 + 0.75 * terms / average))


WORDS = "sea ice heat rain coast soil bird fish risk dose trial cohort model flood storm cloud".split()


def paper(n: int) -> dict[str, str]:
    """A record of a corpus; no two have the same words."""
    return {"_id": f"p{n}", "title": WORDS[n % 16], "text": f"{WORDS[n % 7]} {WORDS[n % 11]} {WORDS[n % 13]} w{n}"}
