"""The reranking server before a request is read: slow and large heads, connections, hosts. Over real sockets."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import httpx
import pytest
from rerank_servers import TEI_BODY, starting, wait_until

MOST_BYTES = 2000
"""What a patient attacker sends, a byte at a time, before the test gives up."""
HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as opened:
        yield opened


def rest(opened: socket.socket) -> bytes:
    """What arrives until the server closes."""
    received = b""
    with suppress(ConnectionError):
        while part := opened.recv(65536):
            received += part
    return received


def trickled(opened: socket.socket) -> bytes:
    """What the server says until it closes, to whom sends a header without end."""
    opened.settimeout(0.02)
    for _ in range(MOST_BYTES):
        try:
            opened.sendall(b"x")
            if part := opened.recv(65536):
                opened.settimeout(60)
                return part + rest(opened)
            return b""
        except TimeoutError:
            continue
        except ConnectionError:
            return b""
    raise AssertionError("the connection stayed open")


@pytest.mark.parametrize(
    ("first", "status"),
    [
        (HEAD + b"X-Long: ", b" 408 "),
        (HEAD + b"Content-Length: 100000000\r\n\r\n", b""),  # a body that nobody reads
    ],
)
def test_what_comes_a_byte_at_a_time_is_not_waited_for(serve, first, status):
    with connected(serve(head=0.5).url) as opened:
        opened.sendall(first)
        assert status in trickled(opened)


def test_nor_is_the_next_one_of_a_connection(serve):
    with connected(serve(head=0.5).url) as opened:
        opened.sendall(HEAD + b"\r\n")
        received = b""
        while not received.endswith(b"}"):
            received += opened.recv(65536)
        assert b" 200 " in received
        opened.sendall(HEAD + b"X-Long: ")
        assert b" 408 " in trickled(opened)


def test_a_head_without_end_is_refused(serve):
    with connected(serve().url) as opened:
        try:
            for _ in range(100):
                opened.sendall(b"GET /health HTTP/1.1\r\n" if _ == 0 else b"X-Large: " + b"x" * 8192 + b"\r\n")
        except ConnectionError:
            return
        assert b" 400 " in rest(opened)


def test_more_connections_than_the_limit_are_closed_and_the_server_goes_on(serve):
    served = serve(connections=20, head=2.0)
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(served.url)) for _ in range(200)]
        ends = [rest(opened) for opened in idle]
    assert sum(b" 503 " in end for end in ends) >= 150 and any(b" 408 " in end for end in ends)
    assert all(b" 503 " in end or b" 408 " in end or not end for end in ends)
    wait_until(lambda: served.client.get("/health").status_code == 200)


def test_an_answer_may_take_longer_than_a_head(serve):
    served = serve(head=0.2)
    served.scorer.hold()
    with connected(served.url) as opened:
        body = httpx.Request("POST", served.url, json=TEI_BODY).content
        opened.sendall(b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        opened.sendall(b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        served.scorer.busy.wait(60)
        time.sleep(0.5)
        served.scorer.go.set()
        assert b" 200 " in rest(opened)


@pytest.fixture(scope="module")
def named() -> Iterator[str]:
    with starting() as start:
        yield start(hosts=("Rerank.example.org",)).url


OWN = ["localhost", "LOCALHOST:8080", "app.localhost", "127.0.0.1:9", "[::1]:9", "10.1.2.3"]
NAMED = ["rerank.example.org:443", "rerank.example.org."]
OTHER = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "evillocalhost", "[evil.example]", ""]


@pytest.mark.parametrize("host", [*OWN, *NAMED, *OTHER])
@pytest.mark.parametrize("path", ["/health", "/rerank"])
def test_without_a_key_only_known_hosts_are_answered(named, host, path):
    method, body = ("GET", None) if path == "/health" else ("POST", TEI_BODY)
    answer = httpx.request(method, named + path, headers={"Host": host}, json=body)
    assert answer.status_code == (421 if host in OTHER else 200)
    assert ("must be told this name" in answer.text) == (host in OTHER)


def test_with_a_key_the_host_does_not_matter(serve):
    served = serve(key="k3y")
    headers = {"Host": "evil.example", "Authorization": "Bearer k3y"}
    assert served.post("/rerank", TEI_BODY, **headers).status_code == 200
    assert served.post("/rerank", TEI_BODY, Host="evil.example").status_code == 401
