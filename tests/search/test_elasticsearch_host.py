"""The servers that the other tests rely on: they start, keep what was written, and differ where licences differ.

One of them also searches another cluster, as only a node of its own can be told to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from elasticsearch_nodes import ENVIRONMENT, VERSION, VERSION_8, Node, server, start_node
from needs import does_not_apply
from searching import answer_all

from ccheck.core.errors import NotFound, ServerError, UsageError
from ccheck.core.layout import Layout
from ccheck.core.stages import Bm25
from ccheck.core.types import Filter, Hit, Query, Ranking
from ccheck.search.elastic import Connection, ElasticStore

DOCUMENTS = [
    {"text": "Sea level has risen 20 cm since 1900.", "vector": [1.0, 0.0, 0.0]},
    {"text": "The level of lakes varies.", "vector": [0.0, 1.0, 0.0]},
    {"text": "Oceans expand as they warm.", "vector": [0.8, 0.6, 0.0]},
]
TEXT = {"standard": {"query": {"match": {"text": "sea level"}}}}
VECTOR = {"knn": {"field": "vector", "query_vector": [1, 0, 0], "k": 3, "num_candidates": 10}}
RRF = {"rrf": {"retrievers": [TEXT, VECTOR], "rank_window_size": 10, "rank_constant": 60}}


@pytest.fixture(scope="module")
def own_node() -> Iterator[Node]:
    """A node from the jars, whatever the environment names: what is tested is the stand-in."""
    with start_node() as node:
        yield node


def fill(url: str, index: str) -> None:
    vector = {"type": "dense_vector", "dims": 3, "similarity": "cosine", "index_options": {"type": "int8_hnsw"}}
    properties = {"text": {"type": "text", "analyzer": "english"}, "vector": vector}
    httpx.put(f"{url}/{index}", json={"mappings": {"properties": properties}}).raise_for_status()
    for number, document in enumerate(DOCUMENTS):
        added = httpx.put(f"{url}/{index}/_doc/{number}?refresh=true", json=document)
        assert added.status_code == httpx.codes.CREATED, added.text


def search(url: str, index: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/{index}/_search", json=body, timeout=60)


def ids(response: httpx.Response) -> list[str]:
    assert response.status_code == httpx.codes.OK, response.text
    return [hit["_id"] for hit in response.json()["hits"]["hits"]]


def version(url: str) -> str:
    return str(httpx.get(url).json()["version"]["number"])


def test_a_server_that_is_gone_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variable, gone = "CCHECK_TEST_ELASTICSEARCH_BASIC_URL", "http://127.0.0.1:9"
    monkeypatch.setitem(ENVIRONMENT, variable, gone)
    with (
        pytest.raises(pytest.fail.Exception, match=f"{variable} names {gone}, which does not answer"),
        server(variable, "basic", VERSION, tmp_path),
    ):
        pass


def test_rrf_ranks_on_trial(elasticsearch_url: str, elasticsearch_index: str) -> None:
    fill(elasticsearch_url, elasticsearch_index)
    response = search(elasticsearch_url, elasticsearch_index, {"retriever": RRF})
    assert ids(response) == ["0", "1", "2"]
    scores = [hit["_score"] for hit in response.json()["hits"]["hits"]]
    assert scores == pytest.approx([1 / 61 + 1 / 61, 1 / 62 + 1 / 63, 1 / 62])


def test_rrf_filters_all_its_retrievers(elasticsearch_url: str, elasticsearch_index: str) -> None:
    fill(elasticsearch_url, elasticsearch_index)
    filtered = {"rrf": {**RRF["rrf"], "filter": {"ids": {"values": ["1", "2"]}}}}
    assert sorted(ids(search(elasticsearch_url, elasticsearch_index, {"retriever": filtered}))) == ["1", "2"]


def test_rrf_is_refused_on_basic(elasticsearch_basic_url: str, elasticsearch_index: str) -> None:
    fill(elasticsearch_basic_url, elasticsearch_index)
    assert ids(search(elasticsearch_basic_url, elasticsearch_index, {"retriever": VECTOR})) == ["0", "2", "1"]
    refused = search(elasticsearch_basic_url, elasticsearch_index, {"retriever": RRF})
    assert refused.status_code == httpx.codes.FORBIDDEN
    assert refused.json()["error"]["type"] == "security_exception"
    assert "current license is non-compliant for [Reciprocal Rank Fusion (RRF)]" in refused.json()["error"]["reason"]


def test_version_8_ranks_the_same(elasticsearch_8_url: str, elasticsearch_index: str) -> None:
    assert version(elasticsearch_8_url).startswith("8.")
    fill(elasticsearch_8_url, elasticsearch_index)
    assert ids(search(elasticsearch_8_url, elasticsearch_index, {"retriever": RRF})) == ["0", "1", "2"]


def test_rrf_takes_weights_in_version_9_alone(
    elasticsearch_url: str, elasticsearch_8_url: str, elasticsearch_index: str
) -> None:
    weighted = {"rrf": {**RRF["rrf"], "retrievers": [TEXT, {"retriever": VECTOR, "weight": 100}]}}
    fill(elasticsearch_url, elasticsearch_index)
    assert ids(search(elasticsearch_url, elasticsearch_index, {"retriever": weighted})) == ["0", "2", "1"]
    fill(elasticsearch_8_url, elasticsearch_index)
    refused = search(elasticsearch_8_url, elasticsearch_index, {"retriever": weighted})
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert "unknown field [retriever]" in refused.text


@pytest.fixture
def far(own_node: Node, elasticsearch_url: str) -> str:
    """The node's name for the cluster of the other tests."""
    (described,) = httpx.get(f"{elasticsearch_url}/_nodes/transport", timeout=60).json()["nodes"].values()
    address = described["transport"]["publish_address"]
    if not address.startswith("127.0.0.1:"):
        does_not_apply(f"the server's transport, {address}, is not on this machine")
    settings = {"cluster.remote": {"far": {"seeds": [address]}, "gone": {"seeds": ["127.0.0.1:9"]}}}
    httpx.put(f"{own_node.url}/_cluster/settings", json={"persistent": settings}, timeout=60).raise_for_status()
    deadline = time.monotonic() + 60
    while not httpx.get(f"{own_node.url}/_remote/info", timeout=60).json().get("far", {}).get("connected"):
        assert time.monotonic() < deadline, "the clusters do not meet"
        time.sleep(0.1)
    return "far"


