"""A server that answers what a test says, in the place of Elasticsearch."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ccheck.search.elastic import Connection, ElasticStore

Answer = tuple[int, Any] | None
"""A status with its body; None drops the connection."""
MAPPING = {"papers-000001": {"mappings": {"_meta": {"ccheck": {"format": 1, "layout": {}}}}}}


@dataclass
class Stub:
    """The server: `answers` maps (method, path) to what is answered, in order, the last one for ever."""

    url: str = ""
    answers: dict[tuple[str, str], list[Answer | Callable[[bytes], Answer]]] = field(default_factory=dict)
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    product: str = "Elasticsearch"
    only_version: int | None = None

    def bodies(self, path: str) -> list[bytes]:
        return [body for _, seen, _, body in self.seen if seen == path]

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        self.seen.append((method, path, headers, body))
        if self.only_version and f"compatible-with={self.only_version}" not in headers.get("accept", ""):
            reason = f"Accept version must be either version {self.only_version} or 7, but found 9."
            return 400, {"error": {"type": "media_type_header_exception", "reason": reason}, "status": 400}
        answers = self.answers.get((method, path), [(200, MAPPING if path.endswith("_mapping") else {})])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer(body) if callable(answer) else answer


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            stub.queries.append(self.path.partition("?")[2])
            answer = stub.answer(self.command, self.path.partition("?")[0], headers, body)
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            data = json.dumps(answer[1]).encode()
            self.send_response(answer[0])
            self.send_header("X-Elastic-Product", stub.product)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = respond  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield stub
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def store(stub: Stub) -> Iterator[ElasticStore]:
    with ElasticStore(Connection(stub.url, retry_seconds=5, request_timeout=5), "papers") as store:
        yield store
