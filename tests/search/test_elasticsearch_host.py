"""The servers that the other tests rely on: they rank, and differ where licences differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from elasticsearch_nodes import ENVIRONMENT, VERSION, Node, server, start_node

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


def test_a_server_that_is_gone_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variable, gone = "CCHECK_TEST_ELASTICSEARCH_BASIC_URL", "http://127.0.0.1:9"
    monkeypatch.setitem(ENVIRONMENT, variable, gone)
    with (
        pytest.raises(pytest.fail.Exception, match=f"{variable} names {gone}, which does not answer"),
        server(variable, "basic", VERSION, tmp_path),
    ):
        pass


def test_rrf_is_refused_on_basic(elasticsearch_basic_url: str, elasticsearch_index: str) -> None:
    fill(elasticsearch_basic_url, elasticsearch_index)
    assert ids(search(elasticsearch_basic_url, elasticsearch_index, {"retriever": VECTOR})) == ["0", "2", "1"]
    refused = search(elasticsearch_basic_url, elasticsearch_index, {"retriever": RRF})
    assert refused.status_code == httpx.codes.FORBIDDEN
    assert refused.json()["error"]["type"] == "security_exception"
    assert "current license is non-compliant for [Reciprocal Rank Fusion (RRF)]" in refused.json()["error"]["reason"]


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
