"""Elasticsearch servers that can't be reached, or that answer what no Elasticsearch does."""

import gzip
import hashlib
import itertools
import json
import shutil
import ssl
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from http_stub import Asked, HttpStub, Reply, http_stub
from searching import answer_all

from ccheck.core.errors import CcheckError, NotFound, ServerError, UsageError
from ccheck.core.settings import resolve
from ccheck.core.stages import Bm25
from ccheck.core.types import Query
from ccheck.search.elastic import Connection, ElasticStore, client, connection_from
from ccheck.search.elastic.client import Client

MIB = 1 << 20


PRODUCT = {"X-Elastic-Product": "Elasticsearch"}


def answer(asked: Asked) -> Reply:
    return Reply({"count": 7}, headers=PRODUCT)


def failure(url: str, **settings: Any) -> str:
    with ElasticStore(Connection(url, **({"retry_seconds": 0} | settings)), "papers") as store:
        with pytest.raises(ServerError) as caught:
            store.count()
        return str(caught.value)


def test_a_certificate_that_nobody_signed(certificate):
    with http_stub(answer, certificate.server) as stub:
        said = failure(stub.url)
        assert said.startswith(f"no secure connection to {stub.url}: its certificate is self-signed")
        assert "ELASTICSEARCH_CA_CERTS" in said
        for trusted in ({"ca_certs": certificate.file}, {"verify_certs": False}):
            with ElasticStore(Connection(stub.url, **trusted), "papers") as store:  # type: ignore[arg-type]
                assert store.count() == 7


def test_redirects_are_not_followed(two):
    elsewhere = f"{two[0].url}/papers/_count"
    with http_stub(lambda _: Reply(b"", 307, PRODUCT | {"Location": elsewhere})) as stub:
        said = failure(stub.url)
    assert f"{stub.url} redirects to {elsewhere} (307), and ccheck does not follow redirects" in said
    assert two[0].asked == []


@pytest.mark.parametrize(("status", "limit"), [(200, 4 * MIB), (500, MIB), (404, MIB)])
def test_an_answer_that_decodes_to_much_more_is_not_read_to_its_end(monkeypatch, status, limit):
    monkeypatch.setattr(client, "MOST_BYTES", 4 * MIB)
    bomb = Reply(gzip.compress(b'{"count": "' + b"0" * (256 * MIB) + b'"}', 1), status, PACKED)
    with http_stub(lambda _: bomb) as stub:
        failure("http://127.0.0.1:1")  # loads what a first request loads
        tracemalloc.start()
        said = failure(stub.url)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert f"the answer of {stub.url} is larger than {limit // MIB} MiB" in said
    assert peak < 24 * MIB, peak


PACKED = PRODUCT | {"Content-Encoding": "gzip"}


def test_an_answer_without_end_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr(client, "MOST_BYTES", 4 * MIB)
    endless = itertools.repeat(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    with http_stub(lambda _: Reply(endless, headers=PRODUCT | {"Transfer-Encoding": "chunked"})) as stub:
        assert "is larger than 4 MiB" in failure(stub.url)


def test_an_answer_within_the_limit_is_decoded():
    with http_stub(lambda _: Reply(gzip.compress(b'{"count": 7}'), headers=PACKED)) as stub:
        assert Client(Connection(stub.url)).request("GET", "/papers/_count") == {"count": 7}


def test_an_answer_that_is_too_large_is_not_asked_for_again(two, monkeypatch):
    monkeypatch.setattr(client, "MOST_BYTES", 10)
    assert "is larger than" in failure(two[0].url, retry_seconds=60)
    assert len(two[0].asked) == 1


HIT = {"_index": "papers-000001", "_id": "a", "_score": 1.0, "_source": {"title": "T", "text": "x"}}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"responses": []},
        {"responses": 7},
        {"responses": None},
        {"responses": ["words"]},
        {"responses": [None]},
        {"responses": [{"hits": 3}]},
        {"responses": [{"hits": {"hits": 3}}]},
        {"responses": [{"hits": {"hits": [{}]}}]},
        {"responses": [{"hits": {"hits": [HIT | {"_score": "high"}]}}]},
        {"responses": [{"hits": {"hits": [HIT | {"_source": 5}]}}]},
        {"responses": [{"error": 5, "status": "no"}]},
        {"responses": [{"_shards": {"failed": 1, "failures": 5}}]},
    ],
    ids=json.dumps,
)
def test_answers_of_another_shape_are_the_servers_error(stub, store, answer):
    stub.answers["POST", "/papers/_msearch"] = [(200, answer)]
    try:
        (found,) = answer_all(store, [Query("sea")], {"bm25": Bm25()}, k=1)
    except ServerError as error:
        found = error  # type: ignore[assignment]
    assert isinstance(found, ServerError), found


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        *[("/papers/_count", one) for one in ({}, {"count": "many"}, {"count": None}, {"count": 1, "_shards": 5})],
        *[("/papers", {"papers": one}) for one in (5, {}, {"mappings": {"properties": 5}})],
    ],
)
def test_counts_and_mappings_of_another_shape(stub, store, path, answer):
    stub.answers["GET", path] = [(200, answer)]
    with pytest.raises(ServerError, match="does not look like Elasticsearch's"):
        store.count() if path.endswith("_count") else store.info()


