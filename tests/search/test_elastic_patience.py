"""How long ccheck waits for a server, whom it asks again, and what it says meanwhile."""

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs

import pytest
from elastic_stub import MAPPING, WRITES, Answer, Stub
from http_stub import Reply
from searching import answer_all

from ccheck.core.errors import CcheckError, InvalidData, NotFound, ServerError
from ccheck.core.layout import Layout
from ccheck.core.stages import Bm25
from ccheck.core.types import Document, Entry, Query
from ccheck.search.elastic import Connection, ElasticStore, bulk, diagnose
from ccheck.search.elastic import client as clients
from ccheck.search.elastic import store as stores
from ccheck.search.elastic.errors import _errors, busy_part, from_response, may_pass, reason_of, too_many_clauses

WORDS = {"bm25": Bm25()}
REJECTED = {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "queue is full"}}


def hit(id_: str) -> dict[str, Any]:
    one = {"_index": "papers-000001", "_id": id_, "_score": 1.0, "_source": {"title": "T", "text": "x"}}
    return {"status": 200, "hits": {"hits": [one]}}


def asked_for(body: bytes) -> list[str]:
    """The words of each search of a `_msearch`."""
    searches = [json.loads(line) for line in body.splitlines()[1::2]]
    return [one["retriever"]["standard"]["query"]["match"]["content"]["query"] for one in searches]


def found(store: ElasticStore, *words: str) -> list[str]:
    """The first document for each claim, or the error's words."""
    rankings = answer_all(store, [Query(one) for one in words], WORDS, k=1)
    return [str(one) if isinstance(one, CcheckError) else one.hits[0].document.id for one in rankings]


@pytest.mark.parametrize("refused", [REJECTED, {"status": 500, "error": {"type": "node_closed_exception"}}])
def test_a_search_that_the_server_has_no_time_for_is_asked_again_alone(stub, store, refused):
    seen: list[list[str]] = []

    def busy_with_ice_at_first(body: bytes) -> Answer:
        seen.append(asked_for(body))
        return 200, {"responses": [refused if one == "ice" and len(seen) < 3 else hit(one) for one in seen[-1]]}

    stub.answers["POST", "/papers/_msearch"] = [busy_with_ice_at_first]
    assert found(store, "sea", "ice", "tea") == ["sea", "ice", "tea"]
    assert seen == [["sea", "ice", "tea"], ["ice"], ["ice"]]


def test_a_search_that_stays_refused_is_an_error_in_its_place(stub):
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [hit("sea"), REJECTED]})]
    with ElasticStore(Connection(stub.url, retry_seconds=0), "papers") as store:
        good, bad = answer_all(store, [Query("sea"), Query("ice")], WORDS, k=1)
    assert not isinstance(good, CcheckError) and good.hits[0].document.id == "sea"
    assert isinstance(bad, ServerError) and "too busy or not ready (429, queue is full)" in str(bad)


@pytest.mark.parametrize(
    "part",
    [
        {"docs": [{"_id": "a", "found": True}, {"_id": "b", "error": {"type": "no_shard_available_action_exception"}}]},
        {"_shards": {"failures": [{"status": 429, "reason": {"type": "x"}}]}},
        {"_shards": {"failures": [{"reason": {"type": "node_not_connected_exception"}}]}},
        REJECTED,
    ],
)
def test_an_answer_with_a_part_that_may_come_later_is_asked_for_again(stub, store, part):
    stub.answers["GET", "/papers/_count"] = [(200, part | {"count": 0}), (200, {"count": 7})]
    assert store.count() == 7


@pytest.mark.parametrize(
    "answer",
    [
        {"count": 3},
        {"docs": [{"_id": "a", "found": False}, {"_id": "b", "error": {"type": "routing_missing_exception"}}]},
        {"_shards": {"failures": [{"status": 400, "reason": {"type": "query_shard_exception"}}]}},
        {"_shards": "three", "docs": {"error": 1}},
        {"status": 400, "error": {"type": "parsing_exception"}},
    ],
)
def test_what_will_not_pass_is_asked_once(answer):
    assert busy_part(answer) is None


