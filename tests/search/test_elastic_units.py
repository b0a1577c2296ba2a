"""Units of documents in Elasticsearch: what a server answers, against numpy and the local store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import elastic_indices
import httpx
import numpy as np
import pytest
from filling import fill, write
from searching import answer_all, rank_all
from stores import SERVERS

from ccheck.core.layout import Embedding, Layout, UnitField
from ccheck.core.stages import Bm25, Dense, Fusion
from ccheck.core.types import Document, Entry, Query, Ranking, Unit, UnitEntry, Vector, unit_key
from ccheck.search import Filter
from ccheck.search.elastic import Connection, ElasticStore

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


@pytest.mark.parametrize("server", SERVERS.values())
def test_a_book_of_many_units(server: str, elasticsearch_index: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(server)
    with ElasticStore(Connection(url), elasticsearch_index) as store:
        fill(store, Layout(), [Entry(entry(7).document, "0")])
        store.prepare(LAYOUT)
        many = tuple(UnitEntry(Unit("long-window", number, 0, 0, "reef")) for number in range(20_000))
        write(store, [Entry(Document("book", "", "A book"), "1", units={"long-window": many})])
        (found,) = rank_all(store, [Query("reef")], {"bm25": Bm25(units="long-window", depth=10_000)})
        assert isinstance(found, dict)
        assert [key for key, _ in found["bm25"]] == [f"book#{number}" for number in range(10_000)]
        assert httpx.get(f"{url}/{elasticsearch_index}/_count").json()["count"] == 2
