"""The Elasticsearch store on real servers: what is its own, beside what search/test_store.py asks of every store."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from elastic_indices import (  # noqa: F401 (fixtures)
    CHUNKING,
    DIMENSIONS,
    LAYOUT,
    assert_equal_but_for_ties,
    entry,
    filled,
    ids,
    make,
    node_client,
    node_store,
    put,
    vector_of,
)
from elasticsearch_nodes import start_node
from filling import write
from searching import answer_all
from stores import SERVERS

from ccheck.core.errors import InvalidData, ServerError, UsageError
from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever
from ccheck.core.types import Document, Entry, Query, Ranking
from ccheck.search import Filter, parse_filter
from ccheck.search.elastic import Connection, ElasticStore

BOTH: dict[str, Retriever] = {"bm25": Bm25(), "dense": Dense()}


def search(store: ElasticStore, query: Query, retrievers: dict[str, Retriever], **options: Any) -> Ranking:
    (ranking,) = answer_all(store, [query], retrievers, options.pop("fusion", Fusion()), **{"k": 10, **options})
    assert isinstance(ranking, Ranking), ranking
    return ranking


# -- the server fuses, or ccheck does


@pytest.fixture(scope="module")
def scifact_entries() -> list[Entry]:
    """SciFact's abstracts with vectors made up for them."""
    from conftest import evaluation_data

    with gzip.open(evaluation_data("scifact") / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [entry(d["_id"], d["title"], d["text"], number=n) for n, d in enumerate(map(json.loads, lines))]


@pytest.fixture(scope="module", params=SERVERS.values())
def scifact_store(request: pytest.FixtureRequest, scifact_entries: list[Entry]) -> Iterator[ElasticStore]:
    with filled(request.getfixturevalue(request.param), LAYOUT, scifact_entries) as store:
        yield store


def test_nested_vectors_give_each_document_once_by_its_best_passage(
    scifact_store: ElasticStore, scifact_entries: list[Entry]
) -> None:
    passages = {one.document.id: one.passages[MAIN_VECTORS] for one in scifact_entries}
    vectors = {id_: np.stack([passage.vector for passage in some]) for id_, some in passages.items()}
    numbers = {one.document.id: one.document.metadata["number"] for one in scifact_entries}
    found = wanted = 0
    for filters in ([], [Filter("number", "<", "500")]):
        for number in range(20):
            query = vector_of(f"query {number}")
            ranking = search(scifact_store, Query("", query), {"dense": Dense(depth=50)}, k=50, filters=filters)
            assert len(set(ids(ranking))) == len(ranking.hits) == 50
            cosines = {
                id_: float((rows @ query).max())
                for id_, rows in vectors.items()
                if not filters or int(str(numbers[id_])) < 500
            }
            best = set(sorted(cosines, key=lambda id_: -cosines[id_])[:50])
            found, wanted = found + len(best & set(ids(ranking))), wanted + 50
            errors = [abs(hit.score - cosines[hit.document.id]) for hit in ranking.hits]
            # Which passage is the best is told by its quantised vector; that passage's own score is exact.
            assert np.mean(errors) < 0.005 and max(errors) < 0.1
    assert found / wanted > 0.97


# -- the index


def test_fields_are_strict_and_metadata_bounded(store: ElasticStore, elasticsearch_url: str) -> None:
    store.prepare(LAYOUT)
    with httpx.Client(base_url=elasticsearch_url) as client:
        assert client.put(f"/{store.index}/_doc/x", json={"unknown": 1}).status_code == 400
    many = entry("many", "Sea", **{f"key{number}": number for number in range(1_500)})
    write(store, [many, entry("next", "Sea", other="x")])
    assert store.get(["many"]) == {"many": many.document}
    assert ids(search(store, Query("sea"), {"bm25": Bm25()}, filters=[parse_filter("key0=0")])) == ["many"]
    refused = store.upsert([entry("good"), entry("bad", **{" ": "x"})])
    assert list(refused) == ["bad"] and "whitespace" in refused["bad"]


def test_an_index_that_goes_away_is_not_made_by_writing(store: ElasticStore, elasticsearch_url: str) -> None:
    store.prepare(LAYOUT)
    with httpx.Client(base_url=elasticsearch_url) as client:
        client.delete(f"/{store.index}-000001").raise_for_status()
        with pytest.raises(InvalidData, match=r"not there any more\. 0 in .* Run the same command again"):
            store.upsert([entry("a")])
        assert client.get(f"/{store.index}").status_code == 404


# -- crashes


def test_a_server_killed_while_it_is_written_to_loses_and_doubles_nothing() -> None:
    node = start_node("basic")
    batches = [[entry(f"{batch}-{number}", "Sea", "word " * 50) for number in range(400)] for batch in range(12)]
    with ElasticStore(Connection(node.url, retry_seconds=120), "ccheck-test-crash") as store:
        store.prepare(LAYOUT)
        failures: list[Exception] = []
        acknowledged: list[int] = []

        def writes() -> None:
            try:
                for number, batch in enumerate(batches):
                    assert store.upsert(batch) == {}
                    acknowledged.append(number)
            except Exception as error:  # noqa: BLE001
                failures.append(error)

        writer = threading.Thread(target=writes)
        writer.start()
        while len(acknowledged) < 4 and writer.is_alive():
            time.sleep(0.005)
        node.kill()
        time.sleep(0.5)
        node.start()
        writer.join()
        assert failures == [] and len(acknowledged) == len(batches)
        store.publish()
        assert store.count() == 12 * 400
        wanted = [one.document.id for batch in batches for one in batch]
        assert store.digests(wanted) == dict.fromkeys(wanted, "1")
        assert store.info().passages == sum(len(one.passages[MAIN_VECTORS]) for some in batches for one in some)
        node.kill()
        with (
            ElasticStore(Connection(node.url, retry_seconds=0), "ccheck-test-crash") as gone,
            pytest.raises(ServerError, match="can't be reached"),
        ):
            gone.count()


# -- indices of others


@pytest.fixture
def foreign(client: httpx.Client, store: ElasticStore) -> None:
    """An index as others make them: two shards, behind an alias with a second one."""
    keyword = {"type": "text", "fields": {"raw": {"type": "keyword"}}}
    properties = {
        "headline": {"type": "text"},
        "abstract": {"type": "text", "analyzer": "english"},
        "body": {"type": "text"},
        "journal": keyword,
        "year": {"type": "integer"},
        "open": {"type": "boolean"},
        "date": {"type": "date"},
        "authors": {"properties": {"name": {"type": "text"}}},
        "embedding": {"type": "dense_vector", "dims": DIMENSIONS, "similarity": "dot_product"},
    }
    papers = [
        {"headline": "Sea level", "abstract": "It rises.", "body": "By 20 cm.", "journal": "Nature Food", "year": 2011,
         "open": True, "date": "2011-05-01", "authors": [{"name": "A"}, {"name": "B"}], "embedding": "sea"},
        {"headline": "Ice sheets", "abstract": "They melt into the sea.", "year": 2019, "date": "2019-12-31T10:00:00Z",
         "authors": {"name": "C"}, "embedding": "ice"},
        {"headline": "Tea", "abstract": "A sea of tea.", "journal": "Science"},
    ]  # fmt: skip
    for number in (1, 2):
        shards = {"number_of_shards": number}
        make(client, f"{store.index}-{number}", properties, settings=shards, aliases={store.index: {}})
    for number, paper in enumerate(papers):
        vector = {"embedding": vector_of(str(paper["embedding"])).tolist()} if "embedding" in paper else {}
        put(client, f"{store.index}-{1 + number % 2}", f"p{number}", paper | vector)


def test_an_index_of_others_is_searched_as_it_is(store: ElasticStore, foreign: None) -> None:
    ranking = search(store, Query("rising sea", vector_of("sea")), BOTH)
    assert set(ids(ranking)) == {"p0", "p1", "p2"} and ids(ranking)[0] == "p0"
    first = ranking.hits[0]
    assert first.scores["dense"] == pytest.approx(1, abs=1e-3)
    assert first.document == Document(
        "p0",
        "Sea level",
        "It rises.\n\nBy 20 cm.",
        {"journal": "Nature Food", "year": 2011, "open": True, "date": "2011-05-01", "authors.name": ["A", "B"]},
        "2011-05-01",
    )
    assert store.get(["p0", "p1", "none"]).keys() == {"p0", "p1"}
    assert store.count() == 3
    info = store.info()
    assert info is not None and (info.documents, info.passages, info.dimensions) == (3, 2, DIMENSIONS)
    assert info.details["made by"] == "not ccheck" and info.details["text fields"] == "abstract, body"
    assert ids(search(store, Query("sea"), {"bm25": Bm25(fields={"headline": 1.0})})) == ["p0"]
    assert set(ids(search(store, Query("sea"), {"bm25": Bm25(fields={"text": 1.0})}))) == {"p1", "p2"}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("year>=2011", {"p0", "p1"}),
        ("year=2011", {"p0"}),
        ("year>2010.5", {"p0", "p1"}),
        ("year>=abc", set()),
        ("year!=2011", {"p1", "p2"}),
        ("journal=Nature Food", {"p0"}),
        ("journal=Food", set()),
        ("journal>Nature", {"p0", "p2"}),
        ("authors.name=b", {"p0"}),
        ("open=true", {"p0"}),
        ("open!=true", {"p1", "p2"}),
        ("nothing=1", set()),
        ("nothing!=1", {"p0", "p1", "p2"}),
    ],
)
def test_filters_on_an_index_of_others(store: ElasticStore, foreign: None, condition: str, expected: set[str]) -> None:
    for retrievers in ({"bm25": Bm25()}, BOTH):
        ranking = search(store, Query("sea", vector_of("sea")), retrievers, filters=[parse_filter(condition)])
        assert set(ids(ranking)) == expected


def test_dates_of_an_index_of_others(store: ElasticStore, foreign: None) -> None:
    assert ids(search(store, Query("sea"), {"bm25": Bm25()}, filters=[parse_filter("published<2012-01-01")])) == ["p0"]
    with pytest.raises(UsageError, match="which only = and != can compare"):
        answer_all(store, [Query("sea")], {"bm25": Bm25()}, k=1, filters=[parse_filter("authors.name>A")])


def test_an_index_of_others_is_not_written_to(store: ElasticStore, foreign: None) -> None:
    for change in (
        lambda: store.prepare(LAYOUT),
        lambda: store.upsert([entry("a")]),
        lambda: store.delete(["p0"]),
        store.drop,
    ):
        with pytest.raises(InvalidData, match=r"ccheck did not make|was not made by ccheck"):
            change()
    assert store.count() == 3
    assert store.digests(["p0"]) == {}