@pytest.mark.parametrize("media_type", [None, "text/html", "application/json"])
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_proxy_that_can_t_reach_the_server_is_asked_again(stub, store, status, media_type):
    gone = Reply(b"<html>Bad Gateway</html>", status, {"Content-Type": media_type})
    stub.answers["GET", "/papers/_count"] = [gone, gone, (200, {"count": 7})]
    assert store.count() == 7


def test_patience_that_was_used_up_is_not_spent_on_the_next_request(stub):
    gone, good = (503, {"error": "no master"}), (200, {"responses": [hit("sea")]})
    with ElasticStore(Connection(stub.url, retry_seconds=0.05), "papers") as store:
        asked: list[int] = []
        for answers in ([gone], [gone], [gone], [good], [gone]):
            stub.seen.clear()
            stub.answers["POST", "/papers/_msearch"] = list(answers)
            if answers == [good]:
                assert found(store, "sea") == ["sea"]
            else:
                with pytest.raises(ServerError, match="too busy"):
                    answer_all(store, [Query("sea")], WORDS, k=1)
            asked.append(len(stub.bodies("/papers/_msearch")))
    assert asked[0] > 1 and asked[1:4] == [1, 1, 1] and asked[4] > 1


def test_what_stays_busy_takes_no_patience_from_what_is_answered(stub, monkeypatch):
    """The record of checks fails for good, and each of its requests has a path of its own."""
    gone, good = (503, {"error": "no shard"}), (200, {"responses": [hit("sea")]})
    with ElasticStore(Connection(stub.url, retry_seconds=0.05), "papers") as store:
        for id_ in ("a", "b"):
            stub.answers["POST", f"/checks/_update/{id_}"] = [gone]
            with pytest.raises(ServerError, match="too busy"):
                store.client.on_index("POST", "checks", f"_update/{id_}", {})
            assert found_after(stub, store, [good]) == (["sea"], 1)
        later = time.monotonic() + 600
        monkeypatch.setattr(clients.time, "monotonic", lambda: later)
        store.client.connection = Connection(stub.url, retry_seconds=60)
        assert found_after(stub, store, [gone, gone, good]) == (["sea"], 3)
    assert len(stub.bodies("/checks/_update/a")) > 1 and len(stub.bodies("/checks/_update/b")) == 1


def test_what_stays_busy_ends_while_others_of_its_kind_are_answered(store, monkeypatch):
    tries, now = [], time.monotonic

    def refused() -> None:
        tries.append(store.client.again("/papers/_search", lambda: "answered"))
        assert len(tries) < 9
        raise clients.Busy(503, {})

    store.client.connection = Connection("http://x", retry_seconds=100)
    monkeypatch.setattr(clients.time, "monotonic", lambda: now() + 60 * len(tries))
    with pytest.raises(clients.Busy):
        store.client.again("/papers/_search", refused)
    assert len(tries) == 3


def found_after(stub: Stub, store: ElasticStore, answers: list[Answer]) -> tuple[list[str], int]:
    """What is found when the server answers searches so, and how many searches that took."""
    before = len(stub.bodies("/papers/_msearch"))
    stub.answers["POST", "/papers/_msearch"] = list(answers)
    return found(store, "sea"), len(stub.bodies("/papers/_msearch")) - before


def test_what_hangs_is_left_alone_once_that_took_as_long_as_a_server_is_waited_for(stub, monkeypatch):
    answered, now = threading.Event(), time.monotonic
    stub.answers["POST", "/papers/_msearch"] = [lambda _: answered.wait(60) and (200, {"responses": [hit("sea")]})]
    with ElasticStore(Connection(stub.url, request_timeout=0.3, retry_seconds=0.5), "papers") as store:
        tries, send = [], store.client.send
        monkeypatch.setattr(store.client, "send", lambda *how: tries.append(how[1]) or send(*how))
        for _ in range(6):
            with pytest.raises(ServerError, match=r"did not answer within 0\.3 s"):
                store.client.on_index("POST", "papers", "_msearch", b"{}\n")
            store.client._hung["/papers/_msearch"].until += 60  # whatever time this machine takes
        assert tries == ["/papers/_msearch"] * 2
        answered.set()
        assert store.client.on_index("GET", "papers") == MAPPING
        monkeypatch.setattr(clients.time, "monotonic", lambda: now() + 600)
        assert store.client.on_index("POST", "papers", "_msearch", b"{}\n")["responses"]
        assert not store.client._hung


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_an_answer_that_drips_is_given_up_after_one_timeout(head):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            taken, _ = server.accept()
            with taken, contextlib.suppress(OSError):
                taken.sendall(head)
                for _ in range(600):
                    taken.sendall(b"H")
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        connection = Connection(f"http://127.0.0.1:{server.getsockname()[1]}", request_timeout=0.5, retry_seconds=0)
        store = ElasticStore(connection, "papers")
        with store, pytest.raises(ServerError, match=r"did not answer within 0\.5 s"):
            store.client.on_index("GET", "papers")


