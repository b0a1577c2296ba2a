"""What ccheck makes of a server's answers, by a server that answers what a test says."""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from elastic_indices import PROSE, make, put
from elastic_stub import MAPPING, WORDS, WRITES, Answer, Stub, mapping, searched
from searching import answer_all, info_of, rank_all, rank_one

from ccheck.core.errors import CcheckError, InvalidData, NotFound, ServerError, UsageError
from ccheck.core.layout import Chunking, Embedding, Layout
from ccheck.core.profiles import StoreProfile
from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Document, Entry, Query
from ccheck.search.elastic import Connection, ElasticStore, diagnose
from ccheck.search.elastic.client import Client
from ccheck.search.elastic.fields import Index
from ccheck.search.elastic.found import Sample, read_index
from ccheck.search.elastic.queries import retriever_body
from ccheck.search.elastic.reading import figures


def entries(count: int, text: str = "A text.") -> list[Entry]:
    return [Entry(Document(f"d{number}", "A title", text), "1") for number in range(count)]


def stored(body: bytes) -> tuple[int, Any]:
    """What a server answers that stores everything."""
    made = {"status": 201, "result": "created"}
    return 200, {"errors": False, "items": [{"index": {"_id": id_, **made}} for id_ in sent_ids(body)]}


def sent_ids(body: bytes) -> list[str]:
    return [json.loads(line)["index"]["_id"] for line in body.splitlines()[::2]]


def test_only_failed_items_are_sent_again(stub: Stub, store: ElasticStore) -> None:
    def partly(body: bytes) -> Answer:
        items = []
        for id_ in sent_ids(body):
            status = {"d1": 429, "d2": 400}.get(id_, 201)
            error = {"type": "some_exception", "reason": f"a reason {status}"}
            items.append({"index": {"status": status} | ({"error": error} if status > 201 else {"result": "created"})})
        return 200, {"errors": True, "items": items}

    stub.answers["POST", f"/{WRITES}/_bulk"] = [partly, stored]
    assert store.upsert(entries(4)) == {"d2": "some_exception: a reason 400"}
    assert [sent_ids(body) for body in stub.bodies(f"/{WRITES}/_bulk")] == [["d0", "d1", "d2", "d3"], ["d1"]]


def test_whoever_wants_to_stop_need_not_wait_for_a_server_that_is_gone(stub: Stub) -> None:
    stub.answers["POST", f"/{WRITES}/_bulk"] = [(503, {"error": {"type": "x", "reason": "no master"}})]
    with ElasticStore(Connection(stub.url, retry_seconds=300), "papers") as store, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.upsert, entries(1))
        while not stub.bodies(f"/{WRITES}/_bulk"):
            time.sleep(0.01)
        store.abandon()
        assert isinstance(writing.exception(30), ServerError)
        with pytest.raises(ServerError):
            store.upsert(entries(1))


def test_requests_too_large_are_halved(stub: Stub, store: ElasticStore) -> None:
    too_large = 413, {"error": "too large"}
    stub.answers["POST", f"/{WRITES}/_bulk"] = [lambda body: stored(body) if len(body) < 1_000 else too_large]
    documents = [*entries(40), Entry(Document("long", "", "y" * 2_000), "1")]
    assert list(store.upsert(documents)) == ["long"]
    accepted = {id_ for body in stub.bodies(f"/{WRITES}/_bulk") if len(body) < 1_000 for id_ in sent_ids(body)}
    assert accepted == {f"d{number}" for number in range(40)}


def test_requests_are_bounded_by_bytes_and_count(stub: Stub, store: ElasticStore) -> None:
    stub.answers["POST", f"/{WRITES}/_bulk"] = [stored]
    store.upsert(entries(1_200))
    store.upsert(entries(12, "z" * (1 << 20)))
    bodies = stub.bodies(f"/{WRITES}/_bulk")
    assert sorted(len(sent_ids(body)) for body in bodies[:3]) == [200, 500, 500]
    assert all(len(body) <= 5 << 20 for body in bodies) and len(bodies) == 6


def test_what_no_index_takes_is_refused_here(stub: Stub, store: ElasticStore) -> None:
    stub.answers["POST", f"/{WRITES}/_bulk"] = [stored]
    documents = [Document("é" * 257, "", "x"), Document("", "", "x"), Document("half", "\ud800", "x")]
    refused = store.upsert([Entry(document, "1") for document in documents])
    reasons = {"é" * 257: "its id has 514", "": "its id has 0 b", "half": "it can't be wr"}
    assert {id_: reason[:14] for id_, reason in refused.items()} == reasons
    assert stub.bodies(f"/{WRITES}/_bulk") == []


