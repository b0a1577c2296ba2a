"""Units: parts of documents that are searched by themselves, and queries with a scope of their own. For every store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from searching import answer_all, answer_one, bm25, fill, info_of, rank_all, rank_one, write
from store_documents import DIMENSIONS, unit
from store_units import ENTRIES, PARAGRAPHS, UNITS, cut, entry, key_of, ranked, searched

from ccheck.core.errors import CcheckError, InvalidData, NotFound, ServerError, UsageError
from ccheck.core.layout import MAIN_VECTORS, Layout
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever
from ccheck.core.types import Document, Entry, Hit, Passage, Query, Ranking, Unit, UnitEntry
from ccheck.search import Filter, Ranks, Search, Store, answer
from ccheck.search.local import LocalStore


@pytest.fixture
def store(make_store: Callable[[], Store]) -> Store:
    """A store with the four documents and their units."""
    store = make_store()
    fill(store, UNITS, ENTRIES)
    return store


def test_each_granularity_has_statistics_of_its_own(make_store: Callable[[], Store]) -> None:
    store = make_store()
    store.prepare(Layout(units={"sentences": PARAGRAPHS, "pairs": PARAGRAPHS}))
    pieces = {"a": ("apple apple berry", "cherry", "apple damson"), "b": ("berry fig",), "c": ("fig", "fig")}
    for id_, texts in pieces.items():
        text = " ".join(texts)
        pairs = [" ".join(texts[first : first + 2]) for first in range(0, len(texts), 2)]
        units = {"sentences": cut("sentences", text, texts), "pairs": cut("pairs", text, pairs)}
        store.upsert([Entry(Document(id_, "", text), "1", units=units)])
    store.publish()
    # Sentences: 6 of them with 10 terms; "apple" is in two of them.
    assert ranked(store, "apple", Bm25(units="sentences")) == pytest.approx(
        {"a#0": bm25(2, 3, 10 / 6, 2, 6), "a#2": bm25(1, 2, 10 / 6, 2, 6)}, rel=1e-4
    )
    # Pairs: "apple apple berry cherry", "apple damson", "berry fig", "fig fig".
    assert ranked(store, "apple", Bm25(units="pairs")) == pytest.approx(
        {"a#0": bm25(2, 4, 10 / 4, 2, 4), "a#1": bm25(1, 2, 10 / 4, 2, 4)}, rel=1e-4
    )
    assert ranked(store, "apple", Bm25()) == pytest.approx({"a": bm25(3, 6, 10 / 3, 1, 3)}, rel=1e-4)


def test_hits_are_units_with_their_documents(store: Store) -> None:
    hits = searched(store, "gauges", Bm25(units="sentences"))
    assert [(hit.document, hit.unit) for hit in hits] == [
        (ENTRIES[0].document, Unit("sentences", 1, 15, 35, "Tide gauges show it."))
    ]
    (hit,) = searched(store, "gauges", Bm25(units="paragraphs"))
    assert hit.unit is not None
    assert (hit.unit.number, hit.unit.text) == (0, "The sea rises. Tide gauges show it.")
    assert hit.document.text[hit.unit.start : hit.unit.end] == hit.unit.text
    (hit,) = searched(store, "gauges", Bm25())
    assert (hit.document.id, hit.unit) == ("sea", None)


def test_the_vectors_of_units(store: Store) -> None:
    asked = Query("", unit(1, 0.1))
    found = ranked(store, asked, Dense(units="sentences", depth=3))
    assert list(found) == ["sea#0", "ice#1", "sea#2"]
    assert list(found.values()) == pytest.approx(
        [1, float(unit(1, 0.1) @ unit(1, 0.2)), float(unit(1, 0.1) @ unit(1, 0.3))], abs=1e-5
    )
    assert list(ranked(store, asked, Dense(depth=1))) == ["sea"]
    assert ranked(store, "sea", Dense(units="sentences")) == {}


def test_units_are_projected_onto_their_documents(store: Store) -> None:
    units = ranked(store, "sea", Bm25(units="sentences"))
    order = list(units)
    places = {id_: [order.index(key) + 1 for key in order if key.startswith(f"{id_}#")] for id_ in ("sea", "ice")}
    best = ranked(store, "sea", Bm25(units="sentences", parents="max"))
    assert best == pytest.approx({"sea": units["sea#2"], "ice": units["ice#1"], "tea#1": units["tea#1#1"]})
    added = ranked(store, "sea", Bm25(units="sentences", parents="sum"))
    assert added["sea"] == pytest.approx(sum(1 / place for place in places["sea"]))
    first = ranked(store, "sea", Bm25(units="sentences", parents="first"))
    assert first == pytest.approx({"sea": 1.0, "ice": 1 / places["ice"][0], "tea#1": 1 / (order.index("tea#1#1") + 1)})
    assert all(list(found) == sorted(found, key=lambda id_: -found[id_]) for found in (best, added, first))
    hits = searched(store, "sea", Bm25(units="sentences", parents="max"))
    assert all(hit.unit is None for hit in hits)


def test_depth_counts_units_also_with_parents(store: Store) -> None:
    asked = Query("", unit(1, 0.3))
    assert list(ranked(store, asked, Dense(units="sentences", depth=1))) == ["sea#2"]
    assert list(ranked(store, asked, Dense(units="sentences", depth=2, parents="max"))) == ["sea", "ice"]
    assert list(ranked(store, asked, Dense(units="sentences", depth=1, parents="sum"))) == ["sea"]


def test_projected_units_are_joined_with_documents(store: Store) -> None:
    retrievers: dict[str, Retriever] = {"words": Bm25(), "sentences": Bm25(units="sentences", parents="max")}
    ranking = answer_one(store, Query("gauges"), retrievers, k=10)
    assert [(hit.document.id, hit.score) for hit in ranking.hits] == [("sea", pytest.approx(2 / 61))]


def test_a_ranking_of_different_things_is_refused(store: Store) -> None:
    retrievers: dict[str, Retriever] = {"words": Bm25(), "sentences": Bm25(units="sentences")}
    with pytest.raises(UsageError, match=r"words ranks documents.*sentences ranks units sentences"):
        answer_all(store, [Query("sea")], retrievers, k=10)
    with pytest.raises(UsageError, match="different things"):
        rank_all(store, [Query("sea")], retrievers)
    both: dict[str, Retriever] = {"one": Bm25(units="paragraphs"), "two": Bm25(units="sentences")}
    with pytest.raises(UsageError, match="different things"):
        answer_all(store, [Query("sea")], both, k=10)


def test_a_replaced_document_has_its_new_units_only(store: Store) -> None:
    write(store, [entry("sea", ("Corals bleach.",), (unit(0, 0, 0, 0, 0, 1),), digest="2")])
    assert set(ranked(store, "sea", Bm25(units="sentences"))) == {"ice#1", "tea#1#1"}
    assert list(ranked(store, "corals", Bm25(units="sentences"))) == ["sea#0"]
    assert list(ranked(store, "corals", Bm25(units="paragraphs"))) == ["sea#0"]
    assert list(ranked(store, Query("", unit(1, 0.1)), Dense(units="sentences", depth=2))) == ["ice#1", "tea#1#1"]
    assert store.get_units("sentences", ["sea#0", "sea#1", "sea#2"]) == {
        "sea#0": Unit("sentences", 0, 0, 14, "Corals bleach.")
    }


def test_a_removed_document_takes_its_units_along(store: Store) -> None:
    assert store.delete(["sea"]) == 1
    store.publish()
    assert set(ranked(store, "sea", Bm25(units="sentences"))) == {"ice#1", "tea#1#1"}
    assert ranked(store, "gauges", Bm25(units="paragraphs")) == {}
    assert "sea" not in ranked(store, Query("", unit(1)), Dense(units="sentences", parents="max"))
    assert store.get_units("sentences", ["sea#0", "ice#0"]).keys() == {"ice#0"}


# A server counts what is gone until it merges its segments.
@pytest.mark.parametrize("make_store", ["local"], indirect=True)
def test_what_is_gone_counts_in_no_statistics(make_store: Callable[..., Store]) -> None:
    store, other = make_store(), make_store("other")
    for one in (store, other):
        one.prepare(UNITS)
    write(store, ENTRIES)
    store.delete(["flu"])
    write(store, [entry("sea", ("Corals bleach.",), (unit(0, 0, 0, 1),), digest="2")])
    write(other, [ENTRIES[1], ENTRIES[3], entry("sea", ("Corals bleach.",), (unit(0, 0, 0, 1),))])
    for words in (Bm25(units="sentences"), Bm25(units="paragraphs"), Bm25(), Bm25(fuzziness="auto")):
        expected = ranked(other, "sea corals", words)
        assert len(expected) == 3
        assert ranked(store, "sea corals", words) == pytest.approx(expected, rel=1e-6)


def test_each_query_has_a_scope_of_its_own(store: Store) -> None:
    not_sea = (Filter("_id", "!=", "sea"), Filter("year", "=", "2019"))
    scopes = ((), (Filter("year", ">=", "2015"),), (Filter("_id", "=", "sea"),), not_sea, (Filter("_id", "=", "none"),))
    queries = [Query("sea", unit(1, 0.1), filters=scope) for scope in scopes]
    late, of_sea, late_units, units_of_sea = {"ice", "tea#1"}, {"sea"}, {"ice#1", "tea#1#1"}, {"sea#0", "sea#2"}
    for units, expected in (
        (None, [late | of_sea, late, of_sea, late, set()]),
        ("sentences", [late_units | units_of_sea, late_units, units_of_sea, late_units, set()]),
    ):
        found = rank_all(store, queries, {"bm25": Bm25(units=units)})
        assert [set(dict(one["bm25"])) for one in found] == expected
    retrievers: dict[str, Retriever] = {"dense": Dense(units="sentences", depth=1)}
    first = [list(dict(one["dense"])) for one in rank_all(store, queries, retrievers)]
    assert first == [["sea#0"], ["ice#1"], ["sea#0"], ["ice#1"], []]
    assert first == [[key_of(hit) for hit in one.hits] for one in answer_all(store, queries, retrievers, k=1)]


def test_the_scopes_of_call_and_query_both_hold(store: Store) -> None:
    asked = Query("sea", filters=(Filter("year", "=", "2019"),))
    assert set(ranked(store, asked, Bm25(), filters=[Filter("_id", "!=", "ice")])) == {"tea#1"}
    assert set(ranked(store, asked, Bm25(units="sentences"), filters=[Filter("_id", "=", "ice")])) == {"ice#1"}
    assert ranked(store, asked, Bm25(units="sentences"), filters=[Filter("_id", "=", "sea")]) == {}


@pytest.mark.parametrize("details", [True, False])
def test_a_scope_holds_inside_the_fusion_of_a_server(store: Store, details: bool) -> None:
    asked = Query("sea", filters=(Filter("_id", "=", "tea#1"),))
    retrievers: dict[str, Retriever] = {"content": Bm25(), "text": Bm25(fields={"text": 1.0})}
    found = answer_one(store, asked, retrievers, k=5, details=details)
    assert [hit.document.id for hit in found.hits] == ["tea#1"]


def test_dense_search_is_exact_in_every_scope(make_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """The local store reads in blocks, and of few documents other vectors than of many."""
    monkeypatch.setattr("ccheck.search.local.vectors.ROWS_AT_ONCE", 64)
    random, count, store = np.random.default_rng(0), 300, make_store()
    vectors = random.standard_normal((count, 3, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    plain = [entry(f"d#{n}", ("A sea.", "An ice.", "A tea."), list(of)) for n, of in enumerate(vectors)]
    passages = [
        {MAIN_VECTORS: tuple(Passage(0, 6, vector) for vector in of[: 1 + n % 3])} for n, of in enumerate(vectors)
    ]
    fill(store, UNITS, [replace(one, passages=of) for one, of in zip(plain, passages, strict=True)])
    assert store.delete([f"d#{n}" for n in range(0, count, 10)]) == 30
    store.publish()
    asked = unit(*random.standard_normal(DIMENSIONS).tolist())
    units = {f"d#{n}#{place}": float(asked @ vector) for n, of in enumerate(vectors) for place, vector in enumerate(of)}
    documents = {f"d#{n}": max(units[f"d#{n}#{place}"] for place in range(1 + n % 3)) for n in range(count)}
    searches = [(Dense(units="sentences", depth=50), units)]
    if store.name.startswith("local:"):  # a server's vectors of documents are quantised
        searches.append((Dense(depth=50), documents))
    for (retriever, scores), wanted in product(searches, (1, 5, 200, 270)):
        ids = {f"d#{n}" for n in random.choice([n for n in range(count) if n % 10], wanted, replace=False)}
        scope = tuple(Filter("_id", "!=", one) for one in documents.keys() - ids)
        found = rank_one(store, Query("", asked, filters=scope), {"one": retriever})["one"]
        best = sorted((key for key in scores if "#".join(key.split("#")[:2]) in ids), key=lambda key: -scores[key])[:50]
        assert [key for key, _ in found] == best
        assert [score for _, score in found] == pytest.approx([scores[key] for key in best], abs=1e-5)


def test_a_book_of_many_units(make_store: Callable[[], Store]) -> None:
    store = make_store()
    fill(store, Layout(), [replace(ENTRIES[0], passages={}, units={})])
    store.prepare(Layout(units={"paragraphs": PARAGRAPHS}))
    many = tuple(UnitEntry(Unit("paragraphs", number, 0, 4, "reef")) for number in range(20_000))
    write(store, [Entry(Document("book", "", "reef"), "1", units={"paragraphs": many})])
    found = rank_one(store, Query("reef"), {"bm25": Bm25(units="paragraphs", depth=10_000)})
    assert [key for key, _ in found["bm25"]] == [f"book#{number}" for number in range(10_000)]
    assert store.count() == 2


def test_ids_are_compared_as_they_are(store: Store) -> None:
    assert store.count([Filter("_id", "=", "tea#1")]) == 1
    assert store.count([Filter("_id", "=", "TEA#1")]) == store.count([Filter("_id", "=", "te")]) == 0
    assert store.count([Filter("_id", "!=", "tea#1")]) == 3
    assert "_id" not in store.fields()
    for operator in ("<", "<=", ">", ">="):
        one = Filter("_id", operator, "sea")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="_id"):
            store.count([one])
        with pytest.raises(UsageError, match="_id"):
            rank_all(store, [Query("sea", filters=(one,))], {"bm25": Bm25()})


def test_several_queries_for_one_question(store: Store) -> None:
    retrievers: dict[str, Retriever] = {"bm25": Bm25(units="sentences"), "dense": Dense(units="sentences", depth=2)}
    asked = [Query("gauges", unit(1, 0.1)), Query("greenland"), Query("gauges greenland", filters=(LATE,))]
    (found, other) = answer(
        store, Search([*asked, Query("vaccines")], retrievers, Fusion(k=4), 10), questions=[len(asked), 1]
    )
    assert isinstance(found, Ranking) and isinstance(other, Ranking)
    # gauges: sea#1 by words, sea#0 and ice#1 by vectors; greenland: ice#0, and ice#0 once more within the late ones.
    assert {key_of(hit): hit.score for hit in found.hits} == pytest.approx(
        {"ice#0": 1 / 5 + 1 / 5, "sea#1": 1 / 5, "sea#0": 1 / 5, "ice#1": 1 / 6}
    )
    assert key_of(found.hits[0]) == "ice#0"
    assert {key_of(hit): dict(hit.ranks) for hit in found.hits}["ice#1"] == {"dense": 2}
    assert [(key_of(hit), hit.unit and hit.unit.text) for hit in other.hits] == [("flu#0", "Vaccines work.")]


LATE = Filter("year", ">=", "2015")


def test_units_by_their_keys(store: Store) -> None:
    keys = ["tea#1#1", "sea#0", "sea#9", "sea", "sea#", "sea#00", "sea#-1", "nothing#0", "tea#1", "#", ""]
    assert store.get_units("sentences", keys) == {
        "tea#1#1": Unit("sentences", 1, 20, 42, "Nobody drinks the sea."),
        "sea#0": Unit("sentences", 0, 0, 14, "The sea rises."),
    }
    assert store.get_units("paragraphs", ["sea#1"])["sea#1"].text == "The sea, the sea and the sea rise."
    assert store.get_units("paragraphs", []) == {}


def test_a_granularity_that_the_store_does_not_have(store: Store) -> None:
    for retriever in (Bm25(units="windows"), Dense(units="windows"), Dense(units="paragraphs", parents="max")):
        for ask in (
            lambda one=retriever: answer_all(store, [Query("sea", unit(1))], {"one": one}, k=1),
            lambda one=retriever: rank_all(store, [Query("sea", unit(1))], {"one": one}),
        ):
            with pytest.raises(NotFound, match=f"{retriever.units}.*ccheck ingest FILE"):
                ask()
    with pytest.raises(NotFound, match=r"windows.*ccheck ingest FILE"):
        store.get_units("windows", ["sea#0"])


def test_a_store_gains_a_granularity(make_store: Callable[..., Store]) -> None:
    store = make_store()
    before = replace(UNITS, units={})
    fill(store, before, [replace(ENTRIES[0], units={}), replace(ENTRIES[1], units={})])
    store.prepare(UNITS)
    assert ranked(store, "gauges", Bm25(units="sentences")) == {}  # the documents that were there have none yet
    assert ranked(store, Query("", unit(1)), Dense(units="sentences")) == {}
    write(store, [replace(ENTRIES[0], digest="2")])
    assert list(ranked(store, "gauges", Bm25(units="sentences"))) == ["sea#1"]
    assert list(ranked(store, Query("", unit(1, 0.1)), Dense(units="sentences", depth=1))) == ["sea#0"]
    assert set(ranked(store, "sea", Bm25())) == {"sea", "ice"}
    assert info_of(store).layout == UNITS
    with pytest.raises(InvalidData, match="paragraphs"):  # from now on documents must bring them
        store.prepare(before)
    again = make_store()
    assert list(ranked(again, "gauges", Bm25(units="sentences"))) == ["sea#1"]


# -- several queries for one question, against sums that were calculated manually


BM25: dict[str, Retriever] = {"bm25": Bm25()}


class Scripted(LocalStore):
    """A store in which each query is the name of a ranking."""

    RANKINGS: Mapping[str, Mapping[str, Sequence[tuple[str, float]]] | CcheckError] = {
        "one": {"bm25": [("a", 9.0), ("b", 8.0), ("c", 7.0)], "dense": [("c", 0.9)]},
        "two": {"bm25": [("c", 3.0), ("d", 2.0)], "dense": []},
        "three": {"bm25": [("b", 1.0)], "dense": [("a", 0.3), ("c", 0.2)]},
        "four": {"bm25": [("a", 2.5), ("b", 0.5)], "dense": []},
        "lost": ServerError("no answer"),
    }

    def rank(self, search: Search) -> list[Ranks | CcheckError]:
        found = [self.RANKINGS[query.text] for query in search.queries]
        return [
            one if isinstance(one, CcheckError) else Ranks({name: one[name] for name in search.retrievers})
            for one in found
        ]

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        return {id_: Document(id_, "", id_) for id_ in ids}


def several(
    questions: Sequence[Sequence[str]], retrievers: Mapping[str, Retriever], fusion: Fusion, k: int, **more: bool
) -> list[Ranking | CcheckError]:
    """The answers to questions, each of several queries, which are names of rankings."""
    asked = [Query(name) for names in questions for name in names]
    store = Scripted(Path("never made"))
    return answer(store, Search(asked, retrievers, fusion, k), questions=list(map(len, questions)), **more)


def hits(ranking: Ranking | CcheckError) -> tuple[Hit, ...]:
    assert isinstance(ranking, Ranking), ranking
    return ranking.hits


@pytest.mark.parametrize(
    ("depth", "scores"),
    [
        (1, {"a": 1 / 5}),
        (3, {"a": 1 / 5, "b": 1 / 6, "c": 1 / 7}),
        (4, {"a": 1 / 5 + 1 / 5, "b": 1 / 6, "c": 1 / 7}),
        (9, {"a": 1 / 5 + 1 / 5, "b": 1 / 6 + 1 / 6, "c": 1 / 7}),
    ],
)
def test_a_pooled_depth_counts_over_all_queries(depth: int, scores: dict[str, float]) -> None:
    """As the SQL of AVeriTeC's OldJoe has it: the best rows of all queries, with their ranks within each query."""
    retrievers: dict[str, Retriever] = {"bm25": Bm25(depth=depth)}
    (found,) = several([["one", "four"]], retrievers, Fusion(k=4), k=10, pooled=True)
    assert {hit.document.id: hit.score for hit in hits(found)} == pytest.approx(scores)


def test_queries_and_retrievers_are_joined_with_their_weights() -> None:
    both: dict[str, Retriever] = {"bm25": Bm25(weight=2.0), "dense": Dense(weight=0.5)}
    (found,) = several([["one", "three"]], both, Fusion(k=1), k=2)
    assert [(hit.document.id, hit.score) for hit in hits(found)] == [
        ("b", pytest.approx(2 / 3 + 2 / 2)),
        ("a", pytest.approx(2 / 2 + 0.5 / 2)),
    ]
    assert [hit.scores["bm25"] for hit in hits(found)] == [8.0, 9.0]  # the best of each over the queries


def test_a_query_that_failed_fails_its_question() -> None:
    failed, found, nothing = several([["one", "lost"], ["four"], []], BM25, Fusion(), k=9)
    assert isinstance(failed, ServerError)
    assert [hit.document.id for hit in hits(found)] == ["a", "b"]
    assert nothing == Ranking((), {})
