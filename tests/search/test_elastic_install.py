"""What `ccheck index install` puts into a cluster: a real server for templates, a recorder for what it has not."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from cli_runs import ccheck
from elastic_indices import entry, vector_of
from elasticsearch_nodes import VERSION_8, start_node
from http_stub import Asked, Reply, proxy
from rerank_servers import starting
from searching import fill
from store_documents import LAYOUT

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.stages import Bm25, Dense, Fusion
from ccheck.core.types import Filter, Query, Ranking
from ccheck.search import Search
from ccheck.search import answer as answer_search
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.install import Piece, leftovers, pieces, put, remove, search_templates, state
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
        texts = {"a": "Seas rise.", "b": "Tea grows.", "c": "Ice melts where seas are warm."}
        fill(store, LAYOUT, [entry(id_, "", text, year=2011) for id_, text in texts.items()])
        yield store
        for piece in leftovers(store):
            httpx.delete(f"{own_url}{piece.path}", timeout=60)


def rendered(store: ElasticStore, source: str, **params: Any) -> dict[str, Any]:
    """As the server renders it. (Its module lang-mustache is a stand-in, with the library that the module uses.)"""
    asked = {"source": source, "params": params}
    answer = httpx.post(f"{store.client.connection.url}/_render/template", json=asked, timeout=60).raise_for_status()
    found: dict[str, Any] = answer.json()["template_output"]
    return found


def everything(url: str) -> dict[str, Any]:
    """All of the cluster's state but what changes by itself: versions of the state and of its parts."""
    found = httpx.get(f"{url}/_cluster/state", timeout=60).raise_for_status().json()
    components = httpx.get(f"{url}/_component_template", timeout=60).raise_for_status().json()
    own = {"version", "state_uuid", "cluster_uuid", "cluster_uuid_committed", "cluster_coordination", "primary_terms"}

    def lasting(part: Any) -> Any:
        if isinstance(part, dict):
            kept = {name for name in part if name not in own and not name.endswith("version")}
            # Where the last of something was taken out, the server keeps an empty list of it.
            return {name: found for name in kept if (found := lasting(part[name])) not in ({}, [])}
        return [lasting(one) for one in part] if isinstance(part, list) else part

    return {"state": lasting(found), "components": components}


CLAIM = 'The "sea" rose\\fell\nby 20 cm {{claim}}'
FUSED = [
    SEARCH,
    Search([], {"bm25": Bm25(weight=2), "dense": Dense()}),
    Search([], SEARCH.retrievers, Fusion(method="minmax"), details=False),
]


@pytest.mark.parametrize("filters", [(), ("year>=2000", "year!=2015")])
@pytest.mark.parametrize("search", FUSED, ids=("rrf", "weighted", "minmax"))
def test_a_rendered_template_is_what_ccheck_sends(store, search, filters):
    from ccheck.search import parse_filter

    query = Query(CLAIM, vector_of(CLAIM))
    passing: list[Filter] = [parse_filter(one) for one in filters]
    index = store.searched(search.retrievers)
    bodies = filter_bodies(index, passing)
    (source,) = search_templates(store, search, None).values()
    assert query.vector is not None
    found = rendered(store, source, claim=CLAIM, vector=query.vector.tolist(), filters=bodies, size=7)
    asked = replace(search, queries=[query], k=7, filters=passing)
    sent = Searcher(store.client, store.index, index, asked, native=True).bodies(query)
    if not filters:  # ccheck leaves out an empty list
        (joined,) = found["retriever"].values()
        for one in joined["retrievers"]:
            assert next(iter(one.get("retriever", one).values())).pop("filter") == []
    assert found == json.loads(json.dumps(sent[NATIVE]))


