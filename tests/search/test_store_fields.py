"""What every store must do with the fields that recipes ask for: the same tests for both kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from filling import fill, write
from searching import rank_all
from store_documents import BM25, DENSE, LAYOUT, ids, search
from store_fields import (
    DOCUMENTS,
    FULL,
    MAIN,
    OTHER,
    PLAIN,
    SECOND,
    SPARSE,
    WEIGHTS,
    entry,
    filled,
    names,
    one,
    ranked,
    second,
    sparse,
)

from ccheck.core.errors import CcheckError, InvalidData, NotFound
from ccheck.core.layout import MAIN_VECTORS, Layout
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever, Sparse
from ccheck.core.types import Document, Entry, Passage, Query
from ccheck.search import Store, parse_filter


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    return filled(make_store())


# -- rankings


def test_rankings_are_what_the_retrievers_hand_on(store: Store) -> None:
    retrievers: dict[str, Retriever] = {"words": Bm25(), "meaning": Dense(depth=2), "learned": Sparse()}
    queries = [
        Query("sea ice", MAIN["ice"], {"learned": sparse({3: 1.0})}),
        Query("influenza", MAIN["flu"], {"learned": sparse({99: 2.0})}),
        Query("the of and"),
    ]
    first, other, nothing = rank_all(store, queries, retrievers)
    assert not isinstance(first, CcheckError) and not isinstance(other, CcheckError)
    assert {name: names(found) for name, found in first.items()} == {
        "words": ["ice", "sea"],
        "meaning": ["ice", "sea"],
        "learned": ["sea", "ice"],
    }
    assert first["meaning"][1][1] == pytest.approx(float(MAIN["ice"] @ MAIN["sea"]), abs=1e-5)
    assert names(other["words"]) == names(other["learned"]) == ["flu"]
    assert nothing == {"words": [], "meaning": [], "learned": []}
    fused = search(store, queries[0], retrievers, k=10)
    assert fused[0].ranks.keys() == retrievers.keys()
    for hit in fused:
        places = {name: names(ranking) for name, ranking in first.items()}
        id_ = hit.document.id
        assert hit.ranks == {name: of.index(id_) + 1 for name, of in places.items() if id_ in of}


def test_rankings_of_thousands(make_store: Callable[..., Store]) -> None:
    store = make_store()
    store.prepare(Layout())
    numbers = range(3000)
    write(store, [Entry(Document(f"d{n}", "", "zebra " * (1 + n % 3) + f"n{n}"), "1") for n in numbers])
    (found,) = rank_all(store, [Query("zebra")], {"bm25": Bm25(depth=2500)})
    assert not isinstance(found, CcheckError)
    assert len(found["bm25"]) == len(set(names(found["bm25"]))) == 2500
    scores = [score for _, score in found["bm25"]]
    assert scores == sorted(scores, reverse=True)
    assert {int(id_[1:]) % 3 for id_ in names(found["bm25"][:1000])} == {2}


def test_rankings_with_filters(store: Store) -> None:
    found = rank_all(
        store,
        [Query("sea influenza tea", MAIN["sea"], {"sparse": sparse({3: 1, 50: 1, 0: 1})})],
        {"bm25": Bm25(), "dense": Dense(), "sparse": Sparse()},
        filters=[parse_filter("year=2015")],
    )
    (rankings,) = found
    assert not isinstance(rankings, CcheckError)
    assert {name: set(names(ranking)) for name, ranking in rankings.items()} == {
        name: {"flu", "tea"} for name in ("bm25", "dense", "sparse")
    }


def test_rankings_say_what_is_missing(make_store: Callable[..., Store]) -> None:
    store = make_store()
    with pytest.raises(NotFound, match="ccheck ingest"):
        rank_all(store, [Query("sea")], BM25)
    fill(store, Layout(), [Entry(DOCUMENTS[0], "1")])
    with pytest.raises(NotFound, match="no vectors"):
        rank_all(store, [Query("sea", MAIN["sea"])], DENSE)


@pytest.mark.parametrize(
    "retriever",
    [
        Bm25(analysis=PLAIN),
        Bm25(fields={"additional": 1.0}),
        Bm25(fields={"content": 1.0, "additional": 0.5}),
        Dense(field=SECOND),
        Sparse(),
    ],
    ids=["analysis", "additional", "content and additional", "dense", "sparse"],
)
def test_a_field_that_the_store_lacks(make_store: Callable[..., Store], retriever: Retriever) -> None:
    store = make_store()
    fill(store, LAYOUT, [Entry(DOCUMENTS[0], "1", {MAIN_VECTORS: (Passage(0, 4, MAIN["sea"]),)})])
    query = Query("sea", MAIN["sea"], {"sparse": sparse({3: 1.0})})
    with pytest.raises(NotFound, match=r"ccheck ingest .*--recipe"):
        rank_all(store, [query], one(retriever))


# -- what a retriever is asked of its own


def test_each_retriever_can_be_asked_something_of_its_own(store: Store) -> None:
    retrievers: dict[str, Retriever] = {"a": Bm25(), "b": Bm25(), "c": Dense(), "d": Dense()}
    query = Query("sea level", MAIN["sea"], {"b": "influenza", "d": MAIN["tea"]})
    (found,) = rank_all(store, [query], retrievers)
    assert not isinstance(found, CcheckError)
    assert {name: ranking[0][0] for name, ranking in found.items()} == {"a": "sea", "b": "flu", "c": "sea", "d": "tea"}
    only: dict[str, Retriever] = {"b": Bm25(depth=1), "d": Dense(depth=1)}
    assert set(ids(search(store, query, only))) == {"flu", "tea"}


# -- additional texts


def test_documents_are_found_by_their_additional_texts(store: Store) -> None:
    additional = Bm25(fields={"additional": 1.0})
    assert names(ranked(store, Query("beach"), additional)) == ["sea"]
    assert names(ranked(store, Query("jab"), additional)) == ["flu"]
    assert ranked(store, Query("influenza"), additional) == []
    assert ranked(store, Query("jab"), Bm25()) == []
    both = Bm25(fields={"content": 1.0, "additional": 0.5})
    assert set(names(ranked(store, Query("jab ice"), both))) == {"ice", "flu"}
    assert store.get(["sea"])["sea"] == DOCUMENTS[0]


def test_additional_texts_change_with_their_document(store: Store) -> None:
    write(store, [replace(entry(DOCUMENTS[0], "2"), additional=("Pebbles.",))])
    additional = Bm25(fields={"additional": 1.0})
    assert ranked(store, Query("beach"), additional) == []
    assert names(ranked(store, Query("pebble"), additional)) == ["sea"]


# -- several fields of vectors


def test_each_field_of_vectors_answers_for_itself(store: Store) -> None:
    dense = Dense(field=SECOND)
    found = ranked(store, Query("", OTHER["flu"]), dense)
    assert found[0] == ("flu", pytest.approx(1, abs=1e-5))
    assert len(found) == 4
    assert ranked(store, Query("", MAIN["ice"]), Dense())[0][0] == "ice"
    assert ranked(store, Query("", MAIN["ice"]), Dense(field="passages"))[0][0] == "ice"
    both: dict[str, Retriever] = {"main": Dense(depth=1), "second": dense.model_copy(update={"depth": 1})}
    assert set(ids(search(store, Query("", MAIN["sea"], {"second": OTHER["tea"]}), both))) == {"sea", "tea"}
    with pytest.raises(CcheckError, match="dimensions"):
        rank_all(store, [Query("", MAIN["sea"])], {"second": dense})


def test_a_field_of_vectors_that_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(NotFound, match=r"passages_00000000.*--recipe"):
        rank_all(store, [Query("", MAIN["sea"])], {"dense": Dense(field="passages_00000000")})


def test_further_vectors_change_and_go_with_their_document(store: Store) -> None:
    sea = entry(DOCUMENTS[0], "2")
    changed = replace(sea, passages={**sea.passages, SECOND: (Passage(0, 4, second(1, 0, 0, 1)),)})
    store.upsert([changed])
    store.delete(["tea"])
    store.publish()
    found = dict(ranked(store, Query("", second(1, 0, 0, 1)), Dense(field=SECOND)))
    assert found == {
        "sea": pytest.approx(1, abs=1e-5),
        "flu": pytest.approx(0.5**0.5, abs=1e-5),
        "ice": pytest.approx(0, abs=1e-5),
    }


# -- sparse vectors


def dots(query: Mapping[int, float], documents: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    found = {id_: sum(query.get(token, 0.0) * weight for token, weight in of.items()) for id_, of in documents.items()}
    return {id_: score for id_, score in found.items() if score > 0}


def asked(weights: Mapping[int, float]) -> Query:
    return Query("", None, {"sparse": sparse(weights)})


CLOSE = 0.01
"""Elasticsearch keeps weights with 8 bits of precision."""


def test_sparse_scores_are_dot_products(store: Store) -> None:
    for weights in ({3: 1.0}, {3: 0.5, 8: 0.25, 99: 1.0}, {0: 2.0, 1: 3.0}, {1: 1.0, 2: 1.0}):
        expected = dots(weights, WEIGHTS)
        found = ranked(store, asked(weights), Sparse())
        assert dict(found) == pytest.approx(expected, rel=CLOSE)
        assert names(found) == sorted(expected, key=lambda id_: -expected[id_])
    assert ranked(store, Query("sea"), Sparse()) == []
    assert ranked(store, asked({}), Sparse()) == []
    assert names(ranked(store, asked({3: 1.0}), Sparse(depth=1))) == ["sea"]


def test_sparse_with_updates_deletes_and_filters(store: Store) -> None:
    store.upsert([replace(entry(DOCUMENTS[0], "2"), sparse=sparse({8: 3.0}))])
    store.upsert([replace(entry(DOCUMENTS[3], "2"), sparse=None)])
    store.delete(["flu"])
    store.publish()
    assert ranked(store, asked({0: 1.0, 50: 1.0}), Sparse()) == []
    query = asked({3: 1.0, 8: 1.0})
    assert dict(ranked(store, query, Sparse())) == pytest.approx({"sea": 3.0, "ice": 2.5}, rel=CLOSE)
    assert names(ranked(store, query, Sparse(), filters=[parse_filter("year>2015")])) == ["ice"]
    write(store, [entry(document) for document in DOCUMENTS])
    assert dict(ranked(store, asked({3: 1.0, 99: 1.0}), Sparse())) == pytest.approx(
        {"flu": 1.75, "sea": 1.5, "ice": 0.5}, rel=CLOSE
    )


def test_three_retrievers_are_fused(store: Store) -> None:
    retrievers: dict[str, Retriever] = {"bm25": Bm25(), "dense": Dense(), "sparse": Sparse(weight=2.0)}
    query = Query("sea ice", MAIN["ice"], {"sparse": sparse({3: 1.0, 8: 1.0})})
    hits = search(store, query, retrievers, fusion=Fusion(k=10))
    assert ids(hits)[:2] == ["ice", "sea"]
    for hit in hits:
        expected = sum(retrievers[name].weight / (10 + rank) for name, rank in hit.ranks.items())
        assert hit.score == hit.scores["rrf"] == pytest.approx(expected, rel=1e-5)
    assert hits[0].ranks == {"bm25": 1, "dense": 1, "sparse": 1}


def test_sparse_against_a_product_of_matrices(make_store: Callable[..., Store]) -> None:
    random = np.random.default_rng(0)
    field = replace(SPARSE, vocabulary=1000)
    store = make_store()
    store.prepare(Layout(sparse=field))
    matrix = np.zeros((400, 1000), np.float32)
    for row in matrix:
        row[random.choice(1000, 40, replace=False)] = random.gamma(2.0, 0.4, 40) + 0.05
    matrix[7] = 0
    entries = [
        Entry(Document(f"d{n}", "", f"n{n}"), "1", sparse=sparse({int(t): float(row[t]) for t in np.flatnonzero(row)}))
        for n, row in enumerate(matrix)
    ]
    for first in range(0, 400, 100):
        write(store, entries[first : first + 100])
    for _ in range(3):
        tokens = random.choice(1000, 12, replace=False)
        weights = {
            int(token): float(weight) for token, weight in zip(tokens, random.gamma(2.0, 0.4, 12) + 0.1, strict=True)
        }
        scores = matrix[:, sorted(weights)] @ np.array([weights[token] for token in sorted(weights)], np.float32)
        found = ranked(store, asked(weights), Sparse(depth=400))
        assert dict(found) == pytest.approx({f"d{n}": s for n, s in enumerate(scores.tolist()) if s > 0}, rel=CLOSE)


# -- the store's state


def state(store: Store) -> str:
    info = store.info()
    assert info is not None and info.state
    return info.state


def test_the_state_changes_with_what_is_stored(make_store: Callable[..., Store], store: Store) -> None:
    seen = [state(store)]
    assert state(make_store()) == state(store) == seen[0]
    rank_all(store, [Query("sea")], BM25)
    assert state(store) == seen[0]
    write(store, [entry(DOCUMENTS[0], "2")])
    seen.append(state(store))
    store.delete(["tea"])
    store.publish()
    seen.append(state(store))
    assert state(make_store()) == seen[-1]
    other = make_store("other")
    fill(other, FULL, [entry(document) for document in DOCUMENTS])
    seen.append(state(other))
    assert len(set(seen)) == 4


# -- a store that gains fields


def test_a_store_gains_fields(make_store: Callable[..., Store]) -> None:
    store = make_store()
    store.prepare(LAYOUT)
    plain = [Entry(d, "1", {MAIN_VECTORS: entry(d).passages[MAIN_VECTORS]}) for d in DOCUMENTS]
    write(store, plain)
    reader = make_store()
    assert names(ranked(reader, Query("influenza"), Bm25())) == ["flu"]
    before = state(store)
    store.prepare(FULL)
    info = store.info()
    assert info is not None and info.layout == FULL
    # The local store has words at once, since it has the texts; all else comes with the documents.
    words = ["ice", "sea"] if store.name.startswith("local:") else []
    assert names(ranked(store, Query("RAISES, risen!"), Bm25(analysis=PLAIN))) == words
    assert ranked(store, asked({3: 1.0}), Sparse()) == []
    assert ranked(store, Query("", OTHER["flu"]), Dense(field=SECOND)) == []
    write(store, [entry(document, "2") for document in DOCUMENTS[:2]])
    for one_of in (store, reader, make_store()):
        assert names(ranked(one_of, Query("RAISES, risen!"), Bm25(analysis=PLAIN))) == ["ice", "sea"]
        assert names(ranked(one_of, asked({3: 1.0}), Sparse())) == ["sea", "ice"]
        assert names(ranked(one_of, Query("", OTHER["sea"]), Dense(field=SECOND)))[0] == "sea"
        assert names(ranked(one_of, Query("beach"), Bm25(fields={"additional": 1.0}))) == ["sea"]
        assert names(ranked(one_of, Query("influenza"), Bm25())) == ["flu"]
        assert names(ranked(one_of, Query("", MAIN["tea"]), Dense()))[0] == "tea"
    assert state(store) != before


def test_documents_must_bring_all_that_the_store_has(store: Store) -> None:
    for lacking in (
        replace(FULL, dense=LAYOUT.dense),
        replace(FULL, sparse=None),
        replace(FULL, analyses=(PLAIN,)),
        replace(FULL, additional=None),
    ):
        with pytest.raises(InvalidData, match="--store"):
            store.prepare(lacking)
