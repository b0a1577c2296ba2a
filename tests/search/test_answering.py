"""Several queries for one question: against sums that were calculated manually."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ccheck.core.errors import CcheckError, ServerError, UsageError
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever, Sparse
from ccheck.core.types import Document, Hit, Query, Ranking
from ccheck.search import Ranks, Search, answer
from ccheck.search.local import LocalStore
from ccheck.search.store import searched_units

BM25: dict[str, Retriever] = {"bm25": Bm25()}


class Scripted(LocalStore):
    """A store in which each query is the name of a ranking."""

    RANKINGS: Mapping[str, Mapping[str, Sequence[tuple[str, float]]] | CcheckError] = {
        "one": {"bm25": [("a", 9.0), ("b", 8.0), ("c", 7.0)], "dense": [("c", 0.9)]},
        "two": {"bm25": [("c", 3.0), ("d", 2.0)], "dense": []},
        "three": {"bm25": [("b", 1.0)], "dense": [("a", 0.3), ("c", 0.2)]},
        "four": {"bm25": [("a", 2.5), ("b", 0.5)], "dense": []},
        "removed": {"bm25": [("gone", 2.0), ("a", 1.0)], "dense": []},
        "lost": ServerError("no answer"),
    }

    def rank(self, search: Search) -> list[Ranks | CcheckError]:
        found = [self.RANKINGS[query.text] for query in search.queries]
        return [
            one if isinstance(one, CcheckError) else Ranks({name: one[name] for name in search.retrievers})
            for one in found
        ]

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        return {id_: Document(id_, "", id_) for id_ in ids if id_ != "gone"}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return Scripted(tmp_path)


def search_several(
    store: LocalStore,
    questions: Sequence[Sequence[Query]],
    retrievers: Mapping[str, Retriever],
    fusion: Fusion,
    *,
    k: int,
    pooled: bool = False,
) -> list[Ranking | CcheckError]:
    search = Search([query for question in questions for query in question], retrievers, fusion, k)
    return answer(store, search, questions=list(map(len, questions)), pooled=pooled)


def hits(ranking: Ranking | CcheckError) -> tuple[Hit, ...]:
    assert isinstance(ranking, Ranking), ranking
    return ranking.hits


def queries(*names: str) -> list[Query]:
    return [Query(name) for name in names]


def test_reciprocal_ranks_are_summed_over_queries(store: LocalStore) -> None:
    (found,) = search_several(store, [queries("one", "two", "three")], BM25, Fusion(k=4), k=10)
    assert {hit.document.id: hit.score for hit in hits(found)} == pytest.approx(
        {"c": 1 / 7 + 1 / 5, "b": 1 / 6 + 1 / 5, "a": 1 / 5, "d": 1 / 6}
    )
    assert [hit.document.id for hit in hits(found)] == ["b", "c", "a", "d"]
    best = {hit.document.id: (hit.scores["bm25"], hit.scores["rrf"]) for hit in hits(found)}
    assert best["c"] == (7.0, pytest.approx(1 / 7 + 1 / 5))


@pytest.mark.parametrize(
    ("depth", "scores"),
    [
        (1, {"a": 1 / 5}),
        (3, {"a": 1 / 5, "b": 1 / 6, "c": 1 / 7}),
        (4, {"a": 1 / 5 + 1 / 5, "b": 1 / 6, "c": 1 / 7}),
        (9, {"a": 1 / 5 + 1 / 5, "b": 1 / 6 + 1 / 6, "c": 1 / 7}),
    ],
)
def test_a_pooled_depth_counts_over_all_queries(store: LocalStore, depth: int, scores: dict[str, float]) -> None:
    """As the SQL of AVeriTeC's OldJoe has it: the best rows of all queries, with their ranks within each query."""
    retrievers: dict[str, Retriever] = {"bm25": Bm25(depth=depth)}
    (found,) = search_several(store, [queries("one", "four")], retrievers, Fusion(k=4), k=10, pooled=True)
    assert {hit.document.id: hit.score for hit in hits(found)} == pytest.approx(scores)


def test_queries_and_retrievers_are_joined_with_their_weights(store: LocalStore) -> None:
    both: dict[str, Retriever] = {"bm25": Bm25(weight=2.0), "dense": Dense(weight=0.5)}
    (found,) = search_several(store, [queries("one", "three")], both, Fusion(k=1), k=2)
    assert [(hit.document.id, hit.score) for hit in hits(found)] == [
        ("b", pytest.approx(2 / 3 + 2 / 2)),
        ("a", pytest.approx(2 / 2 + 0.5 / 2)),
    ]


def test_min_max_is_of_each_query(store: LocalStore) -> None:
    (found,) = search_several(store, [queries("one", "two")], BM25, Fusion(method="minmax"), k=10)
    assert {hit.document.id: hit.score for hit in hits(found)} == {"a": 1.0, "b": 0.5, "c": 1.0, "d": 0.0}


def test_one_query_with_one_retriever_is_its_ranking(store: LocalStore) -> None:
    alone, several = search_several(store, [queries("one"), queries("one", "two")], BM25, Fusion(), k=2)
    assert [(hit.document.id, hit.score) for hit in hits(alone)] == [("a", 9.0), ("b", 8.0)]
    assert [hit.document.id for hit in hits(several)] == ["c", "a"]


def test_what_a_question_finds_does_not_depend_on_the_others(store: LocalStore) -> None:
    (alone,) = search_several(store, [queries("one")], BM25, Fusion(), k=2)
    beside, _ = search_several(store, [queries("one"), queries("one", "two")], BM25, Fusion(), k=2)
    assert alone == beside


def test_a_query_that_failed_fails_its_question(store: LocalStore) -> None:
    failed, found, nothing = search_several(store, [queries("one", "lost"), queries("four"), []], BM25, Fusion(), k=9)
    assert isinstance(failed, ServerError)
    assert [hit.document.id for hit in hits(found)] == ["a", "b"]
    assert nothing == Ranking((), {})


def test_a_document_that_stays_unread_is_its_questions_error(store: LocalStore) -> None:
    failed, found = search_several(store, [queries("removed"), queries("four")], BM25, Fusion(), k=9)
    assert isinstance(failed, ServerError) and "such as gone" in str(failed)
    assert [hit.document.id for hit in hits(found)] == ["a", "b"]


def test_what_retrievers_rank() -> None:
    assert searched_units({}) is None
    assert searched_units({"a": Bm25(), "b": Dense(units="s", parents="max"), "c": Sparse()}) is None
    assert searched_units({"a": Bm25(units="s"), "b": Dense(units="s")}) == "s"
    for other in (Bm25(), Sparse(), Dense(units="t"), Dense(units="s", parents="sum")):
        with pytest.raises(UsageError, match="parents"):
            searched_units({"a": Bm25(units="s"), "b": other})