@pytest.mark.parametrize("search", FUSED, ids=("rrf", "weighted", "minmax"))
def test_the_stored_template_finds_what_ccheck_finds(store, search):
    (piece,) = (one for one in pieces(store, search, None) if "/_scripts/" in one.path)
    put(store.client, piece)
    deeper = replace(search, retrievers={"bm25": Bm25(depth=50), "dense": Dense(depth=50)})
    found = [state(store.client, pieces(store, one, None)[-1]) for one in (search, deeper)]
    assert found == ["same", "changed"]
    query = Query("seas rise", vector_of("x"))
    params = {"claim": query.text, "vector": vector_of("x").tolist(), "filters": []}
    asked = {"id": piece.path.rpartition("/")[2], "params": params}
    answer = httpx.post(f"{store.name}/_search/template", json=asked, timeout=60).raise_for_status().json()
    (ranking,) = answer_search(store, replace(search, queries=[query], k=10))
    assert isinstance(ranking, Ranking) and ranking.fused_by == "server"
    found = [(hit.document.id, pytest.approx(hit.score)) for hit in ranking.hits]
    assert [(hit["_id"], hit["_score"]) for hit in answer["hits"]["hits"]] == found
    assert {id_ for id_, _ in found} == {"a", "b", "c"}


def test_the_further_indices_of_another_owner_get_no_templates(own_url, elasticsearch_index):
    """`papers-000002` would be made by them after a rollover, and refuse the owner's documents."""
    vector = {"type": "dense_vector", "dims": 16}
    put_index = {"mappings": {"properties": {"text": {"type": "text"}, "vector": vector}}}
    httpx.put(f"{own_url}/{elasticsearch_index}-000001", json=put_index, timeout=60).raise_for_status()
    with ElasticStore(Connection(own_url), f"{elasticsearch_index}-000001") as store:
        assert [piece.path for piece in pieces(store, SEARCH, None)] == [f"/_scripts/ccheck-{store.index}-search"]


def application(store: ElasticStore) -> Piece:
    return pieces(store, SEARCH, None, application=True)[-1]


def test_a_search_application_sends_what_the_search_template_does(store, own_url):
    httpx.put(f"{own_url}/{store.index}-000009", timeout=60).raise_for_status()
    before = everything(own_url)
    (template,) = (one for one in pieces(store, SEARCH, None) if "/_scripts/" in one.path)
    piece = application(store)
    assert state(store.client, piece) == "new"
    put(store.client, piece)
    assert state(store.client, application(store)) == "same"
    params = {"claim": CLAIM, "vector": [0.5] * 16}
    asked = httpx.post(f"{own_url}{piece.path}/_render_query", json={"params": params}, timeout=60).raise_for_status()
    assert asked.json() == rendered(store, template.body["script"]["source"], **params, filters=[])
    found = httpx.post(f"{own_url}{piece.path}/_search", json={"params": params}, timeout=60).raise_for_status().json()
    assert {hit["_id"] for hit in found["hits"]["hits"]} == {"a", "b", "c"}
    # Elasticsearch gives it an alias, which stays with its index when the store's moves.
    name = piece.path.rpartition("/")[2]
    (concrete,) = httpx.get(f"{own_url}/{name}/_alias", timeout=60).json()
    move = [{"add": {"index": f"{store.index}-000009", "alias": name}}, {"remove": {"index": concrete, "alias": name}}]
    httpx.post(f"{own_url}/_aliases", json={"actions": move}, timeout=60).raise_for_status()
    assert state(store.client, application(store)) == "changed"
    put(store.client, application(store))
    assert list(httpx.get(f"{own_url}/{name}/_alias", timeout=60).json()) == [concrete]
    assert remove(store.client, next(one for one in leftovers(store) if one.what == piece.what)) is None
    assert everything(own_url) == before


