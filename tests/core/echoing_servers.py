"""Servers of strangers, on loopback: they keep what they were sent, and say it again wherever a text can stand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def echo(self) -> str:
        """All that it says."""
        return f"{self.path} {json.dumps(self.headers)}"

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Listening:
    """A running server: `asked` has each request, in order."""

    url: str
    asked: list[Asked]

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]

    @property
    def all_headers(self) -> str:
        return json.dumps([one.headers for one in self.asked])


@contextmanager
def listening(answer: Callable[[Asked], tuple[int, Any]]) -> Iterator[Listening]:
    """A server that answers with a status and JSON, and with what it was sent in a header."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            one = Asked(self.path, headers, self.rfile.read(size))
            asked.append(one)
            status, said = answer(one)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("x-elastic-product", "Elasticsearch")
            self.send_header("x-echo", one.headers.get("authorization", ""))
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Listening(f"http://127.0.0.1:{server.server_address[1]}", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ranking(asked: Asked) -> tuple[int, Any]:
    """A reranking server of Cohere's shape, whose labels say what it was sent."""
    if not asked.body:
        return 404, {"error": asked.echo}
    count = len(asked.json["documents"])
    results = [{"index": i, "relevance_score": 1 - i / 100, "label": asked.echo} for i in range(count)]
    return 200, {"id": asked.echo, "model": asked.echo, "results": results}


def refusing(asked: Asked) -> tuple[int, Any]:
    """Any server that refuses and says why, with what it was sent."""
    return 422, {"error": {"message": asked.echo, "type": asked.echo, "reason": asked.echo}}


def judging(asked: Asked) -> tuple[int, Any]:
    """A language model whose rationale says what it was sent."""
    reply = {"rationale": asked.echo, "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.9}
    message = {"role": "assistant", "content": json.dumps(reply)}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}
