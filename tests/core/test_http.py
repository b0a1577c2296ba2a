"""Why a server can't be reached, in words, whichever client found out; limits on what a server says."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
from http_stub import Reply, http_stub

from ccheck.core.http import is_lasting, missing_certificates, redirected, why_unreachable


def with_httpx(url: str) -> None:
    httpx.get(url, timeout=30)


def with_elasticsearch(url: str) -> None:
    import elasticsearch

    address = url if url.count(":") > 1 else f"{url}:80"
    with elasticsearch.Elasticsearch(address, max_retries=0, request_timeout=30) as client:
        client.info()


CLIENTS = [with_httpx, with_elasticsearch]


@contextmanager
def hanging_up() -> Iterator[int]:
    """The port of a server that resets each connection once something was sent."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.recv(10)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def said(client: Callable[[str], None], url: str) -> tuple[str, bool]:
    """Why there is no answer, and whether waiting won't help."""
    try:
        client(url)
    except Exception as error:  # noqa: BLE001 - clients have exceptions of their own
        return why_unreachable(error, "THE_SETTING"), is_lasting(error)
    raise AssertionError("there was an answer")


@pytest.mark.parametrize("client", CLIENTS)
def test_each_cause_has_its_own_words(client, certificate):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        why, lasting = said(client, f"http://127.0.0.1:{unused.getsockname()[1]}")
        assert "refused" in why and not lasting
    why, lasting = said(client, "http://no-such-host.invalid")
    assert "DNS" in why and "its host name" in why
    with http_stub(lambda _: Reply(), certificate.server) as server:
        why, lasting = said(client, server.url)
        assert "self-signed" in why and "THE_SETTING" in why and lasting
    with http_stub(lambda _: Reply()) as server:
        why, lasting = said(client, f"https://127.0.0.1:{server.port}")
        assert "TLS handshake failed" in why and lasting
    with hanging_up() as port:
        why, lasting = said(client, f"http://127.0.0.1:{port}")
        assert "closed the connection" in why and not lasting


def test_a_missing_file_of_certificates_is_named(monkeypatch, tmp_path):
    assert missing_certificates() is None
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert str(tmp_path / "ca.pem") in missing_certificates() and "SSL_CERT_FILE" in missing_certificates()
    with pytest.raises(FileNotFoundError) as caught:
        httpx.Client()
    assert "file of CA certificates does not exist: correct THE_SETTING" in why_unreachable(caught.value, "THE_SETTING")
    (tmp_path / "ca.pem").write_text("")
    assert missing_certificates() is None


def test_other_causes_are_named_too_and_where_a_redirect_leads():
    late = httpx.ConnectTimeout("")
    late.__cause__ = TimeoutError()
    assert "timed out" in why_unreachable(late)
    error = OSError("all attempts failed")
    error.__cause__ = ExceptionGroup("attempts", [OSError("x"), ConnectionRefusedError()])
    assert "refused" in why_unreachable(error)
    loop = OSError("loop")
    loop.__context__ = ValueError("round")
    loop.__context__.__context__ = loop
    assert why_unreachable(loop) == "loop"
    assert why_unreachable(OSError()) == "OSError"
    assert redirected("http://a", 200, {"location": "http://b"}) is None
    text = redirected("http://a", 307, {"location": "http://b/\x1b[2J"})
    assert "http://a redirects to http://b/[2J (307)" in text
    assert "no address" in redirected("http://a", 304, {})