def test_a_search_application_takes_nobodys_name(store, own_url):
    piece = application(store)
    name = piece.path.rpartition("/")[2]
    theirs = {"indices": [f"{store.index}-000001"], "template": {"script": {"source": '{"query": {"match_all": {}}}'}}}
    httpx.put(f"{own_url}{piece.path}", json=theirs, timeout=60).raise_for_status()
    for one in (piece, leftovers(store)[2]):
        with pytest.raises(InvalidData, match="was not made by ccheck"):
            state(store.client, one)
    httpx.delete(f"{own_url}{piece.path}", timeout=60).raise_for_status()
    alias = {"actions": [{"add": {"index": f"{store.index}-000001", "alias": name}}]}
    httpx.post(f"{own_url}/_aliases", json=alias, timeout=60).raise_for_status()
    with pytest.raises(InvalidData, match="is an alias or index already"):
        state(store.client, piece)


def test_a_licence_without_rrf_has_no_search_application(elasticsearch_basic_url, elasticsearch_index):
    with ElasticStore(Connection(elasticsearch_basic_url), elasticsearch_index) as store:
        fill(store, LAYOUT, [entry("a")])
        refused = ccheck("index", "install", "--store", store.name, "--search-application", "--dry-run")
        assert refused.code == 2 and "trial or Enterprise" in refused.err
        gone = ccheck("index", "install", "--store", store.name, "--undo")
        assert gone.code == 0 and "nothing to remove" in gone.err


def test_what_somebody_else_made_is_left_alone(store, own_url):
    path = f"{own_url}/_scripts/ccheck-{store.index}-search"
    theirs = {"script": {"lang": "mustache", "source": '{"query": {"match_all": {}}}'}}
    httpx.put(path, json=theirs, timeout=60).raise_for_status()
    for piece in (pieces(store, SEARCH, None)[-1], leftovers(store)[0]):
        with pytest.raises(InvalidData, match="was not made by ccheck"):
            state(store.client, piece)
    assert httpx.get(path, timeout=60).json()["script"]["source"] == theirs["script"]["source"]


def test_a_component_that_another_store_uses_stays(store, own_url):
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


@pytest.mark.parametrize("search", [Search([], {"a": Bm25()}), Search([], {"a": Bm25(depth=20), "b": Dense()})])
def test_a_search_that_no_template_can_hold_is_an_error(store, search):
    with pytest.raises(UsageError, match="a search template can hold"):
        search_templates(store, search, None)


def test_the_reranked_template_wraps_the_same_retrievers(store):
    plain, reranked = search_templates(store, SEARCH, "ccheck-papers").values()
    params = {"claim": CLAIM, "vector": [0.5] * 16, "filters": [], "size": 5}
    inner, outer = (
        rendered(store, plain, **params),
        rendered(store, reranked, **params)["retriever"]["text_similarity_reranker"],
    )
    assert outer["retriever"] == inner["retriever"]
    assert (outer["inference_id"], outer["inference_text"], outer["field"]) == ("ccheck-papers", CLAIM, "text")


def asked_as_elasticsearch_does(kept: dict[str, Any], query: str, texts: list[str]) -> dict[str, list[Any]]:
    """The answer that Elasticsearch reads (`CustomRequest`, `RerankParameters`, `RerankResponseParser` in its source):
    JSON in place of what a request's placeholders name, the secret as it is in headers, lists by JSON paths."""
    settings = kept["service_settings"]
    request = settings["request"].replace("${query}", json.dumps(query)).replace("${input}", json.dumps(texts))
    secret = settings["secret_parameters"]["api_key"]
    headers = {name: one.replace("${api_key}", secret) for name, one in settings["headers"].items()}
    assert "${" not in f"{request} {headers}"
    answer = httpx.post(settings["url"], content=request, headers=headers, timeout=60).raise_for_status().json()
    paths = settings["response"]["json_parser"].items()
    return {name: [one[path.removeprefix("$.results[*].")] for one in answer["results"]] for name, path in paths}


