"""What ccheck makes of a server's answers, by a server that answers what a test says."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import pytest
from elastic_stub import WRITES, Answer, Stub, mapping, searched
from searching import answer_all, rank_all

from ccheck.core.errors import CcheckError, InvalidData, ServerError, UsageError
from ccheck.core.layout import MAIN_VECTORS, Chunking, Embedding, Layout
from ccheck.core.settings import Settings
from ccheck.core.stages import Bm25, Dense
from ccheck.core.types import Document, Entry, Passage, Query
from ccheck.search.elastic import Connection, ElasticStore, connection_from, diagnose
from ccheck.search.elastic.bulk import index_operation


def entries(count: int, text: str = "A text.") -> list[Entry]:
    return [Entry(Document(f"d{number}", "A title", text), "1") for number in range(count)]


def stored(body: bytes) -> tuple[int, Any]:
    """What a server answers that stores everything."""
    ids = [json.loads(line)["index"]["_id"] for line in body.splitlines()[::2]]
    return 200, {"errors": False, "items": [{"index": {"_id": id_, "status": 201, "result": "created"}} for id_ in ids]}


def sent_ids(body: bytes) -> list[str]:
    return [json.loads(line)["index"]["_id"] for line in body.splitlines()[::2]]


# -- writing


@pytest.mark.parametrize("busy", [*[(status, {"error": "busy"}) for status in (429, 502, 503, 504)], None])
def test_a_busy_server_is_asked_again(stub: Stub, store: ElasticStore, busy: Answer) -> None:
    """Also after a lost connection."""
    stub.answers["POST", f"/{WRITES}/_bulk"] = [busy, busy, stored]
    assert store.upsert(entries(3)) == {}
    assert [sent_ids(body) for body in stub.bodies(f"/{WRITES}/_bulk")] == [["d0", "d1", "d2"]] * 3


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


def test_patience_ends(stub: Stub) -> None:
    stub.answers["POST", f"/{WRITES}/_bulk"] = [(503, {"error": {"type": "x", "reason": "no master"}})]
    with ElasticStore(Connection(stub.url, retry_seconds=0.1), "papers") as store:
        started = time.monotonic()
        with pytest.raises(ServerError, match=r"/papers-000001 is too busy or not ready \(503, no master\)"):
            store.upsert(entries(1))
        assert time.monotonic() - started < 60
    assert len(stub.bodies(f"/{WRITES}/_bulk")) >= 2


def test_whoever_wants_to_stop_need_not_wait_for_a_server_that_is_gone(stub: Stub) -> None:
    stub.answers["POST", f"/{WRITES}/_bulk"] = [(503, {"error": {"type": "x", "reason": "no master"}})]
    with ElasticStore(Connection(stub.url, retry_seconds=300), "papers") as store:
        errors: list[BaseException] = []

        def upsert() -> None:
            try:
                store.upsert(entries(1))
            except ServerError as error:
                errors.append(error)

        thread = threading.Thread(target=upsert)
        thread.start()
        while not stub.bodies(f"/{WRITES}/_bulk"):
            time.sleep(0.01)
        store.abandon()
        thread.join(30)
        assert not thread.is_alive() and len(errors) == 1
        with pytest.raises(ServerError):
            store.upsert(entries(1))


def test_an_items_error_that_is_no_documents_stops_everything(stub: Stub, store: ElasticStore) -> None:
    error = {"type": "index_not_found_exception", "reason": "no such index [papers]"}
    stub.answers["POST", f"/{WRITES}/_bulk"] = [
        (200, {"errors": True, "items": [{"index": {"status": 404, "error": error}}]})
    ]
    with pytest.raises(InvalidData, match="papers-000001 is gone"):
        store.upsert(entries(1))


def test_requests_too_large_are_halved(stub: Stub, store: ElasticStore) -> None:
    def small_only(body: bytes) -> Answer:
        return stored(body) if len(body) < 1_000 else (413, {"error": "too large"})

    stub.answers["POST", f"/{WRITES}/_bulk"] = [small_only]
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
    assert {id_: reason[:14] for id_, reason in refused.items()} == {
        "é" * 257: "its id has 514",
        "": "its id has 0 b",
        "half": "it can't be wr",
    }
    assert stub.bodies(f"/{WRITES}/_bulk") == []


def test_vectors_are_written_exactly_enough() -> None:
    vector = np.random.default_rng(0).normal(size=64).astype(np.float32)
    vector /= np.linalg.norm(vector)
    document = Document("a", "T", "Text", {"year": 2000}, "2000-12-31")
    entry = Entry(document, "1", {MAIN_VECTORS: (Passage(0, 4, vector), Passage(2, 4, -vector))})
    lines = index_operation(entry, Layout()).lines.splitlines()
    assert json.loads(lines[0]) == {"index": {"_id": "a"}}
    source = json.loads(lines[1])
    assert [(passage["start"], passage["end"]) for passage in source["passages"]] == [(0, 4), (2, 4)]
    assert np.allclose(source["passages"][1]["vector"], -vector, atol=1e-8)
    assert source["published"] == "2000-12-31"


# -- versions


def test_a_server_of_version_8_is_spoken_to_in_its_own_words(stub: Stub, store: ElasticStore) -> None:
    stub.only_version = 8
    stub.answers["GET", "/papers/_count"] = [(200, {"count": 7})]
    stub.answers["POST", f"/{WRITES}/_bulk"] = [stored]
    assert store.count() == 7
    assert store.upsert(entries(1)) == {}
    refused = [one for one in stub.seen if "compatible-with=9" in one.headers["accept"]]
    assert len(refused) == 1
    assert stub.seen[-1].headers["content-type"] == "application/vnd.elasticsearch+x-ndjson; compatible-with=8"


# -- errors


def test_what_is_not_elasticsearch(stub: Stub, store: ElasticStore) -> None:
    stub.product = "OpenSearch"
    with pytest.raises(ServerError, match="is not Elasticsearch"):
        store.count()


def test_tls_where_there_is_none(stub: Stub) -> None:
    secure = ElasticStore(Connection(stub.url.replace("http:", "https:")), "papers")
    with secure as store, pytest.raises(ServerError, match=r"no secure connection to .* start with http://"):
        store.count()


def test_no_message_shows_a_secret(stub: Stub) -> None:
    with_password = Connection(stub.url.replace("//", "//elastic:s3cret%21@"))
    assert (with_password.username, with_password.password) == ("elastic", "s3cret!")
    stub.answers["GET", "/papers/_count"] = [
        (401, {"error": {"type": "x", "reason": "no s3cret! and no k3y-of-the-user here"}})
    ]
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
    assert Connection("https://host/es/").name == "https://host:443/es"
    for wrong in ({}, {"url": "host:9200"}, {"url": "http://"}, {"url": "http://h:x"}):
        with pytest.raises(UsageError, match="ELASTICSEARCH_"):
            Connection(**wrong)
    settings = Settings(elasticsearch_url="http://a:9200", elasticsearch_api_key="key", elasticsearch_timeout=5)
    assert connection_from(settings) == Connection("http://a:9200", api_key="key", request_timeout=5)
    assert connection_from(settings, "http://b:9200").name == "http://b:9200"


# -- searching


def test_nothing_to_search_for_asks_nothing(stub: Stub, store: ElasticStore) -> None:
    (ranking, *_) = answer_all(store, [Query(""), Query("the of")], {"bm25": Bm25()}, k=3)
    assert not isinstance(ranking, CcheckError) and ranking.hits == ()
    assert stub.bodies("/papers/_msearch") == []


def test_one_query_that_fails_is_an_error_in_its_place(stub: Stub, store: ElasticStore) -> None:
    hit = {"_index": "papers-000001", "_id": "a", "_score": 2.2, "_source": {"title": "T", "text": "x"}}
    failed = {"status": 400, "error": {"type": "search_phase_execution_exception", "reason": "too many clauses"}}
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [{"hits": {"hits": [hit]}}, failed]})]
    good, bad = answer_all(store, [Query("sea"), Query("ice")], {"bm25": Bm25()}, k=3)
    assert not isinstance(good, CcheckError) and good.hits[0].score == 2.2
    assert isinstance(bad, InvalidData) and "too many clauses" in str(bad)


def test_fuzzy_words_that_a_server_refuses_become_fewer(stub: Stub, store: ElasticStore) -> None:
    cause = {"type": "too_many_clauses", "reason": "maxClauseCount is set to 1024"}
    failed = {"status": 400, "error": {"type": "search_phase_execution_exception", "caused_by": cause}}

    def answer(body: bytes) -> Answer:
        refuses = b'"max_expansions": 40' in body or b"fuzziness" not in body
        return 200, {"responses": [failed if refuses else {"status": 200}]}

    stub.answers["POST", "/papers/_msearch"] = [answer]
    claim = [Query(" ".join(f"word{number}" for number in range(200)))]
    assert rank_all(store, claim, {"bm25": Bm25(fuzziness="auto")}) == [{"bm25": []}]
    bodies = [searched(body)[1] for body in stub.bodies("/papers/_msearch")]
    matches = [body["retriever"]["standard"]["query"]["match"]["content"] for body in bodies]
    assert [match["max_expansions"] for match in matches] == [40, 5]
    (error,) = rank_all(store, claim, {"bm25": Bm25()})
    assert isinstance(error, InvalidData) and "too many words" in str(error)
    assert len(stub.bodies("/papers/_msearch")) == 3  # without fuzzy words there are none to spare


def test_one_query_that_can_not_be_read_does_not_take_the_others_along(stub: Stub, store: ElasticStore) -> None:
    def read(body: bytes) -> Answer:
        if b"unreadable" in body:
            return 400, {"error": {"type": "x_content_parse_exception", "reason": "what is this"}}
        return 200, {"responses": [{"hits": {"hits": []}}]}

    stub.answers["POST", "/papers/_msearch"] = [read]
    good, bad = answer_all(store, [Query("sea"), Query("unreadable")], {"bm25": Bm25()}, k=3)
    assert not isinstance(good, CcheckError) and isinstance(bad, InvalidData)


def test_searches_take_what_a_licence_allows(stub: Stub) -> None:
    layout = Layout.with_vectors(Embedding("m", 2, "f", 8), Chunking(8, 8, 0)).to_dict()
    vector = {"type": "dense_vector", "dims": 2, "similarity": "cosine"}
    fields = {"passages": {"type": "nested", "properties": {"vector": vector}}}
    meta = {"ccheck": {"format": 1, "layout": layout}}
    stub.answers["GET", "/papers"] = [(200, mapping(meta, fields))]
    refusal = {
        "type": "security_exception",
        "reason": "current license is non-compliant for [Reciprocal Rank Fusion (RRF)]",
        "license.expired.feature": "Reciprocal Rank Fusion (RRF)",
    }

    def basic(body: bytes) -> Answer:
        if b'"rrf"' in body:
            return 403, {"error": refusal, "status": 403}
        return 200, {"responses": [{"hits": {"hits": []}}] * (len(body.splitlines()) // 2)}

    stub.answers["POST", "/papers/_msearch"] = [basic]
    both = {"bm25": Bm25(), "dense": Dense()}
    with ElasticStore(Connection(stub.url), "papers") as store:
        for _ in range(2):
            answer_all(store, [Query("sea", np.array([1, 0], np.float32))], both, k=3)
        with pytest.raises(InvalidData, match=r"3 dimensions.*have 2"):
            answer_all(store, [Query("sea", np.array([1, 0, 0], np.float32))], both, k=3)
    bodies = [searched(body) for body in stub.bodies("/papers/_msearch")]
    assert [len(lines) for lines in bodies] == [2, 4, 4]  # native once, then both retrievers
    assert all(lines[0]["allow_partial_search_results"] is False for lines in bodies)
    native = {
        name: one.pop("_name")
        for fused in bodies[0][1]["retriever"]["rrf"]["retrievers"]
        for name, one in fused.items()
    }
    assert native == {"standard": "bm25", "knn": "dense"}
    assert bodies[0][1]["retriever"]["rrf"]["retrievers"] == [lines["retriever"] for lines in bodies[1][1::2]]


def test_rankings_read_no_more_of_an_answer_than_they_need(stub: Stub, store: ElasticStore) -> None:
    """An answer that is filtered leaves out what is empty."""
    hits = [{"_id": "a", "_score": 2.5}, {"_id": "b", "_score": 1.0}]
    stub.answers["POST", "/papers/_msearch"] = [
        (200, {"responses": [{"status": 200, "hits": {"hits": hits}}, {"status": 200}]})
    ]
    found = rank_all(store, [Query("sea"), Query("ice")], {"bm25": Bm25(depth=7)})
    assert found == [{"bm25": [("a", 2.5), ("b", 1.0)]}, {"bm25": []}]
    ((_, first, _, second),) = [searched(body) for body in stub.bodies("/papers/_msearch")]
    assert (first["docvalue_fields"], first["size"], second["size"]) == (["id"], 7, 7)


def test_thousands_of_candidates_are_asked_for_in_several_requests(stub: Stub, store: ElasticStore) -> None:
    def none(body: bytes) -> Answer:
        return 200, {"responses": [{"status": 200}] * (len(body.splitlines()) // 2)}

    stub.answers["POST", "/papers/_msearch"] = [none]
    queries = [Query(f"sea {number}") for number in range(5)]
    assert len(rank_all(store, queries, {"bm25": Bm25(depth=10_000)})) == 5
    assert [len(searched(body)) // 2 for body in stub.bodies("/papers/_msearch")] == [2, 2, 1]


def test_a_key_that_may_not_ask_for_figures(stub: Stub, store: ElasticStore) -> None:
    refused = {"error": {"type": "security_exception", "reason": "indices:monitor/stats is unauthorized"}}
    stub.answers["GET", "/papers-000001/_stats/docs,store"] = [(403, refused)]
    stub.answers["POST", "/papers/_search"] = [(200, {"aggregations": {"passages": {"doc_count": 0}}})]
    stub.answers["GET", "/papers/_count"] = [(200, {"count": 3})]
    stub.answers["POST", "/papers/_count"] = [(200, {"count": 0})]
    info = store.info()
    assert info is not None and (info.documents, info.state, info.bytes) == (3, None, None)


# -- doctor


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
    stub.answers["GET", "/"] = [(503, {})]
    ((part, ok, _),) = diagnose(Connection(stub.url))
    assert (part, ok) == ("elasticsearch", False)


def test_licence(elasticsearch_url: str, elasticsearch_basic_url: str) -> None:
    for url, native in ((elasticsearch_url, True), (elasticsearch_basic_url, False)):
        findings = {part: (ok, detail) for part, ok, detail in diagnose(Connection(url))}
        assert {ok for ok, _ in findings.values()} == {True}
        assert findings["elasticsearch"][1].startswith(f"{url}: Elasticsearch ")
        assert ("own rrf" in findings["licence"][1]) == native
