"""A server on loopback that answers by a function of the request, and keeps what it was asked."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx


@dataclass(frozen=True)
class Asked:
    """A request. The names of `headers` are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True)
class Reply:
    """What is answered: bytes, pieces of them (`headers` then say how long they are), or a value that becomes JSON.

    The media type is JSON unless `headers` have another one, or None for no media type.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str | None] = field(default_factory=dict)


@dataclass
class HttpStub:
    """A running server: `asked` has the requests in order. After `stop` nobody is answered any more."""

    url: str
    stop: Callable[[], None]
    asked: list[Asked] = field(default_factory=list)

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def bodies(self, path: str) -> list[bytes]:
        return [one.body for one in self.asked if one.path == path]


@contextmanager
def http_stub(
    answer: Callable[[Asked], Reply | None], tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[HttpStub]:
    """Serves `answer` until the end of the context. None drops the connection. Each connection has one request."""

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            path, _, query = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, path, query, headers, self.rfile.read(int(headers.get("content-length") or 0)))
            stub.asked.append(asked)
            if (reply := answer(asked)) is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            pieces, length = reply.body, {}
            if isinstance(pieces, bytes) or not isinstance(pieces, Iterator):
                data = pieces if isinstance(pieces, bytes) else json.dumps(pieces).encode()
                pieces, length = [data], {"Content-Length": str(len(data))}
            self.send_response(reply.status)
            for name, value in ({"Content-Type": "application/json"} | length | dict(reply.headers)).items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            for piece in pieces if self.command != "HEAD" else ():
                self.wfile.write(piece)
                self.wfile.flush()

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = respond  # noqa: N815

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # the caller refused to read on
                super().handle()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    stub = HttpStub(f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}", stop)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stop()


PASSED_ON = ("accept", "authorization", "content-type")


@contextmanager
def proxy(url: str, own: Callable[[Asked], Reply | None] = lambda asked: None) -> Iterator[HttpStub]:
    """A server that hands on to another one each request that it has no answer of its `own` to."""

    def answer(asked: Asked) -> Reply:
        if (reply := own(asked)) is not None:
            return reply
        path = f"{url}{asked.path}" + (f"?{asked.query}" if asked.query else "")
        headers = {name: value for name, value in asked.headers.items() if name in PASSED_ON}
        found = httpx.request(asked.method, path, content=asked.body, headers=headers, timeout=60)
        kept = {name: found.headers.get(name) for name in ("Content-Type", "X-Elastic-Product")}
        return Reply(found.content, found.status_code, kept)

    with http_stub(answer) as stub:
        yield stub


Scripted = dict[tuple[str, str], list[Any]]
"""What is answered to (method, path), in order, the last one for ever: a reply, or a function of the request."""


def next_reply(script: Scripted, asked: Asked, otherwise: Any) -> Any:
    """The next answer of a script to a request."""
    answers = script.get((asked.method, asked.path), [otherwise])
    return answers.pop(0) if len(answers) > 1 else answers[0]
