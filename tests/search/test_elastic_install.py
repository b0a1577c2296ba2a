"""What `ccheck index install` puts into a cluster: a real server for templates, a recorder for what it has not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pystache
import pytest
from cli_runs import ccheck
from elastic_indices import LAYOUT, entry, vector_of
from elasticsearch_nodes import start_node
from filling import fill
from rerank_servers import starting

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.stages import Bm25, Dense, Fusion
from ccheck.core.types import Filter, Query
from ccheck.search import Search
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.install import (
    MARK,
    Reranker,
    endpoint,
    leftovers,
    pieces,
    put,
    remove,
    search_templates,
    state,
)
from ccheck.search.elastic.queries import filter_bodies
from ccheck.search.elastic.search import NATIVE, Searcher

SEARCH = Search([], {"bm25": Bm25(), "dense": Dense()}, Fusion(k=20))


@pytest.fixture(scope="module")
def own_url() -> Iterator[str]:
    """A server that no other test uses: component templates are those of all stores."""
    with start_node("trial") as node:
        yield node.url


@pytest.fixture
def store(own_url: str, elasticsearch_index: str) -> Iterator[ElasticStore]:
    with ElasticStore(Connection(own_url), elasticsearch_index) as store:
        fill(store, LAYOUT, [entry("a", "Seas", "Seas rise.", year=2011), entry("b", "Tea", "Tea grows.", year=1999)])
        yield store
        for piece in leftovers(store):
            httpx.delete(f"{own_url}{piece.path}", timeout=60)


def rendered(source: str, **params: Any) -> dict[str, Any]:
    """As Elasticsearch renders: values are escaped for JSON, and `toJson` writes lists and objects."""

    def escaped(text: str) -> str:
        return json.dumps(text)[1:-1]

    def to_json(name: str) -> str:
        return json.dumps(params[name])

    rendering = pystache.Renderer(escape=escaped, missing_tags="ignore")
    found: dict[str, Any] = json.loads(rendering.render(source, {**params, "toJson": to_json}))
    return found


def everything(url: str) -> dict[str, Any]:
    """All that `install` could change in the cluster."""
    paths = ("/_component_template", "/_index_template", "/_cluster/state/metadata")
    found = {path: httpx.get(url + path, timeout=60).raise_for_status().json() for path in paths}
    kept = found["/_cluster/state/metadata"]["metadata"]
    return {
        "components": found["/_component_template"],
        "templates": found["/_index_template"],
        "scripts": kept.get("stored_scripts", {}),
        "indices": {name: one["mappings"] for name, one in kept["indices"].items()},
    }


CLAIM = 'The "sea" rose\\fell\nby 20 cm {{claim}}'


@pytest.mark.parametrize("filters", [(), ("year>=2000", "year!=2015")])
def test_a_rendered_template_is_what_ccheck_sends(store: ElasticStore, filters: tuple[str, ...]) -> None:
    from ccheck.search import parse_filter

    query = Query(CLAIM, vector_of(CLAIM))
    passing: list[Filter] = [parse_filter(one) for one in filters]
    bodies = filter_bodies(store.searched(SEARCH.retrievers), passing)
    (source,) = search_templates(store, SEARCH, None).values()
    assert query.vector is not None
    found = rendered(source, claim=CLAIM, vector=query.vector.tolist(), filters=bodies, size=7)
    asked = Search([query], SEARCH.retrievers, SEARCH.fusion, 7, passing)
    sent = Searcher(store.client, store.index, store.searched(SEARCH.retrievers), asked, native=True).bodies(query)
    if not filters:  # ccheck leaves out an empty list
        for one in found["retriever"]["rrf"]["retrievers"]:
            assert next(iter(one.values())).pop("filter") == []
    assert found == json.loads(json.dumps(sent[NATIVE]))


def test_a_rendered_template_searches(store: ElasticStore) -> None:
    (source,) = search_templates(store, SEARCH, None).values()
    body = rendered(source, claim="seas rise", vector=vector_of("x").tolist(), filters=[])
    answer = httpx.post(f"{store.name}/_search", json=body, timeout=60).raise_for_status().json()
    assert body["size"] == 10
    assert [hit["_id"] for hit in answer["hits"]["hits"]] == ["a", "b"]


def test_everything_is_put_once_and_taken_out_again(store: ElasticStore, own_url: str) -> None:
    before = everything(own_url)
    found = pieces(store, SEARCH, None)
    assert [state(store.client, piece) for piece in found] == ["new"] * len(found)
    for piece in found:
        put(store.client, piece)
    installed = everything(own_url)
    assert [state(store.client, piece) for piece in pieces(store, SEARCH, None)] == ["same"] * len(found)
    assert installed["scripts"][f"ccheck-{store.index}-search"]["source"].startswith(MARK)
    assert f"ccheck-{store.index}" in {one["name"] for one in installed["templates"]["index_templates"]}
    deeper = Search([], {"bm25": Bm25(depth=50), "dense": Dense(depth=50)})
    assert [state(store.client, piece) for piece in pieces(store, deeper, None)][-1] == "changed"
    there = [piece for piece in leftovers(store) if "_inference" not in piece.path]
    assert [remove(store.client, piece) for piece in there if state(store.client, piece) != "absent"] == [None] * 6
    assert everything(own_url) == before


def test_what_somebody_else_made_is_left_alone(store: ElasticStore, own_url: str) -> None:
    path = f"{own_url}/_scripts/ccheck-{store.index}-search"
    theirs = {"script": {"lang": "mustache", "source": '{"query": {"match_all": {}}}'}}
    httpx.put(path, json=theirs, timeout=60).raise_for_status()
    for piece in (pieces(store, SEARCH, None)[-1], leftovers(store)[0]):
        with pytest.raises(InvalidData, match="was not made by ccheck"):
            state(store.client, piece)
    assert httpx.get(path, timeout=60).json()["script"]["source"] == theirs["script"]["source"]


def test_a_component_that_another_store_uses_stays(store: ElasticStore, own_url: str) -> None:
    with ElasticStore(Connection(own_url), f"{store.index}-other") as other:
        fill(other, LAYOUT, [entry("a")])
        for one in (store, other):
            for piece in pieces(one, SEARCH, None):
                put(one.client, piece)
        there = [piece for piece in leftovers(store) if "_inference" not in piece.path]
        kept = [remove(store.client, piece) for piece in there if state(store.client, piece) != "absent"]
        assert kept == [None, None, *["another index template uses it"] * 4]
        for piece in leftovers(other):
            httpx.delete(f"{own_url}{piece.path}", timeout=60)


@pytest.mark.parametrize("search", [Search([], {"a": Bm25()}), Search([], {"a": Bm25(weight=2), "b": Dense()})])
def test_a_search_that_no_template_can_hold_is_an_error(store: ElasticStore, search: Search) -> None:
    with pytest.raises(UsageError, match="a search template can hold"):
        search_templates(store, search, None)


def test_the_reranked_template_wraps_the_same_retrievers(store: ElasticStore) -> None:
    plain, reranked = search_templates(store, SEARCH, "ccheck-papers").values()
    params = {"claim": CLAIM, "vector": [0.5] * 16, "filters": [], "size": 5}
    inner, outer = rendered(plain, **params), rendered(reranked, **params)["retriever"]["text_similarity_reranker"]
    assert outer["retriever"] == inner["retriever"]
    assert (outer["inference_id"], outer["inference_text"], outer["field"]) == ("ccheck-papers", CLAIM, "text")


def asked_as_elasticsearch_does(settings: dict[str, Any], query: str, texts: list[str]) -> Any:
    """The service `custom` puts JSON for the query and the texts, and the secret as it is."""
    request = settings["request"].replace("${query}", json.dumps(query)).replace("${input}", json.dumps(texts))
    secret = settings["secret_parameters"]["api_key"]
    headers = {name: one.replace("${api_key}", secret) for name, one in settings["headers"].items()}
    return httpx.post(settings["url"], content=request, headers=headers, timeout=60).raise_for_status().json()


def test_the_endpoint_sends_and_reads_coheres_format() -> None:
    with starting() as start:
        url = f"{start(key='secret').url}/v2/rerank"
        settings = endpoint(Reranker(url, "secret"))["service_settings"]
        answer = asked_as_elasticsearch_does(settings, 'The "sea" rises', ["Tea grows.", "The sea rises."])
    paths = settings["response"]["json_parser"]
    read = {name: [one[path.rpartition(".")[2]] for one in answer["results"]] for name, path in paths.items()}
    assert sorted(read["reranked_index"]) == [0, 1] and all(0 <= score <= 1 for score in read["relevance_score"])


def test_the_command_says_what_it_does_and_takes_it_out_again(store: ElasticStore, own_url: str) -> None:
    before = everything(own_url)
    shown = ccheck("index", "install", "--store", store.name, "--reranker", "http://rerank:8080", "--dry-run")
    assert shown.code == 0 and "PUT _inference/rerank/" in shown.out and everything(own_url) == before
    asked = ccheck("index", "install", "--store", store.name)
    assert asked.code == 2 and "nothing was changed" in asked.err and everything(own_url) == before
    done = ccheck("index", "install", "--store", store.name, "--yes")
    assert done.code == 0 and f"GET {store.index}/_search/template" in done.out
    again = ccheck("index", "install", "--store", store.name)
    assert again.code == 0 and "everything is there" in again.err and not again.out
    gone = ccheck("index", "install", "--store", store.name, "--undo", "--yes")
    assert gone.code == 0 and gone.out.count("remove") == 6 and everything(own_url) == before
