"""A server with OpenAI's chat completions API on loopback, whose answers a test writes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from http_stub import Asked, Reply, http_stub

from ccheck.core.runtime import Runtime
from ccheck.core.stages import LanguageModelStage

if TYPE_CHECKING:
    from ccheck.llm.model import LanguageModel

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
    """`url` is for OPENAI_BASE_URL. `requests` has what was asked, `keys` with which Authorization, `at` when."""

    def __init__(self, answer: Callable[[dict[str, Any]], Said]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.at: list[float] = []
        self.most = 0
        self.url = ""
        self.close: Callable[[], None] = lambda: None
        """Answers nobody any more: the port is closed, and who hangs is let go."""
        self._now = 0
        self._lock = threading.Lock()
        self.released = threading.Event()

    def reply(self, asked: Asked) -> Reply | None:
        with self._lock:
            self.requests.append(asked.json)
            self.keys.append(asked.headers.get("authorization"))
            self.at.append(time.monotonic())
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            said = Said(status=404, body={}) if asked.path != "/v1/chat/completions" else self.answer(asked.json)
            self.released.wait(said.hang)
        finally:
            with self._lock:
                self._now -= 1
        return None if said.hang and self.released.is_set() else self._sent(said)

    def _sent(self, said: Said) -> Reply:
        body = said.body
        if body is None:
            choice = {"message": {"role": "assistant", "content": said.text}}
            body = {"choices": [choice | {"finish_reason": said.finish_reason}]}
            body |= {"usage": said.usage} if said.usage is not None else {}
        headers = {name.replace("_", "-"): value for name, value in said.headers.items()}
        if not said.drip:
            return Reply(body, said.status, headers)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Reply(self._dripped(data, said.drip), said.status, {"Content-Length": str(len(data)), **headers})

    def _dripped(self, data: bytes, seconds: float) -> Iterator[bytes]:
        for byte in data:
            yield bytes([byte])
            if self.released.wait(seconds):
                return


@contextmanager
def scripted(
    answer: Callable[[dict[str, Any]], Said] | list[Said], port: int = 0, user: pytest.MonkeyPatch | None = None
) -> Iterator[ScriptedLlm]:
    """A server that answers by a function of the request, or with a list of answers, the last one again and again.

    With `user`, it is the one that is asked where nothing else is said, until the test is over.
    """
    if isinstance(answer, list):
        answers, lock = list(answer), threading.Lock()

        def next_answer(request: dict[str, Any]) -> Said:
            with lock:
                return answers.pop(0) if len(answers) > 1 else answers[0]

        llm = ScriptedLlm(next_answer)
    else:
        llm = ScriptedLlm(answer)
    with http_stub(llm.reply, port=port) as server:

        def close() -> None:
            llm.released.set()
            server.stop()

        llm.url, llm.close = f"{server.url}/v1", close
        if user is not None:
            user.setenv("OPENAI_BASE_URL", llm.url)
            user.setenv("OPENAI_API_KEY", KEY)
        try:
            yield llm
        finally:
            close()


def user_text(request: dict[str, Any]) -> str:
    """What the user's first message of a request says."""
    return next(message["content"] for message in request["messages"] if message["role"] == "user")


def data_of(request: dict[str, Any], key: str) -> Any:
    """The JSON that stands after `Key: ` in that message."""
    (line,) = re.findall(rf"^{key}: (.*)$", user_text(request), re.MULTILINE)
    return json.loads(line)


@pytest.fixture
def open_model(tmp_path: Path) -> Iterator[Callable[..., LanguageModel]]:
    """Opens models of a server and closes them after the test."""
    from ccheck.core.settings import Settings
    from ccheck.llm.model import open_llm

    opened: list[LanguageModel] = []

    def open_one(url: str, way: LanguageModelStage | None = None, **settings: Any) -> LanguageModel:
        values = {"llm_model": "m", "llm_api_key": KEY, "cache_dir": tmp_path / "cache", "llm_retry_seconds": 0}
        runtime = Runtime(Settings.model_validate(values | {"llm_base_url": url} | settings))
        opened.append(open_llm(runtime.asking(way or LanguageModelStage())))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()
