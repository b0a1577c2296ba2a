"""Servers of rerankers for tests: the real application on a real port, and scorers that a test can hold."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cli_runs import command

from ccheck.rerank import Encoded, Scorer
from ccheck.rerank.types import not_finite

if TYPE_CHECKING:
    from ccheck.rerank.server.service import Service

START_SECONDS = 120
QUERY = "sea level rise"
LONG = "sea " * 9
TEI_BODY = {"query": QUERY, "texts": ["tea with milk", "the sea level", "sea level rise"]}


class WordScorer:
    """Scores by the share of the query's words: a text's first eight words are all that it reads.

    `hold()` lets it wait in the middle of a batch until `go` is set; `seen` has all that it scored. A text of `boom`
    makes it fail, one of `nan` makes a score that is not finite.
    """

    max_tokens = 8
    at_once = 1

    def __init__(self, name: str = "words", scale: float = 4.0) -> None:
        self.name, self.scale = name, scale
        self.go = threading.Event()
        self.go.set()
        self.busy = threading.Event()
        self.batches: list[list[str]] = []
        self._texts: dict[tuple[int, ...], str] = {}

    def hold(self) -> None:
        self.go.clear()
        self.busy.clear()

    @property
    def seen(self) -> list[str]:
        return [text for batch in self.batches for text in batch]

    def encode(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        encoded = []
        for passage in passages:
            words = passage.split()
            ids = tuple(hash(word) % 10**9 for word in [query, passage, *words[:8]])
            self._texts[ids] = f"{query}\n{passage}"
            encoded.append(Encoded(ids, len(words) > 8))
        return encoded

    def score(self, encoded: Sequence[Encoded]) -> list[float]:
        texts = [self._texts[one.ids] for one in encoded]
        self.batches.append([text.partition("\n")[2] for text in texts])
        self.busy.set()
        assert self.go.wait(60)
        if any(text.endswith("\nboom") for text in texts):
            raise RuntimeError("the model broke")
        if any(text.endswith("\nnan") for text in texts):
            raise not_finite(self.name, [float("nan")])
        return [self.expected(*text.split("\n")) for text in texts]

    def expected(self, query: str, passage: str) -> float:
        words = set(query.lower().split())
        shared = len(words & set(passage.lower().split()[:8]))
        return self.scale * (shared / len(words) - 0.5) + len(passage) / 1000


@contextmanager
def running(app: Any) -> Iterator[str]:
    """The URL of an application on a real port of this machine."""
    import uvicorn

    from ccheck.core.serving import configuration, listen

    listening = listen("127.0.0.1", 0)
    config = configuration(app, app.state.limits)
    config.timeout_graceful_shutdown = 30
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        assert server.started
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()
        assert not thread.is_alive()


class Served:
    """A running server of words, and what to do with it."""

    def __init__(self, url: str, app: Any, scorer: WordScorer) -> None:
        self.url, self.scorer = url, scorer
        self.service: Service = app.state.service
        self.client = httpx.Client(base_url=url, timeout=60)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.client.post(path, json=body, headers=headers)

    @property
    def metrics(self) -> dict[str, float]:
        lines = [line for line in self.client.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@contextmanager
def starting() -> Iterator[Callable[..., Served]]:
    """What starts servers, `start(limits…)`, which run until the end."""
    with ExitStack() as stack:
        yield functools.partial(_start, stack)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Starts servers for one test: `serve(limits…)`."""
    with starting() as start:
        yield start


@pytest.fixture(scope="module")
def words() -> Iterator[Served]:
    """A server whose requests leave nothing behind."""
    with starting() as start:
        yield start()


def _start(stack: ExitStack, *, model: Scorer | None = None, key: str | None = None, **given: Any) -> Served:
    from ccheck.rerank.server.app import create_app
    from ccheck.rerank.server.guard import Access, Limits

    hosts = given.pop("hosts", ())
    scorer = WordScorer()
    app = create_app("words", model or scorer, Limits(**given), Access(key, hosts))
    served = Served(stack.enter_context(running(app)), app, scorer)
    stack.callback(served.client.close)
    stack.callback(scorer.go.set)
    return served


class Sidecar:
    """`ccheck serve rerank` (or `what`) as a process of its own."""

    def __init__(self, log: Path, *arguments: object, what: str = "rerank", port: int = 0, **environment: str) -> None:
        self.log = log
        words = command("serve", what, "--port", port, *arguments)
        environ = os.environ | {"OMP_NUM_THREADS": "1", **environment}
        with log.open("wb") as stream:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environ)

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        """Where it listens, as soon as it does."""
        wait_until(lambda: " at http" in self.said or self.process.poll() is not None, START_SECONDS)
        found = re.search(r" at (http://\S+)\. Stop", self.said)
        assert found, self.said
        return found[1]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Until something is so; a test that waits for ever fails."""
    ended = threading.Event()
    for _ in range(int(seconds * 100)):
        if true():
            return
        ended.wait(0.01)
    raise AssertionError(f"not so within {seconds} s")