def test_what_is_not_elasticsearch(stub: Stub, store: ElasticStore) -> None:
    stub.product = "OpenSearch"
    with pytest.raises(ServerError, match="is not Elasticsearch"):
        store.count()


def test_no_message_shows_a_secret(stub: Stub) -> None:
    with_password = Connection(stub.url.replace("//", "//elastic:s3cret%21@"))
    assert (with_password.username, with_password.password) == ("elastic", "s3cret!")
    stub.answers["GET", "/papers/_count"] = [(401, {"error": {"type": "x", "reason": "s3cret! k3y-of-the-user"}})]
    for connection in (with_password, Connection(stub.url, api_key="k3y-of-the-user")):
        with ElasticStore(connection, "papers") as store:
            assert store.name == f"{stub.url}/papers"
            with pytest.raises(ServerError) as caught:
                store.count()
            shown = f"{caught.value} {connection!r} {store.name}"
            assert connection.password is None or "s3cret" not in shown
            assert connection.api_key is None or "k3y-of-the-user" not in shown
    sent = [one.headers["authorization"] for one in stub.seen]
    assert sent[0].startswith("Basic ") and sent[-1] == "ApiKey k3y-of-the-user"


@pytest.mark.parametrize("index", ["", "_all", "a,", "a?", "a/b", "a b", "far:papers"])
def test_names_that_are_no_index(index: str) -> None:
    with pytest.raises(UsageError, match="does not name an index"):
        ElasticStore(Connection("http://localhost:9200"), index)


def test_connections() -> None:
    assert Connection("https://host/es/").url == "https://host:443/es"
    for wrong in ({}, {"url": "host:9200"}, {"url": "http://"}, {"url": "http://h:x"}):
        with pytest.raises(UsageError, match="ELASTICSEARCH_"):
            Connection(**wrong)


def test_nothing_to_search_for_asks_nothing(stub: Stub, store: ElasticStore) -> None:
    (ranking, *_) = answer_all(store, [Query(""), Query("the of")], {"bm25": Bm25()}, k=3)
    assert not isinstance(ranking, CcheckError) and ranking.hits == ()
    assert stub.bodies("/papers/_msearch") == []


def test_one_query_that_can_not_be_read_does_not_take_the_others_along(stub: Stub, store: ElasticStore) -> None:
    def read(body: bytes) -> Answer:
        if b"unreadable" in body:
            return 400, {"error": {"type": "x_content_parse_exception", "reason": "what is this"}}
        return 200, {"responses": [{"hits": {"hits": []}}]}

    stub.answers["POST", "/papers/_msearch"] = [read]
    good, bad = answer_all(store, [Query("sea"), Query("unreadable")], {"bm25": Bm25()}, k=3)
    assert not isinstance(good, CcheckError) and isinstance(bad, InvalidData)


