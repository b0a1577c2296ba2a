"""Units of documents in Elasticsearch: what a server answers, against numpy and the local store."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import elastic_indices
import httpx
import numpy as np
import pytest
from filling import fill, write
from searching import answer_all, rank_all
from stores import SERVERS

from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.core.layout import Embedding, Layout, UnitField
from ccheck.core.stages import Bm25, Dense, Fusion
from ccheck.core.types import Document, Entry, Query, Ranking, Unit, UnitEntry, Vector, document_of, unit_key
from ccheck.ingest.units import cut_units
from ccheck.search import Filter, Store
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.local import LocalStore

DIMENSIONS = 16
EMBEDDING = Embedding("m", DIMENSIONS, "f" * 64, 128)
LAYOUT = Layout(units={"sentence": UnitField("sentence", embedding=EMBEDDING), "long-window": UnitField("window", 64)})
WORDS = Bm25(units="sentence", depth=50)
VECTORS = Dense(units="sentence", depth=50)
DOCUMENTS = 250
TERMS = ("sea", "ice", "coral", "storm", "heat", "rain", "soil", "wind")


def vectors(count: int, seed: int) -> list[Vector]:
    drawn = np.random.default_rng(seed).normal(size=(count, DIMENSIONS))
    return list((drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32))


def entry(number: int, digest: str = "1") -> Entry:
    """A document of 1 to 20 sentences."""
    drawn = np.random.default_rng(number)
    count = number % 20 + 1
    texts = [" ".join(drawn.choice(TERMS, size=drawn.integers(1, 9))) + f" u{number}n{place}" for place in range(count)]
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)]).tolist()
    text = " ".join(texts)
    sentences = tuple(
        UnitEntry(Unit("sentence", place, start, start + len(one), one), vector)
        for place, (one, start, vector) in enumerate(zip(texts, starts, vectors(count, number), strict=False))
    )
    window = UnitEntry(Unit("long-window", 0, 0, len(text), text))
    document = Document(f"d#{number}", f"Title {number}", text, {"group": f"g{number % 10}"})
    return Entry(document, digest, units={"sentence": sentences, "long-window": (window,)})


@pytest.fixture(scope="module", params=SERVERS.values())
def filled(request: pytest.FixtureRequest) -> Iterator[ElasticStore]:
    entries = [entry(number) for number in range(DOCUMENTS)]
    with elastic_indices.filled(request.getfixturevalue(request.param), LAYOUT, entries) as store:
        yield store


def search(store: ElasticStore, query: Query, **retrievers: Any) -> Ranking:
    (answer,) = answer_all(store, [query], retrievers, k=20)
    assert isinstance(answer, Ranking), answer
    return answer


@pytest.mark.parametrize("scope", [(), (Filter("group", "=", "g3"),), (Filter("_id", "=", "d#13"),)])
def test_dense_units_are_the_nearest_of_all(filled: ElasticStore, scope: tuple[Filter, ...]) -> None:
    (asked,) = vectors(1, 99_999)
    (found,) = rank_all(filled, [Query("", asked, filters=scope)], {"dense": VECTORS})
    assert isinstance(found, dict)
    cosines = {
        unit_key(one.document.id, some.unit.number): float(asked @ some.vector)
        for one in map(entry, range(DOCUMENTS))
        if all(one.document.id == part.value or one.document.metadata["group"] == part.value for part in scope)
        for some in one.units["sentence"]
        if some.vector is not None
    }
    best = sorted(cosines.items(), key=lambda item: -item[1])[: VECTORS.depth]
    assert [key for key, _ in found["dense"]] == [key for key, _ in best]
    assert [score for _, score in found["dense"]] == pytest.approx([score for _, score in best], abs=1e-5)


@pytest.mark.parametrize("make_store", SERVERS, indirect=True)
def test_words_count_as_in_the_local_store(make_store: Callable[..., Store], scifact: Path, tmp_path: Path) -> None:
    """300 abstracts cut into sentences and windows: the same units with the same BM25 scores."""
    fields = {"sentence": UnitField("sentence"), "window": UnitField("window", 64, 16)}
    with gzip.open(scifact / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = list(map(json.loads, itertools.islice(file, 300)))
    entries = [
        Entry(
            Document(row["_id"], row["title"], row["text"]),
            "1",
            units={name: tuple(map(UnitEntry, some)) for name, some in cut_units(row["text"], fields).items()},
        )
        for row in rows
    ]
    lines = (scifact / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:30]
    queries = [Query(json.loads(line)["text"]) for line in lines]
    found = []
    with LocalStore(tmp_path / "local") as local:
        for store in (local, make_store()):
            fill(store, Layout(units=fields), entries)
            retrievers = {name: Bm25(units=name, depth=40, parents="max") for name in fields}
            found.append(rank_all(store, queries, retrievers))
            found[-1] += rank_all(store, queries, {"units": Bm25(units="sentence", depth=40)})
    for mine, theirs in zip(*found, strict=True):
        assert isinstance(mine, dict) and isinstance(theirs, dict)
        for name, ranking in mine.items():
            other = dict(theirs[name])
            assert [score for _, score in ranking] == pytest.approx(list(other.values()), rel=1e-4)
            last = ranking[-1][1] if ranking else 0.0
            for key, score in ranking:
                assert other.get(key, last) == pytest.approx(score, rel=1e-4), "only a tie at the end may be left out"


def test_hits_are_units_with_their_documents(filled: ElasticStore) -> None:
    best = search(filled, Query("u7n3"), bm25=WORDS).hits[0]
    sentence = entry(7).units["sentence"][3].unit
    assert (best.unit, best.document, best.rank) == (sentence, entry(7).document, 1)
    assert best.document.text[sentence.start : sentence.end] == sentence.text
    whole = search(filled, Query("u7n3"), bm25=Bm25(units="long-window")).hits[0]
    assert whole.unit == entry(7).units["long-window"][0].unit


def test_both_kinds_of_units_are_fused(filled: ElasticStore) -> None:
    wanted = entry(7).units["sentence"][3]
    answer = search(filled, Query("u7n3 sea", wanted.vector), bm25=WORDS, dense=VECTORS)
    best = answer.hits[0]
    assert best.unit == wanted.unit and best.ranks == {"bm25": 1, "dense": 1}
    assert best.scores["rrf"] == pytest.approx(2 / 61)
    assert best.scores["dense"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("how", ["max", "sum", "first"])
def test_documents_are_ranked_by_their_units(filled: ElasticStore, how: Any) -> None:
    units, parents = WORDS, WORDS.model_copy(update={"parents": how})
    (found,) = rank_all(filled, [Query("sea ice")], {"units": units})
    assert isinstance(found, dict) and len(found["units"]) == units.depth
    scores: dict[str, float] = {}
    for rank, (key, score) in enumerate(found["units"], 1):
        id_ = document_of(key)
        if how == "sum":
            scores[id_] = scores.get(id_, 0) + 1 / rank
        else:
            scores.setdefault(id_, score if how == "max" else 1 / rank)
    hits = search(filled, Query("sea ice"), bm25=parents).hits
    best = sorted(scores.items(), key=lambda item: -item[1])
    assert [(hit.document.id, hit.unit) for hit in hits] == [(id_, None) for id_, _ in best[: len(hits)]]
    assert [hit.score for hit in hits] == pytest.approx([score for _, score in best[: len(hits)]])
    fused = search(filled, Query("sea ice"), units=parents, whole=Bm25())
    assert {"units", "whole"} == set(fused.hits[0].scores) - {"rrf"}


def test_each_query_has_its_scope(filled: ElasticStore) -> None:
    scopes = ((Filter("_id", "=", "d#19"),), (Filter("group", "=", "g1"), Filter("_id", "!=", "d#1")), ())
    queries = [Query("sea", filters=scope) for scope in scopes]
    for retriever in (WORDS, Bm25()):
        one, group, every = rank_all(filled, queries, {"bm25": retriever}, filters=[Filter("group", "!=", "g2")])
        assert isinstance(one, dict) and isinstance(group, dict) and isinstance(every, dict)
        name = document_of if retriever is WORDS else str
        ids = [{name(key) for key, _ in some["bm25"]} for some in (one, group, every)]
        assert ids[0] == {"d#19"}
        assert ids[1] and all(id_.endswith("1") and id_ != "d#1" for id_ in ids[1])
        assert ids[2] and not any(id_.endswith("2") for id_ in ids[2])


def test_a_scope_holds_inside_the_fusion_of_the_server(filled: ElasticStore) -> None:
    for details in (True, False):
        (answer,) = answer_all(
            filled,
            [Query("sea", filters=(Filter("_id", "=", "d#19"),))],
            {"content": Bm25(), "title": Bm25(fields={"text": 1.0})},
            Fusion(),
            k=5,
            details=details,
        )
        assert isinstance(answer, Ranking) and [hit.document.id for hit in answer.hits] == ["d#19"]


def test_units_by_key(filled: ElasticStore) -> None:
    keys = ["d#7#3", "d#7#99", "d#7#x", "nowhere#0", "d#8#0"]
    assert filled.get_units("sentence", keys) == {
        "d#7#3": entry(7).units["sentence"][3].unit,
        "d#8#0": entry(8).units["sentence"][0].unit,
    }
    with pytest.raises(NotFound, match="paragraph"):
        filled.get_units("paragraph", keys)


def test_what_is_not_there_is_named(filled: ElasticStore) -> None:
    for retriever, said in ((Bm25(units="paragraph"), "paragraph"), (Dense(units="long-window"), "vectors")):
        with pytest.raises(NotFound, match=said):
            answer_all(filled, [Query("sea")], {"one": retriever}, k=5)
    with pytest.raises(UsageError, match="rank different things"):
        rank_all(filled, [Query("sea")], {"units": WORDS, "whole": Bm25()})
    with pytest.raises(InvalidData, match="3 dimensions"):
        rank_all(filled, [Query("", vectors(1, 1)[0][:3])], {"dense": VECTORS})


@pytest.mark.parametrize("server", SERVERS.values())
def test_units_come_and_go_with_their_documents(
    server: str, elasticsearch_index: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(server)
    with ElasticStore(Connection(url), elasticsearch_index) as store:
        fill(store, Layout(), [Entry(entry(7).document, "0")])
        with pytest.raises(NotFound):
            rank_all(store, [Query("sea")], {"bm25": WORDS})
        fill(store, LAYOUT, [entry(7), entry(8)])
        assert [hit.document.id for hit in search(store, Query("u7n3"), bm25=WORDS).hits] == ["d#7"]
        fewer = Entry(entry(7).document, "2", units={"sentence": entry(7).units["sentence"][:2]})
        store.upsert([fewer])
        assert store.delete(["d#8"]) == 1
        store.publish()
        assert search(store, Query("u7n3"), bm25=WORDS).hits == ()
        assert search(store, Query("u8n0"), bm25=WORDS).hits == ()
        assert search(store, Query("u7n1"), bm25=WORDS).hits[0].unit == entry(7).units["sentence"][1].unit
        many = tuple(UnitEntry(Unit("long-window", number, 0, 0, "reef")) for number in range(20_000))
        write(store, [Entry(Document("book", "", "A book"), "1", units={"long-window": many})])
        (found,) = rank_all(store, [Query("reef")], {"bm25": Bm25(units="long-window", depth=10_000)})
        assert isinstance(found, dict)
        assert [key for key, _ in found["bm25"]] == [f"book#{number}" for number in range(10_000)]
        assert httpx.get(f"{url}/{elasticsearch_index}/_count").json()["count"] == 2
