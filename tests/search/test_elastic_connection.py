"""How ccheck connects to a cluster: several hosts, certificates, compression, and the name that it goes by there."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificate
from http_stub import Asked, HttpStub, Reply, http_stub

from ccheck.core.errors import CcheckError, NotFound, ServerError, UsageError
from ccheck.core.settings import resolve
from ccheck.search.elastic import Connection, connection_from
from ccheck.search.elastic.client import Client

PRODUCT = {"X-Elastic-Product": "Elasticsearch"}


def answer(asked: Asked) -> Reply:
    return Reply({"count": 7}, headers=PRODUCT)


@pytest.fixture
def two() -> Iterator[tuple[HttpStub, HttpStub]]:
    with http_stub(answer) as first, http_stub(answer) as second:
        yield first, second


def test_all_hosts_are_asked_in_turn(two: tuple[HttpStub, HttpStub]) -> None:
    server = Client(Connection(two[0].url, (two[1].url,), api_key="k3y"))
    for _ in range(6):
        assert server.request("GET", "/papers/_count") == {"count": 7}
    assert [len(stub.asked) for stub in two] == [3, 3]
    assert {one.headers["authorization"] for stub in two for one in stub.asked} == {"ApiKey k3y"}


def test_another_host_answers_at_once_for_one_that_is_gone(two: tuple[HttpStub, HttpStub]) -> None:
    server = Client(Connection(two[0].url, (two[1].url,)))
    two[0].stop()
    for _ in range(4):
        assert server.request("GET", "/papers/_count", patient=False) == {"count": 7}
    assert len(two[1].asked) == 4


def test_a_busy_host_is_not_asked_more_often_because_there_are_others(two: tuple[HttpStub, HttpStub]) -> None:
    """What waits for a busy server is `Client.again` alone."""
    busy = Reply({"error": {"type": "es_rejected_execution_exception", "reason": "full"}, "status": 429}, 429, PRODUCT)
    with http_stub(lambda asked: busy) as one, http_stub(lambda asked: busy) as other:
        server = Client(Connection(one.url, (other.url,)))
        with pytest.raises(ServerError, match="full"):
            server.request("GET", "/papers/_count", patient=False)
        assert len(one.asked) + len(other.asked) == 3


def test_a_host_that_hangs_costs_a_timeout_and_no_answer(two: tuple[HttpStub, HttpStub]) -> None:
    """A search that took too long is asked once more, of another host; a write until one answers."""
    ended = threading.Event()

    def hangs(asked: Asked) -> Reply:
        ended.wait(30)
        return answer(asked)

    with http_stub(hangs) as one, http_stub(hangs) as other:
        server = Client(Connection(one.url, (two[0].url, two[1].url), request_timeout=0.3))
        for _ in range(6):
            assert server.request("GET", "/papers/_count") == {"count": 7}
        assert 1 <= len(one.asked) <= 3 and len(two[0].asked) + len(two[1].asked) == 6
        slow = Client(Connection(one.url, (other.url,), request_timeout=0.3))
        with pytest.raises(ServerError, match=r"did not answer within 0\.3 s"):
            slow.request("GET", "/_x")
        assert [one.asked[-1].path, other.asked[-1].path, len(other.asked)] == ["/_x", "/_x", 1]
        ended.set()


def test_requests_say_who_asks_and_are_compressed_on_request(two: tuple[HttpStub, HttpStub]) -> None:
    body = {"query": {"match_all": {}}}
    Client(Connection(two[0].url)).request("POST", "/papers/_search", body)
    Client(Connection(two[1].url, compress=True)).request("POST", "/papers/_search", body)
    plain, packed = two[0].asked[0], two[1].asked[0]
    assert plain.headers["x-opaque-id"] == "ccheck" and "content-encoding" not in plain.headers and plain.json == body
    assert packed.headers["accept-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body)) == body


def test_a_fingerprint_stands_for_the_authority(certificate: Certificate) -> None:
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
def test_a_server_that_wants_a_client_certificate(certificate: Certificate, pinned: bool) -> None:
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


def test_certificates_that_can_not_be_used(tmp_path: Path, certificate: Certificate) -> None:
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


def test_hosts_of_a_cluster_are_alike() -> None:
    with pytest.raises(UsageError, match="only one of them is https"):
        Connection("https://one:9200", ("http://two:9200",))
    with pytest.raises(UsageError, match="Set ELASTICSEARCH_HOSTS to one such as"):
        Connection("https://one:9200", ("two:9200",))
    assert Connection("https://one:9200", ("https://one:9200/", "https://u:p@two")).hosts == ("https://two:443",)


def test_hosts_in_the_settings() -> None:
    environ = {
        "ELASTICSEARCH_HOSTS": "https://one:9200, https://two:9200,https://three:9200",
        "ELASTICSEARCH_API_KEY": "k3y",
        "ELASTICSEARCH_COMPRESS": "true",
        "ELASTICSEARCH_CA_FINGERPRINT": "ab" * 32,
    }
    settings = resolve(environ=environ).settings
    found = connection_from(settings)
    assert (found.name, found.hosts) == ("https://one:9200", ("https://two:9200", "https://three:9200"))
    assert found.api_key == "k3y" and found.compress and found.ca_fingerprint == "ab" * 32
    again = connection_from(settings, "https://two:9200")
    assert (again.name, again.hosts) == ("https://two:9200", ("https://one:9200", "https://three:9200"))
    # A server that is not among them is another cluster: neither their hosts nor their key.
    other = connection_from(settings, "https://elsewhere:9200")
    assert other.hosts == () and other.api_key is None and other.withheld is not None