def test_an_index_of_another_cluster_is_searched(
    own_node: Node, far: str, elasticsearch_url: str, elasticsearch_index: str
) -> None:
    """Over the real transport, from what `_field_caps` says of its fields."""
    vector = {"type": "dense_vector", "dims": 3}
    passages = {"type": "nested", "properties": {"text": {"type": "text"}, "vector": vector}}
    title = {"type": "keyword", "fields": {"en": {"type": "text", "analyzer": "english"}}}
    fields = {"title": title, "passages": passages, "meta": {"properties": {"year": {"type": "integer"}}}}
    index, alias = f"{elasticsearch_index}-1", f"{elasticsearch_index}-alias"
    body = {"mappings": {"properties": fields}, "aliases": {alias: {}}}
    httpx.put(f"{elasticsearch_url}/{index}", json=body, timeout=60).raise_for_status()
    for number, texts in enumerate((["Nothing.", "Glaciers lose ice."], ["Ice on a lake."])):
        source = {"title": "Seas rise", "passages": [{"text": text} for text in texts], "meta": {"year": 2000 + number}}
        path = f"{elasticsearch_url}/{index}/_doc/p{number}?refresh=true"
        httpx.put(path, json=source, timeout=60).raise_for_status()

    late, query = [Filter("meta.year", ">=", "2001")], Query("glaciers lose ice")
    with (
        ElasticStore(Connection(elasticsearch_url), alias) as near,
        ElasticStore(Connection(own_node.url), f"{far}:{alias}") as away,
    ):
        expected, found = (
            [(hit.document, round(hit.score, 5)) for hit in ranking.hits if isinstance(ranking, Ranking)]
            for store in (near, away)
            for ranking in answer_all(store, [query], {"bm25": Bm25()}, k=5)
        )
        assert found == expected and [one.id for one, _ in found] == ["p0", "p1"]
        ((narrowed,),) = away.narrowed([query], [[Hit(1, found[0][0], 1.0)]])
        assert narrowed.unit is not None and narrowed.unit.text == "Glaciers lose ice."
        assert away.count() == 2 and away.count(late) == 1 and [one.id for one in away.scan(late)] == ["p1"]
        assert away.get(["p1", "none"]) == {"p1": found[1][0]}
        info = away.info()
        assert info is not None and (info.documents, info.dimensions) == (2, None)
        assert "passages.vector (its vectors are not indexed, or on another" in info.details["left out"]
        for refused in (lambda: away.prepare(Layout()), away.removal):
            with pytest.raises(UsageError, match="on another cluster, which ccheck only searches"):
                refused()

    # Here the title is a number: a list of both shows it, and searches the texts of both.
    mappings = {"properties": {"title": {"type": "integer"}, "passages": passages}}
    httpx.put(f"{own_node.url}/{index}", json={"mappings": mappings}, timeout=60).raise_for_status()
    here = {"title": 1, "passages": [{"text": "Glaciers of here."}]}
    httpx.put(f"{own_node.url}/{index}/_doc/p0?refresh=true", json=here, timeout=60).raise_for_status()
    with ElasticStore(Connection(own_node.url), f"{index},{far}:{index}") as both:
        (ranking,) = answer_all(both, [Query("glaciers")], {"bm25": Bm25()}, k=5)
        assert isinstance(ranking, Ranking)
        assert sorted(hit.document.id for hit in ranking.hits) == [f"{index}/p0", f"{far}:{index}/p0"]
        info = both.info()
        assert info is not None and "title (the indices differ: it is integer in " in info.details["left out"]


