"""Elasticsearch servers that can't be reached, or that answer what no Elasticsearch does."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificate
from elastic_stub import Stub
from searching import answer_all

from ccheck.core.errors import NotFound, ServerError
from ccheck.core.stages import Bm25
from ccheck.core.types import Query
from ccheck.search.elastic import Connection, ElasticStore, client

MIB = 1 << 20


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """The URL of a server that answers every connection with these bytes; `seen` gets what it was sent."""
    listeners: list[socket.socket] = []

    def start(
        answer: bytes, seen: list[bytes] | None = None, tls: Certificate | None = None, endless: bytes = b""
    ) -> str:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listeners.append(listener)
        context = tls.server if tls is not None else None

        def each() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with suppress(OSError):
                    if context is not None:
                        connection = context.wrap_socket(connection, server_side=True)
                    said = connection.recv(1 << 16)
                    if seen is not None:
                        seen.append(said)
                    connection.sendall(answer)
                    while endless:
                        connection.sendall(endless)
                connection.close()

        threading.Thread(target=each, daemon=True).start()
        return f"http{'s' if tls is not None else ''}://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        *("X-Elastic-Product: Elasticsearch", "Content-Type: application/json", f"Content-Length: {len(body)}"),
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def failure(url: str, **settings: Any) -> str:
    with ElasticStore(Connection(url, retry_seconds=0, **settings), "papers") as store:
        with pytest.raises(ServerError) as caught:
            store.count()
        return str(caught.value)


# -- why there is no answer


def test_a_host_name_that_nobody_knows() -> None:
    assert "can't be reached: its host name could not be resolved (DNS" in failure("http://no-such-host.invalid:9200")


def test_a_refused_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert "can't be reached: the connection was refused" in failure(
            f"http://127.0.0.1:{unused.getsockname()[1]}", username="u", password="s3cret"
        )


def test_a_certificate_that_nobody_signed(serve: Callable[..., str], certificate: Certificate) -> None:
    url = serve(http("200 OK", b'{"count": 7}'), tls=certificate)
    said = failure(url)
    assert said.startswith(f"no secure connection to {url}: its certificate is self-signed")
    assert "ELASTICSEARCH_CA_CERTS" in said
    for trusted in ({"ca_certs": certificate.file}, {"verify_certs": False}):
        with ElasticStore(Connection(url, **trusted), "papers") as store:  # type: ignore[arg-type]
            assert store.count() == 7


def test_a_file_of_certificates_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(NotFound, match=f"ELASTICSEARCH_CA_CERTS names {missing}"):
        ElasticStore(Connection("https://127.0.0.1:1", ca_certs=missing), "papers")


# -- what is answered


def test_redirects_are_not_followed(serve: Callable[..., str]) -> None:
    seen: list[bytes] = []
    elsewhere = serve(http("200 OK", b'{"count": 7}'), seen)
    url = serve(http("307 Temporary Redirect", b"", f"Location: {elsewhere}/papers/_count"))
    assert f"{url} redirects to {elsewhere}/papers/_count (307), and ccheck does not follow redirects" in failure(url)
    assert seen == []


@pytest.mark.parametrize(
    ("status", "limit"), [("200 OK", 4 * MIB), ("500 Internal Server Error", MIB), ("404 Not Found", MIB)]
)
def test_an_answer_that_decodes_to_much_more_is_not_read_to_its_end(
    serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch, status: str, limit: int
) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 4 * MIB)
    bomb = gzip.compress(b'{"count": "' + b"0" * (256 * MIB) + b'"}', 1)
    url = serve(http(status, bomb, "Content-Encoding: gzip"))
    failure("http://127.0.0.1:1")  # loads what a first request loads
    tracemalloc.start()
    said = failure(url)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f"the answer of {url} is larger than {limit // MIB} MiB" in said
    assert peak < 24 * MIB, peak


def test_an_answer_without_end_is_not_read_for_ever(serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 4 * MIB)
    head = http("200 OK").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    url = serve(head, endless=b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    assert "is larger than 4 MiB" in failure(url)


def test_an_answer_within_the_limit_is_decoded(serve: Callable[..., str]) -> None:
    url = serve(http("200 OK", gzip.compress(b'{"count": 7}'), "Content-Encoding: gzip"))
    with ElasticStore(Connection(url), "papers") as store:
        assert store.count() == 7


def test_an_answer_that_is_too_large_is_not_asked_for_again(
    serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 10)
    seen: list[bytes] = []
    url = serve(http("200 OK", b'{"count":         7}'), seen)
    with ElasticStore(Connection(url, retry_seconds=60), "papers") as store, pytest.raises(ServerError):
        store.count()
    assert len(seen) == 1


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
def test_answers_of_another_shape_are_the_servers_error(stub: Stub, store: ElasticStore, answer: Any) -> None:
    stub.answers["POST", "/papers/_msearch"] = [(200, answer)]
    try:
        (found,) = answer_all(store, [Query("sea")], {"bm25": Bm25()}, k=1)
    except ServerError as error:
        found = error  # type: ignore[assignment]
    assert isinstance(found, ServerError), found


@pytest.mark.parametrize("count", [{}, {"count": "many"}, {"count": None}, {"count": 1, "_shards": 5}])
def test_counts_of_another_shape(stub: Stub, store: ElasticStore, count: Any) -> None:
    stub.answers["GET", "/papers/_count"] = [(200, count)]
    with pytest.raises(ServerError, match="does not look like Elasticsearch's"):
        store.count()


@pytest.mark.parametrize("mapping", [{"papers": 5}, {"papers": {}}, {"papers": {"mappings": {"properties": 5}}}])
def test_mappings_of_another_shape(stub: Stub, store: ElasticStore, mapping: Any) -> None:
    stub.answers["GET", "/papers"] = [(200, mapping)]
    with pytest.raises(ServerError, match="does not look like Elasticsearch's"):
        store.info()