def test_an_address_that_never_answered_is_not_waited_for(stub, monkeypatch):
    stub.answers["GET", "/papers/_count"] = [None]
    with ElasticStore(Connection(stub.url, retry_seconds=3600), "papers") as store:
        with pytest.raises(ServerError, match="can't be reached: it closed the connection before it answered"):
            store.count()
        assert len(stub.seen) == clients.ATTEMPTS
    stub.answers["GET", "/"] = [(503, {})]
    (finding,) = diagnose(Connection(stub.url, retry_seconds=3600))
    assert finding[:2] == ("elasticsearch", False)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (None, "is not answering (it closed the connection before it answered); trying again for up to 60 s"),
        ((503, {"error": {"reason": "no s3cret"}}), "is busy or not ready (no ***); trying again for up to 60 s"),
    ],
)
def test_waiting_is_said_once_in_each_silence(stub, monkeypatch, caplog, gone, said):
    monkeypatch.setattr(clients, "SAID_AFTER", 0.0)
    with ElasticStore(Connection(stub.url, username="u", password="s3cret", retry_seconds=60), "papers") as store:
        stub.answers["GET", "/papers/_count"] = [(200, {"count": 1})]
        store.count()
        assert not caplog.messages
        for _ in range(2):
            stub.answers["GET", "/papers/_count"] = [gone, gone, gone, (200, {"count": 1})]
            store.count()
    mine = [record.message for record in caplog.records if record.name.startswith("ccheck.")]
    assert mine == [f"{stub.url} {said}"] * 2


def test_searches_run_so_many_at_a_time(stub):
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [hit("sea")] * 2})]
    for connection, most in ((Connection(stub.url), 8), (Connection(stub.url, concurrency=3), 3)):
        with ElasticStore(connection, "papers") as store:
            assert found(store, "sea", "ice") == ["sea", "sea"]
        assert parse_qs(stub.seen[-1].query)["max_concurrent_searches"] == [str(most)]


def test_searches_that_are_rejected_come_back_fewer_at_a_time_and_none_is_given_up(stub, monkeypatch):
    """Each time the server answers one, so that it is waited for anew."""

    def one_of_them(body: bytes) -> Answer:
        first, *others = asked_for(body)
        return 200, {"responses": [hit(first), *[REJECTED for _ in others]]}

    stub.answers["POST", "/papers/_msearch"], now = [one_of_them], time.monotonic
    words = ["sea", "ice", "tea", "soil", "bird", "fish"]
    with ElasticStore(Connection(stub.url, retry_seconds=100, request_timeout=1000), "papers") as store:
        monkeypatch.setattr(clients.time, "monotonic", lambda: now() + 60 * len(stub.bodies("/papers/_msearch")))
        assert found(store, *words) == words
    at_once = [parse_qs(one.query)["max_concurrent_searches"] for one in stub.seen if one.path.endswith("_msearch")]
    assert at_once == [["8"], ["4"], ["2"], ["1"], ["1"], ["1"]]


def test_so_many_requests_write_at_a_time(stub, monkeypatch):
    monkeypatch.setattr(bulk, "CHUNK_DOCUMENTS", 1)
    guard, most, now = threading.Lock(), 0, 0

    def written(body: bytes) -> Answer:
        nonlocal most, now
        with guard:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with guard:
            now -= 1
        return 200, {"items": [{"index": {"status": 201, "result": "created"}}]}

    stub.answers["POST", f"/{WRITES}/_bulk"] = [written]
    with ElasticStore(Connection(stub.url, concurrency=3), "papers") as store, ThreadPoolExecutor(2) as pool:
        batches = [[Entry(Document(f"{name}{n}", "", "x"), "d") for n in range(20)] for name in "ab"]
        assert list(pool.map(store.upsert, batches)) == [{}, {}]
    assert len(stub.bodies(f"/{WRITES}/_bulk")) == 40 and most <= 3


