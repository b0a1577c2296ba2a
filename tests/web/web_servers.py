"""Servers of the service for tests: the real application on a real port, over a small store, with a judge that a test
can hold."""

import functools
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_runs import ccheck as ccheck_command
from cli_runs import jsonl
from html_page import Element, parse
from rerank_servers import Sidecar, running

import ccheck
from ccheck.core.types import Stance, Verdict
from ccheck.service import Service
from ccheck.web.access import Quotas, keys_from
from ccheck.web.app import create_app
from ccheck.web.shared import Limits, Served

PAPERS = [
    {"_id": "sea", "title": "Sea level", "text": "Coasts flood. Sea level rose by 20 cm since 1900.", "year": 2015,
     "journal": "Nature", "doi": "10.1000/sea", "authors": ["Church, J.", "White, N."]},
    {"_id": "gauge", "title": "Tide gauges", "text": "Sea level fell at this gauge.", "year": 2003, "journal": "Tides",
     "DOI": "10.1000/gauge"},
    {"_id": "ice", "title": "Ice", "text": "Sea ice melts. The level of lakes is stable.", "year": 2020,
     "journal": "Nature", "DOI": "10.1000/ice"},
]  # fmt: skip
CLAIM = "Sea level has risen by 20 cm since 1900."
KEYS = "anna:read+check+write:anna-0123456789ab reader:read:reader-0123456789 checker:check:checker-012345678"


class WordJudge:
    """Reads `rose` as support and `fell` as refutation. `go` holds it; `boom` in a claim is a failure."""

    name = "words"

    def __init__(self) -> None:
        self.go, self.busy = threading.Event(), threading.Event()
        self.go.set()

    def __call__(self, claim: ccheck.Claim, evidence: Any) -> tuple[list[Stance], Verdict]:
        self.busy.set()
        assert self.go.wait(60)
        if "boom" in claim.text:
            raise RuntimeError("the judge broke")
        words = {"rose": "SUPPORTS", "fell": "REFUTES", "": "NOT_ENOUGH_INFO"}
        texts = (one.document.text for one in evidence)
        labels = [next(label for word, label in words.items() if word in text) for text in texts]
        stances = [Stance(label, 0.9) for label in labels]
        if "in part" in claim.text:
            stances[0] = Stance(None, error="it timed out")
        return stances, Verdict("CONFLICTING", 0.8, "Papers disagree.", method="words", reason="disagreement")


class Web:
    """A running service, and what to do with it as a program and as a browser."""

    def __init__(self, url: str, app: Any = None, judge: Any = None) -> None:
        self.url, self.app, self.judge = url, app, judge
        self.web = None if app is None else app.state.web
        self.client = httpx.Client(base_url=url, timeout=60)
        self.browser = httpx.Client(base_url=url, timeout=60, headers={"Accept": "text/html"}, follow_redirects=True)

    def page(self, path: str) -> Element:
        answer = self.browser.get(path)
        assert answer.status_code == 200, answer.text
        return parse(answer.text)

    def send(self, path: str, fields: dict[str, str], files: Any = None, token: str | None = None) -> httpx.Response:
        """Send a form, with the token of the first page."""
        if token is None:
            token = re.findall('name="token" value="([0-9a-f]+)"', self.browser.get("/").text)[0]
        return self.browser.post(path, data={"token": token, **fields}, files=files)

    def held(self) -> str:
        """The place of a check that the judge holds until it may `go`."""
        self.judge.go.clear()
        place = self.client.post("/v1/checks", json={"claim": CLAIM, "wait": 0}).headers["location"]
        assert self.judge.busy.wait(60)
        return place

    def check(self, claim: str = CLAIM, **how: Any) -> dict[str, Any]:
        answer = self.client.post("/v1/checks", json={"claim": claim, "wait": 30, **how})
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def web_server(folder: Path) -> Iterator[Callable[..., Web]]:
    """What starts servers over a store in the folder: `start(keys=…, **quotas)`. `settings` say who judges, if any."""
    with ExitStack() as stack:
        yield functools.partial(_start, stack, folder)


def _start(
    stack: ExitStack,
    folder: Path,
    *,
    keys: str = "",
    papers: Any = PAPERS,
    limits: Limits | None = None,
    record: bool = True,
    pdfs: Path | None = None,
    reranker: Any = None,
    settings: Any = None,
    **quotas: Any,
) -> Web:
    judge = WordJudge()
    reads = {"judge": judge} if settings is None else settings
    checker = stack.enter_context(ccheck.open(str(folder / "store"), recipe="bm25", **reads))
    if papers:
        checker.ingest(papers, dense=False)
    service = stack.enter_context(Service(checker, record=record))
    served = Served(keys=keys_from(keys), quotas=Quotas(**quotas), limits=limits or Limits(timeout=20), pdfs=pdfs)
    app = create_app(service, served, reranker)
    web = Web(stack.enter_context(running(app)), app, judge)
    stack.callback(web.client.close)
    stack.callback(web.browser.close)
    stack.callback(judge.go.set)
    return web


@contextmanager
def serving(log: Path, *arguments: object) -> Iterator[str]:
    """The URL of `ccheck serve web` as a program, until SIGTERM stops it."""
    server = Sidecar(log, *arguments, what="web")
    try:
        yield server.url
        assert server.stop() == 0
    finally:
        server.stop(signal.SIGKILL)
    assert "Traceback" not in server.said


@pytest.fixture
def with_papers(tmp_path: Path) -> tuple[object, ...]:
    """Arguments for a command over a store of the papers, that is ranked by words."""
    papers, arguments = jsonl(tmp_path / "papers.jsonl", *PAPERS), ("--store", tmp_path / "store", "--recipe", "bm25")
    assert ccheck_command("ingest", papers, *arguments, "--no-dense").code == 0
    return arguments


@pytest.fixture
def serve_web(tmp_path: Path) -> Iterator[Callable[..., Web]]:
    with web_server(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server whose checks leave nothing behind that another test would mind."""
    with web_server(tmp_path_factory.mktemp("web")) as start:
        yield start()