def test_a_cluster_that_is_missing_is_not_passed_over(own_node: Node, far: str, elasticsearch_url: str) -> None:
    """The server skips it and answers with what it has: nothing."""
    fill(own_node.url, "near")
    skipped = search(own_node.url, "near,gone:papers", {"query": {"match": {"text": "ocean"}}}).json()
    assert skipped["_clusters"]["skipped"] == 1 and skipped["hits"]["hits"]
    with ElasticStore(Connection(own_node.url, retry_seconds=1), "near,gone:papers") as store:
        with pytest.raises(ServerError, match=r"without another cluster|does not answer in full"):
            store.count()
        with pytest.raises(ServerError, match=r"does not answer in full.*GET _remote/info"):
            store.info()
    for name, said in (("none:papers", "no such remote cluster"), (f"{far}:{uuid4().hex}", "no such index")):
        with ElasticStore(Connection(own_node.url), name) as store, pytest.raises(NotFound, match=said):
            store.info()


def check_that_data_outlives_a_crash(node: Node, release: str) -> None:
    url = node.url
    assert version(url) == release
    fill(url, "kept")
    node.kill()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    node.restart()
    assert node.url == url
    assert ids(search(url, "kept", {"query": {"match": {"text": "ocean"}}})) == ["2"]


def test_node_keeps_its_data_over_a_crash(own_node: Node) -> None:
    check_that_data_outlives_a_crash(own_node, VERSION)


@pytest.mark.skipif(not os.environ.get("CCHECK_TEST_CLUSTER"), reason="on demand: set CCHECK_TEST_CLUSTER=1")
def test_node_of_version_8_keeps_its_data_over_a_crash(tmp_path: Path) -> None:
    with start_node("basic", tmp_path / "home", version=VERSION_8) as node:
        check_that_data_outlives_a_crash(node, VERSION_8)


@pytest.mark.parametrize("pruned", [{}, {"prune": True}, {"prune": False, "pruning_config": {}}])
def test_the_stand_in_for_sparse_vector_refuses_to_prune(own_node: Node, pruned: dict[str, Any]) -> None:
    """It can't: a request of ccheck's that asked for pruning, or left it to the server, would not go unnoticed."""
    url, index = own_node.url, f"sparse-{len(str(pruned))}"
    properties = {"sparse": {"type": "sparse_vector"}}
    httpx.put(f"{url}/{index}", json={"mappings": {"properties": properties}}, timeout=60).raise_for_status()
    httpx.put(f"{url}/{index}/_doc/0?refresh=true", json={"sparse": {"7": 2.0}}, timeout=60).raise_for_status()
    query = {"field": "sparse", "query_vector": {"7": 1.0}}
    asked = search(url, index, {"query": {"sparse_vector": query | {"prune": False}}})
    assert ids(asked) == ["0"]
    refused = search(url, index, {"query": {"sparse_vector": query | pruned}})
    assert refused.status_code == httpx.codes.BAD_REQUEST and "is not pruned here" in refused.text


def test_a_node_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "elasticsearch.yml").write_text("no.such.setting: 1\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"unknown setting \[no\.such\.setting\]"):
        start_node(home=tmp_path)