def test_an_index_that_another_writer_has_just_made_is_waited_for(stub, store, monkeypatch):
    monkeypatch.setattr(stores, "CREATED_PAUSE", 0.01)
    absent = 404, {"error": {"type": "index_not_found_exception", "reason": "no such index"}, "status": 404}
    exists = 400, {"error": {"type": "resource_already_exists_exception", "reason": "exists"}, "status": 400}
    stub.answers["GET", "/papers"] = [absent, absent, absent, (200, MAPPING)]
    stub.answers["PUT", "/papers-000001"] = [exists]
    store.prepare(Layout())
    stub.answers["GET", "/papers"] = [absent]
    with pytest.raises(InvalidData, match=r"papers-000001 exists on .*, but not its alias papers"):
        store.prepare(Layout())


SHARD = {"reason": {"type": "query_shard_exception", "reason": "the field has no positions"}}
FAILED = {"type": "search_phase_execution_exception", "reason": "all shards failed", "failed_shards": [SHARD]}
RRF = {
    "type": "status_exception",
    "reason": "[rrf] search failed - retrievers '[standard]' returned errors. All failures are attached",
    "suppressed": [FAILED],
}


def test_the_reason_of_a_failed_rrf_is_that_of_its_retrievers(stub, store):
    body = {"error": {"root_cause": [dict(RRF, suppressed=[])], **RRF}, "status": 400}
    assert reason_of(body) == ("status_exception", f"{RRF['reason']}: all shards failed: the field has no positions")
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [body]})]
    (error,) = answer_all(store, [Query("sea")], WORDS, k=1)
    assert isinstance(error, InvalidData) and "the field has no positions" in str(error)


def test_a_retriever_that_was_refused_for_a_while_makes_rrf_pass_later():
    suppressed = [{"type": "search_phase_execution_exception", "caused_by": REJECTED["error"]}]
    assert may_pass(500, {"error": RRF | {"suppressed": suppressed}})
    assert not may_pass(500, {"error": RRF})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("text", ("", "text")),
        ({"error": "words"}, ("", "words")),
        ({"error": {"type": "t", "reason": "a", "caused_by": {"reason": "a"}}}, ("t", "a")),
        (
            {"error": {"reason": "rejected execution of Timed{x[y]} on Pool[name = host/write, queue]]"}},
            ("", "the queue of its write threads is full"),
        ),
        ({"error": {"type": "t", "root_cause": 3, "suppressed": {}, "failed_shards": "x", "caused_by": []}}, None),
        ({"error": {"type": "t", "reason": "y" * 5_000}}, ("t", "y" * 600)),
    ],
)
def test_reasons_of_strange_bodies(body, expected):
    kind, reason = reason_of(body)
    assert (kind, reason) == expected if expected else kind == "t" and reason.startswith("{'type'")


@pytest.mark.parametrize(("asked", "limit", "least", "most"), [("15", 20, 1, 30), ("600", 1, 0, 30)])
def test_a_search_waits_as_long_as_the_server_asks_within_the_limit(stub, asked, limit, least, most):
    """Pauses are a tenth as long in tests."""
    busy = Reply({"error": "busy"}, 429, {"X-Elastic-Product": "Elasticsearch", "Retry-After": asked})
    stub.answers["POST", "/papers/_msearch"] = [busy, (200, {"responses": [hit("a")]})] if least else [busy]
    with ElasticStore(Connection(stub.url, retry_seconds=limit), "papers") as store:
        started = time.monotonic()
        with contextlib.nullcontext() if least else pytest.raises(ServerError, match="too busy"):
            assert found(store, "sea") == ["a"]
        assert least <= time.monotonic() - started < most