def test_thousands_of_candidates_are_asked_for_in_several_requests(stub: Stub, store: ElasticStore) -> None:
    def none(body: bytes) -> Answer:
        return 200, {"responses": [{"status": 200}] * (len(body.splitlines()) // 2)}

    stub.answers["POST", "/papers/_msearch"] = [none]
    queries = [Query(f"sea {number}") for number in range(5)]
    assert len(rank_all(store, queries, {"bm25": Bm25(depth=10_000)})) == 5
    assert [len(searched(body)) // 2 for body in stub.bodies("/papers/_msearch")] == [2, 2, 1]


def test_an_alias_that_is_gone_is_put_back_and_the_index_not_made_again(stub: Stub, store: ElasticStore) -> None:
    stub.answers["GET", "/papers"] = [(404, {"error": {"type": "index_not_found_exception"}})]
    assert store.info() is None
    with pytest.raises(NotFound, match="Create it with"):
        store.state()
    index = {name: one | {"aliases": {}} for name, one in MAPPING.items()}
    stub.answers["GET", "/papers-*,papers"] = [(200, index | {"papers-2-000009": index["papers-000001"]})]
    for asked in (store.info, store.state):
        with pytest.raises(NotFound, match=r"papers-000001 has lost this alias.*POST _aliases .*\"alias\": \"papers\""):
            asked()
    # It was made between the two questions, by another process.
    stub.answers["GET", "/papers-*,papers"] = [(200, MAPPING)]
    assert store.info() is None


def test_a_key_that_may_not_ask_for_figures(stub: Stub, store: ElasticStore) -> None:
    refused = {"error": {"type": "security_exception", "reason": "indices:monitor/stats is unauthorized"}}
    stub.answers["GET", "/papers-000001/_stats/docs,store"] = [(403, refused)]
    stub.answers["POST", "/papers/_search"] = [(200, {"aggregations": {"passages": {"doc_count": 0}}})]
    stub.answers["GET", "/papers/_count"] = [(200, {"count": 3})]
    stub.answers["POST", "/papers/_count"] = [(200, {"count": 0})]
    info = info_of(store)
    assert (info.documents, info.state, info.bytes) == (3, None, None)
    stub.answers["GET", "/papers-000001/_stats/docs,store"] = [None]
    with pytest.raises(ServerError, match="can't be reached"):  # and nothing else is asked of it first
        store.state()


def test_diagnose(stub: Stub) -> None:
    stub.answers["GET", "/"] = [(200, {"version": {"number": "9.5.3", "build_flavor": "default"}})]
    stub.answers["GET", "/_license"] = [(200, {"license": {"type": "basic", "status": "active"}})]
    stub.answers["GET", "/_cluster/health"] = [(200, {"status": "red", "cluster_name": "c", "number_of_data_nodes": 3})]
    findings = {part: (ok, detail) for part, ok, detail in diagnose(Connection(stub.url))}
    assert findings["elasticsearch"] == (True, f"{stub.url}: Elasticsearch 9.5.3")
    assert findings["licence"][0] and "ccheck joins" in findings["licence"][1]
    assert findings["cluster"] == (False, "c is red, 3 data nodes")
    stub.answers["GET", "/_license"] = [(403, {"error": {"type": "security_exception", "reason": "unauthorized"}})]
    stub.answers["GET", "/"] = [(200, {"version": {"number": "8.11.0"}})]
    findings = {part: (ok, detail) for part, ok, detail in diagnose(Connection(stub.url))}
    assert not findings["elasticsearch"][0] and "8.19" in findings["elasticsearch"][1]
    assert findings["licence"][0] and "unknown" in findings["licence"][1]
    stub.answers["GET", "/_license"] = stub.answers["GET", "/_cluster/health"] = [(503, {})]
    assert [ok for _, ok, said in diagnose(Connection(stub.url)) if "503" in said] == [False, False]
    stub.answers["GET", "/"] = [(503, {})]
    ((part, ok, _),) = diagnose(Connection(stub.url))
    assert (part, ok) == ("elasticsearch", False)


OURS = {"ccheck": {"format": 1, "layout": {}}}


LAYOUT = Layout.with_vectors(Embedding("m", 2, "f", 8), Chunking(8, 8, 0))


def index(properties: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> Index:
    def sampling(names: Any) -> dict[str, Sample]:
        return {name: Sample(1, (f"{name}: {PROSE}",)) for name in names}

    words = WORDS if meta else {}
    found = {"papers-1": {"mappings": {"properties": words | dict(properties), "_meta": meta or {}}}}
    return read_index(found, StoreProfile(), "here", sampling)


def vector(similarity: str, dims: int = 2) -> dict[str, Any]:
    return {"type": "dense_vector", "dims": dims, "similarity": similarity}


EMBEDDED = {"ccheck": {"format": 1, "layout": LAYOUT.to_dict()}}
PASSAGES = {"passages": {"type": "nested", "properties": {"vector": vector("cosine")}}}
MINE = index({"title": {"type": "text"}}, OURS)
THEIRS = index({"title": {"type": "text"}, "body": {"type": "text"}, "vector": vector("cosine")})


def body(index: Index, retriever: Retriever, query: Query, **options: Any) -> Any:
    return retriever_body(index, "one", query, retriever, options.pop("filters", []), **options)


def test_equal_scores_keep_the_order_of_writing_in_our_own_index() -> None:
    match = {"match": {"content": {"query": "sea"}}}
    order = [{"_score": "desc"}, {"_seq_no": "asc"}]
    assert body(MINE, Bm25(), Query("sea")) == {"standard": {"query": match, "sort": order}}
    assert "sort" not in body(THEIRS, Bm25(), Query("sea"))["standard"]


@pytest.mark.parametrize(
    ("dense", "candidates"),
    [
        (Dense(depth=10), 100),
        (Dense(depth=60), 120),
        (Dense(depth=60, candidates=300), 300),
        (Dense(depth=60, candidates=20), 60),
        (Dense(depth=9_000), 10_000),
    ],
)
def test_how_far_a_knn_search_looks(dense: Dense, candidates: int) -> None:
    knn = body(THEIRS, dense, Query("", np.array([1, 0], np.float32)))["knn"]
    assert (knn["k"], knn["num_candidates"]) == (dense.depth, candidates)
    assert body(THEIRS, dense, Query("no vector")) is None


@pytest.mark.parametrize("similarity", ["cosine", "dot_product", "l2_norm", "max_inner_product"])
def test_a_servers_scores_become_cosines(elasticsearch_url: str, elasticsearch_index: str, similarity: str) -> None:
    angles = {"near": 0.1, "right": math.pi / 2, "far": 2.5}
    flat = vector(similarity) | {"index_options": {"type": "flat"}}
    with httpx.Client(base_url=elasticsearch_url, timeout=60) as client:
        make(client, elasticsearch_index, {"body": {"type": "text"}, "vector": flat})
        for id_, angle in angles.items():
            source = {"body": PROSE, "vector": [math.cos(angle), math.sin(angle)]}
            put(client, elasticsearch_index, id_, source)
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        found = rank_one(store, Query("", np.array([1, 0], np.float32)), {"dense": Dense()})
    assert [id_ for id_, _ in found["dense"]] == ["near", "right", "far"]
    assert dict(found["dense"]) == pytest.approx({id_: math.cos(angle) for id_, angle in angles.items()}, abs=1e-5)


def test_the_searches_of_a_query_go_to_the_same_copies(stub: Stub) -> None:
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [{"status": 200}] * 4})]
    two: dict[str, Retriever] = {"a": Bm25(), "b": Bm25()}
    with ElasticStore(Connection(stub.url), "papers") as store:
        for _ in range(2):
            rank_all(store, [Query("sea"), Query("ice")], two)
    first, second = [searched(sent)[::2] for sent in stub.bodies("/papers/_msearch")]
    assert first == second
    said = [header["preference"] for header in first]
    assert said[0] == said[1] != said[2] == said[3] and said[0].startswith("ccheck-")
    assert all(header["allow_partial_search_results"] is False for header in first)


def test_a_mapping_is_read_once_and_again_after_an_error(stub: Stub) -> None:
    failed = {"error": {"type": "x", "reason": "y"}}
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [{"status": 200}]})] * 2 + [(500, failed)]
    with ElasticStore(Connection(stub.url), "papers") as store:

        def ask() -> int:
            with contextlib.suppress(ServerError):
                rank_all(store, [Query("sea")], {"a": Bm25()})
            return sum(one.path == "/papers" for one in stub.seen)

        assert [ask() for _ in range(4)] == [1, 1, 1, 2]


