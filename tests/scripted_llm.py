"""A server with OpenAI's chat completions API on loopback, whose answers a test writes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ccheck.llm import LanguageModel

KEY = "sk-secret-9f8e7d6c5b4a"


@dataclass
class Said:
    """An answer: the model's text, or a status with a body; `hang` seconds go by before it."""

    text: str = ""
    status: int = 200
    finish_reason: str = "stop"
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    hang: float = 0.0
    drip: float = 0.0
    usage: dict[str, int] | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20})


def say(value: Any, **more: Any) -> Said:
    """The model answers with JSON."""
    return Said(json.dumps(value), **more)


def error(status: int, message: str, **headers: str) -> Said:
    return Said(status=status, body={"error": {"message": message}}, headers=headers)


class ScriptedLlm:
    """`url` is for OPENAI_BASE_URL. `requests` has what was asked, `keys` with which Authorization."""

    def __init__(self, answer: Callable[[dict[str, Any]], Said]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.at: list[float] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more: the port is closed, and who hangs is let go."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(outer) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    outer.requests.append(request)
                    outer.keys.append(self.headers.get("authorization"))
                    outer.at.append(time.monotonic())
                    outer._now += 1
                    outer.most = max(outer.most, outer._now)

                def done() -> None:
                    with outer._lock:
                        outer._now -= 1

                try:
                    said = Said(status=404, body={}) if self.path != "/v1/chat/completions" else outer.answer(request)
                    outer._released.wait(said.hang)
                    done()
                    if not (said.hang and outer._released.is_set()):
                        self._send(said)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def _send(self, said: Said) -> None:
                body = said.body
                if body is None:
                    choice = {"message": {"role": "assistant", "content": said.text}}
                    body = {"choices": [choice | {"finish_reason": said.finish_reason}]}
                    body |= {"usage": said.usage} if said.usage is not None else {}
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(said.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                for name, value in said.headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                for start in range(0, len(data), 1 if said.drip else len(data)):
                    self.wfile.write(data[start : start + (1 if said.drip else len(data))])
                    self.wfile.flush()
                    if said.drip and outer._released.wait(said.drip):
                        return

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler


@contextmanager
def scripted(answer: Callable[[dict[str, Any]], Said] | list[Said]) -> Iterator[ScriptedLlm]:
    """A server that answers by a function of the request, or with a list of answers, the last one again and again."""
    if isinstance(answer, list):
        answers, lock = list(answer), threading.Lock()

        def next_answer(request: dict[str, Any]) -> Said:
            with lock:
                return answers.pop(0) if len(answers) > 1 else answers[0]

        server = ScriptedLlm(next_answer)
    else:
        server = ScriptedLlm(answer)
    try:
        yield server
    finally:
        server.close()


def user_text(request: dict[str, Any]) -> str:
    """What the user's first message of a request says."""
    return next(message["content"] for message in request["messages"] if message["role"] == "user")


@pytest.fixture
def open_model(tmp_path: Path) -> Iterator[Callable[..., LanguageModel]]:
    """Opens models of a server and closes them after the test."""
    from ccheck.llm import open_llm
    from ccheck.settings import Settings

    opened: list[LanguageModel] = []

    def open_one(url: str, **settings: Any) -> LanguageModel:
        values = {"llm_model": "m", "llm_api_key": KEY, "cache_dir": tmp_path / "cache", "llm_retry_seconds": 0}
        opened.append(open_llm(Settings.model_validate(values | {"llm_base_url": url} | settings)))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()