def test_the_inference_endpoint_is_put_once_called_and_taken_out(store, own_url, monkeypatch):
    """The node has no module for inference: what stands for it here keeps an endpoint, and shows it without secrets."""
    kept: dict[str, dict[str, Any]] = {}

    def inference(asked: Asked) -> Reply | None:
        if "/_inference/" not in asked.path:
            return None
        product = {"X-Elastic-Product": "Elasticsearch"}
        if asked.method == "PUT" and asked.path in kept:  # `ModelRegistry` replaces none
            return Reply({"error": {"type": "resource_already_exists_exception"}, "status": 400}, 400, product)
        if asked.method == "PUT":
            kept[asked.path] = asked.json
        elif asked.path not in kept:
            return Reply({"error": {"type": "resource_not_found_exception"}, "status": 404}, 404, product)
        if asked.method == "DELETE":
            del kept[asked.path]
            return Reply({"acknowledged": True}, headers=product)
        shown = {name: one for name, one in kept[asked.path]["service_settings"].items() if name != "secret_parameters"}
        endpoint = {"inference_id": asked.path.rpartition("/")[2], "service": "custom", "service_settings": shown}
        return Reply(endpoint if asked.method == "PUT" else {"endpoints": [endpoint]}, headers=product)

    before = everything(own_url)
    with proxy(own_url, inference) as cluster, starting() as start:
        served = start(key="secret").url
        monkeypatch.setenv("CCHECK_RERANK_URL", served)
        monkeypatch.setenv("CCHECK_RERANK_API_KEY", "secret")
        command = ("index", "install", "--store", f"{cluster.url}/{store.index}", "--reranker", served)
        done = ccheck(*command, "--yes")
        assert done.code == 0 and f"ccheck-{store.index}-reranked" in done.out and "secret" not in done.out
        assert "everything is there" in ccheck(*command).err
        assert list(kept) == [f"/_inference/rerank/ccheck-{store.index}"]
        read = asked_as_elasticsearch_does(
            next(iter(kept.values())), 'The "sea" \\ rises', ["Tea grows.", "The sea rises."]
        )
        assert sorted(read["reranked_index"]) == [0, 1] and all(0 <= score <= 1 for score in read["relevance_score"])
        assert [type(one) for one in read["reranked_index"]] == [int, int]
        moved = ccheck(*command[:-1], "http://other:8080", "--yes")
        assert moved.code == 0 and f"changed  inference endpoint ccheck-{store.index}" in moved.out
        (settings,) = (one["service_settings"] for one in kept.values())
        assert settings["url"] == "http://other:8080/v2/rerank"
        assert ccheck(*command[:4], "--undo", "--yes").code == 0
    assert not kept and everything(own_url) == before


@pytest.mark.parametrize("licence", ["trial", "basic"])
def test_the_command_says_what_it_does_and_takes_it_out_again(request, licence, elasticsearch_index):
    """On the newest server with a trial, and on the oldest one without."""
    with contextlib.ExitStack() as stack:
        trial = licence == "trial"
        old = None if trial else stack.enter_context(start_node("basic", version=VERSION_8))
        url = request.getfixturevalue("own_url") if old is None else old.url
        store = stack.enter_context(ElasticStore(Connection(url), elasticsearch_index))
        fill(store, LAYOUT, [entry("a")])
        before, command = everything(url), ("index", "install", "--store", store.name)
        shown = ccheck(*command, "--reranker", "http://rerank:8080", "--dry-run")
        assert shown.code == 0 and "PUT _inference/rerank/" in shown.out and everything(url) == before
        asked = ccheck(*command)
        assert asked.code == 2 and "nothing was changed" in asked.err and everything(url) == before
        done = ccheck(*command, "--yes", *(["--search-application"] if trial else []))
        assert done.code == 0 and (f"GET {store.index}/_search/template" in done.out) == trial
        assert (f"POST _application/search_application/ccheck-{store.index}/_search" in done.out) == trial
        there = everything(url)
        kept = there["state"]["metadata"]
        assert f"ccheck-{store.index}" in kept["index_template"]["index_template"]
        again = ccheck(*command)
        assert again.code == 0 and "everything is there" in again.err and not again.out and everything(url) == there
        gone = ccheck(*command, "--undo", "--yes")
        assert gone.code == 0 and gone.out.count("remove") == (7 if trial else 5) and everything(url) == before