def stats(*copies: tuple[bool, int, int, int]) -> dict[str, Any]:
    shards = [
        {"routing": {"primary": primary}, "seq_no": {"max_seq_no": last}, "docs": {"count": count, "deleted": gone}}
        for primary, last, count, gone in copies
    ]
    indices = {"papers-000001": {"uuid": "u", "shards": {str(n): [one] for n, one in enumerate(shards)}}}
    return {"indices": indices, "_all": {"total": {"store": {"size_in_bytes": 77}}}}


def test_the_state_follows_the_writes_of_primaries(stub: Stub) -> None:
    path = "/papers-000001/_stats/docs,store"
    seen = []
    with_replica = stats((True, 4, 5, 0), (False, 9, 9, 9), (True, -1, 0, 0))
    for answer in (with_replica, stats((True, 4, 5, 0), (True, 0, 1, 0)), stats((True, 4, 5, 1), (True, 0, 1, 0)), {}):
        stub.answers["GET", path] = [(200, answer)]
        seen.append(figures(Client(Connection(stub.url)), MINE_BY_NAME))
    assert [bytes_ for bytes_, _ in seen] == [77, 77, 77, None] and seen[3] == (None, None)
    assert len({state for _, state in seen[:3]}) == 3


MINE_BY_NAME = read_index(mapping(OURS), StoreProfile(), "here", lambda names: {})


def test_indices_of_later_versions_and_broken_layouts_are_refused() -> None:
    for meta in ({"format": 2, "version": "9"}, {"format": "x"}, {"format": 1, "layout": {"embedding": {"x": 1}}}):
        with pytest.raises(InvalidData, match="can't read"):
            index({}, {"ccheck": meta})
    mine = index(PASSAGES, EMBEDDED)
    assert (mine.vector, mine.dimensions) == ("passages.vector", 2)
    with pytest.raises(InvalidData, match=r"mapping of here has no passages\.vector"):
        index({}, EMBEDDED)