@pytest.fixture
def two() -> Iterator[tuple[HttpStub, HttpStub]]:
    with http_stub(answer) as first, http_stub(answer) as second:
        yield first, second


def test_all_hosts_are_asked_in_turn(two):
    server = Client(Connection(two[0].url, (two[1].url,), api_key="k3y"))
    for _ in range(6):
        assert server.request("GET", "/papers/_count") == {"count": 7}
    assert [len(stub.asked) for stub in two] == [3, 3]
    assert {one.headers["authorization"] for stub in two for one in stub.asked} == {"ApiKey k3y"}


def test_another_host_answers_at_once_for_one_that_is_gone(two):
    server = Client(Connection(two[0].url, (two[1].url,)))
    two[0].stop()
    for _ in range(4):
        assert server.request("GET", "/papers/_count", patient=False) == {"count": 7}
    assert len(two[1].asked) == 4


def test_a_busy_host_is_not_asked_more_often_because_there_are_others(two):
    """What waits for a busy server is `Client.again` alone."""
    busy = Reply({"error": {"type": "es_rejected_execution_exception", "reason": "full"}, "status": 429}, 429, PRODUCT)
    with http_stub(lambda asked: busy) as one, http_stub(lambda asked: busy) as other:
        server = Client(Connection(one.url, (other.url,)))
        with pytest.raises(ServerError, match="full"):
            server.request("GET", "/papers/_count", patient=False)
        assert len(one.asked) + len(other.asked) == 3


def test_a_host_that_hangs_costs_a_timeout_and_no_answer(two):
    """A search that took too long is asked once more, of another host; a write until one answers."""
    ended = threading.Event()

    def hangs(asked: Asked) -> Reply:
        ended.wait(30)
        return answer(asked)

    with http_stub(hangs) as one, http_stub(hangs) as other:
        server = Client(Connection(one.url, (two[0].url, two[1].url), request_timeout=2))
        for _ in range(6):
            assert server.request("GET", "/papers/_count") == {"count": 7}
        assert 1 <= len(one.asked) <= 3 and len(two[0].asked) + len(two[1].asked) == 6
        slow = Client(Connection(one.url, (other.url,), request_timeout=2))
        with pytest.raises(ServerError, match=r"did not answer within 2 s"):
            slow.request("GET", "/_x")
        assert [one.asked[-1].path, other.asked[-1].path, len(other.asked)] == ["/_x", "/_x", 1]
        ended.set()