def test_https_to_a_server_that_waits_for_more(monkeypatch):
    """As many servers of plain http do: the handshake's first bytes end no line."""
    monkeypatch.setattr("ccheck.search.elastic.client.CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        with ElasticStore(Connection(url), "papers") as store, pytest.raises(ServerError, match="start with http://"):
            store.info()


# -- what is said for each answer that is an error


HERE = Connection("http://host:9200")


def body(type_: str, reason: str = "why") -> dict[str, Any]:
    return {"error": {"type": type_, "reason": reason}}


@pytest.mark.parametrize(
    ("status", "type_", "kind", "said"),
    [
        (404, "index_not_found_exception", NotFound, "there is no index http://host:9200/papers. Create it with"),
        (404, "alias_missing", NotFound, "there is no index"),
        (404, "aliases_not_found_exception", NotFound, "there is no index"),
        (400, "index_not_found_exception", InvalidData, "refuses the request (400 index_not_found_exception): why"),
        (404, "resource_not_found_exception", ServerError, "papers failed (404 resource_not_found_exception): why"),
        (405, "", ServerError, "papers failed (405 ): why"),
        (410, "gone", ServerError, "papers failed (410 gone): why"),
        (401, "security_exception", ServerError, "http://host:9200 does not accept the credentials (why): set ELASTIC"),
        (403, "security_exception", ServerError, "papers denies access: why. To see which privileges are missing"),
        (403, "cluster_block_exception", ServerError, "accept changes: why. Somebody made it read-only. Lift the"),
        (503, "cluster_block_exception", ServerError, "papers is too busy or not ready (503, why)"),
        (413, "", InvalidData, "papers refuses a request of this size: raise http.max_content_length"),
        (429, "x", ServerError, "papers is too busy or not ready (429, why): try again later"),
        (500, "node_closed_exception", ServerError, "papers is too busy or not ready (500, why)"),
        (500, "x", ServerError, "papers failed (500 x): why"),
        (400, "x", InvalidData, "papers refuses the request (400 x): why"),
        (400, "index_closed_exception", ServerError, "is closed. Somebody did that: open it with POST papers/_open"),
    ],
)
def test_each_answer_has_its_words(status, type_, kind, said):
    error = from_response(status, body(type_), HERE, "papers")
    assert isinstance(error, kind) and error.exit_code == kind.exit_code and said in str(error)


@pytest.mark.parametrize("reason", [
    "Search rejected due to missing shards [[p][0]]. Consider using `allow_partial_search_results` setting to bypass.",
    "all shards failed",
    "No shard available for [x]",
    "[p][0] primary shard is not active Timeout: [10s]",
])  # fmt: skip
def test_a_shard_that_is_gone_says_where_to_look(reason):
    said = str(from_response(503, body("x", reason), HERE, "papers"))
    assert "GET _cluster/allocation/explain" in said and "allow_partial" not in said
    rejected = {"error": {"type": "x", "reason": reason, "caused_by": {"reason": "the queue is full"}}}
    assert reason != "all shards failed" or "explain" not in str(from_response(429, rejected, HERE, "papers"))


def test_an_index_full_of_fields_says_what_lifts_the_limit():
    full = body("illegal_argument_exception", "Limit of total fields [1000] has been exceeded")
    said = str(from_response(400, full, HERE, "papers-000001"))
    assert 'PUT papers-000001/_settings {"index.mapping.total_fields.limit": 2000}' in said


def failed_shard(cause: dict[str, str]) -> dict[str, Any]:
    """How a server says why a search failed."""
    shard = {"reason": {"type": "query_shard_exception", "reason": "failed to create query", "caused_by": cause}}
    return {"error": {"type": "search_phase_execution_exception", "failed_shards": [shard]}}


@pytest.mark.parametrize(
    "refused",
    [
        failed_shard({"type": "too_many_clauses", "reason": "any words"}),
        failed_shard({"type": "too_many_nested_clauses", "reason": "any words"}),
        body("circuit_breaking_exception", "Data too large, data for [query] would be [9/5b]"),
    ],
)
def test_too_many_clauses_are_the_claims_matter(refused):
    for status in (400, 429, 500):
        error = from_response(status, refused, HERE, "papers")
        assert isinstance(error, InvalidData) and "the claim has too many words" in str(error)
        assert too_many_clauses(refused) and not may_pass(status, refused)


def test_of_an_error_as_much_is_read_as_helps():
    """A server chooses how deep its errors are nested, and how many shards say the same."""
    nested: dict[str, Any] = {}
    for _ in range(300):
        nested = {"caused_by": nested}
    assert len(list(_errors({"error": nested}))) == 50
    shards = [{"reason": {"reason": f"shard {number}"}} for number in range(3)]
    assert reason_of({"error": {"reason": "all failed", "failed_shards": shards}}) == ("", "all failed: shard 0")