def test_requests_say_who_asks_and_are_compressed_on_request(two):
    body = {"query": {"match_all": {}}}
    Client(Connection(two[0].url)).request("POST", "/papers/_search", body)
    Client(Connection(two[1].url, compress=True)).request("POST", "/papers/_search", body)
    plain, packed = two[0].asked[0], two[1].asked[0]
    assert plain.headers["x-opaque-id"] == "ccheck" and "content-encoding" not in plain.headers and plain.json == body
    assert packed.headers["accept-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body)) == body


def test_a_fingerprint_stands_for_the_authority(certificate):
    der = ssl.PEM_cert_to_DER_cert(certificate.file.read_text(encoding="ascii"))
    fingerprint = hashlib.sha256(der).hexdigest()
    with http_stub(answer, certificate.server) as stub:
        assert Client(Connection(stub.url, ca_fingerprint=fingerprint)).request("GET", "/_x") == {"count": 7}
        with pytest.raises(ServerError, match="no secure connection"):
            Client(Connection(stub.url, ca_fingerprint="0" * 64)).request("GET", "/_x")
        assert len(stub.asked) == 1
    with pytest.raises(UsageError, match="can't connect"):
        Client(Connection(stub.url, ca_fingerprint="not hexadecimal")).request("GET", "/_x")


@pytest.mark.parametrize("pinned", [False, True])
def test_a_server_that_wants_a_client_certificate(certificate, pinned):
    der = ssl.PEM_cert_to_DER_cert(certificate.file.read_text(encoding="ascii"))
    trusted = {"ca_fingerprint": hashlib.sha256(der).hexdigest()} if pinned else {"ca_certs": certificate.file}
    context = certificate.server
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate.file)
    with http_stub(answer, context) as stub:
        mine = {"client_cert": certificate.file, "client_key": certificate.key}
        assert Client(Connection(stub.url, **trusted, **mine)).request("GET", "/_x") == {"count": 7}  # type: ignore[arg-type]
        with pytest.raises(CcheckError):
            Client(Connection(stub.url, **trusted)).request("GET", "/_x", patient=False)  # type: ignore[arg-type]
        assert len(stub.asked) == 1


def test_certificates_that_can_not_be_used(tmp_path, certificate):
    missing = tmp_path / "client.pem"
    with pytest.raises(NotFound, match=f"ELASTICSEARCH_CLIENT_CERT names {missing}"):
        Client(Connection("https://127.0.0.1:1", client_cert=missing))
    with pytest.raises(UsageError, match=r"set without a certificate. Set ELASTICSEARCH_CLIENT_CERT"):
        Connection("https://127.0.0.1:1", client_key=certificate.key)
    other = tmp_path / "other.pem"
    shutil.copyfile(certificate.file, other)
    for how in ({"ca_fingerprint": "0" * 64}, {}):
        with pytest.raises(UsageError, match=r"private key .*can't be used"):  # it holds no key
            Client(Connection("https://127.0.0.1:1", client_cert=other, client_key=other, **how))  # type: ignore[arg-type]


def test_hosts_of_a_cluster_are_alike():
    with pytest.raises(UsageError, match="only one of them is https"):
        Connection("https://one:9200", ("http://two:9200",))
    with pytest.raises(UsageError, match="Set ELASTICSEARCH_HOSTS to one such as"):
        Connection("https://one:9200", ("two:9200",))
    assert Connection("https://one:9200", ("https://one:9200/", "https://u:p@two")).hosts == ("https://two:443",)


def test_hosts_in_the_settings():
    environ = {
        "ELASTICSEARCH_HOSTS": "https://one:9200, https://two:9200,https://three:9200",
        "ELASTICSEARCH_API_KEY": "k3y",
        "ELASTICSEARCH_COMPRESS": "true",
        "CCHECK_ELASTICSEARCH_TIMEOUT": "5",
        "ELASTICSEARCH_CA_FINGERPRINT": "ab" * 32,
    }
    settings = resolve(environ=environ).settings
    found = connection_from(settings)
    assert (found.url, found.hosts) == ("https://one:9200", ("https://two:9200", "https://three:9200"))
    assert (
        found.api_key == "k3y" and found.request_timeout == 5 and found.compress and found.ca_fingerprint == "ab" * 32
    )
    again = connection_from(settings, "https://two:9200")
    assert (again.url, again.hosts) == ("https://two:9200", ("https://one:9200", "https://three:9200"))
    # A server that is not among them is another cluster: neither their hosts nor their key.
    other = connection_from(settings, "https://elsewhere:9200")
    assert (
        other.url == "https://elsewhere:9200"
        and other.hosts == ()
        and other.api_key is None
        and other.withheld is not None
    )
