"""Several servers with one reranker: work goes to all of them, and what one loses another does."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rerank_servers import QUERY, Served, Sidecar, WordScorer
from tiny_rerankers import make_encoder

from ccheck.core.errors import CcheckError, InvalidData, ServerError
from ccheck.core.http import Patience
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.rerank.open import open_remote
from ccheck.rerank.remote import RemoteReranker
from ccheck.rerank.shared import PIECE, SharedReranker

pytest.importorskip("fastapi", reason="the server extra is not installed")

TEXTS = [f"sea level {' '.join('rise' * (n % 3))} {'x' * n}" for n in range(7 * PIECE)]
EXPECTED = [WordScorer().expected(QUERY, text) for text in TEXTS]


def shared(*urls: str, seconds: float = 30, said: list[str] | None = None) -> SharedReranker:
    patience = Patience(seconds, said.append if said is not None else lambda _: None)
    return SharedReranker([RemoteReranker(url, retry_seconds=0) for url in urls], patience)


def test_all_servers_work_on_one_query(serve: Callable[..., Served]) -> None:
    one, other = serve(), serve()
    for server in (one, other):
        server.scorer.hold()
    reranker = shared(one.url, other.url)
    with ThreadPoolExecutor(1) as caller:
        asked = caller.submit(reranker, QUERY, TEXTS)
        assert one.scorer.busy.wait(30) and other.scorer.busy.wait(30)
        for server in (one, other):
            server.scorer.go.set()
        scores = asked.result(60)
    assert scores.values == pytest.approx(EXPECTED, abs=1e-5) and len(scores.cut) == len(TEXTS) and scores.logits
    assert sorted(one.scorer.seen + other.scorer.seen) == sorted(TEXTS)  # each once


def test_the_one_with_less_to_do_gets_the_next(serve: Callable[..., Served]) -> None:
    slow, quick = serve(), serve()
    slow.scorer.hold()
    reranker = shared(slow.url, quick.url)
    with ThreadPoolExecutor(1) as caller:
        asked = caller.submit(reranker, QUERY, TEXTS)
        assert slow.scorer.busy.wait(30)
        deadline = time.monotonic() + 30
        while len(quick.scorer.seen) < 3 * PIECE and time.monotonic() < deadline:
            time.sleep(0.01)
        slow.scorer.go.set()
        assert asked.result(60).values == pytest.approx(EXPECTED, abs=1e-5)
    assert len(quick.scorer.seen) >= 3 * PIECE


def test_another_server_does_what_one_can_not(serve: Callable[..., Served]) -> None:
    """One is not there, and one refuses: the key is wrong."""
    locked, good = serve(key="secret"), serve()
    scores = shared("http://127.0.0.1:9", locked.url, good.url)(QUERY, TEXTS)
    assert scores.values == pytest.approx(EXPECTED, abs=1e-5)
    assert sorted(good.scorer.seen) == sorted(TEXTS)


def test_no_server_is_an_error_after_a_wait_that_is_said() -> None:
    """And the next piece does not wait as long."""
    said: list[str] = []
    begun = time.monotonic()
    reranker = shared("http://127.0.0.1:9", "http://127.0.0.2:9", seconds=2, said=said)
    reranker._patience.reached = True
    with pytest.raises(ServerError, match=r"no reranking server was there.*127\.0\.0\.1:9.* and .*127\.0\.0\.2:9"):
        reranker(QUERY, TEXTS[:2])
    assert not reranker._patience.reached
    assert 0.4 < time.monotonic() - begun < 30 and len(said) == 1


def test_all_refusing_is_the_last_ones_error(serve: Callable[..., Served]) -> None:
    with pytest.raises(ServerError, match="CCHECK_RERANK_API_KEY"):
        shared(serve(key="secret").url, serve(key="other").url)(QUERY, TEXTS[:2])


def test_different_models_are_refused(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = serve(), serve()
    reranker = shared(one.url, other.url)
    reranker(QUERY, TEXTS)  # each has said what it serves
    monkeypatch.setattr(reranker._servers[1].reranker, "model", "another")
    with pytest.raises(InvalidData, match="serve different models: another and words"):
        reranker(QUERY, TEXTS)


def test_settings_name_several(serve: Callable[..., Served]) -> None:
    one, other = serve(), serve()
    with Runtime(Settings(rerank_url=f"{one.url}, {other.url}")) as runtime:
        reranker = open_remote(f"{one.url},{other.url}", runtime)
        assert isinstance(reranker, SharedReranker) and reranker.name == f"{one.url}, {other.url}"
        many = reranker.many([(QUERY, TEXTS[:3]), ("tea", []), (QUERY, TEXTS[3:50])])
    assert [len(scores.values) for scores in many if not isinstance(scores, CcheckError)] == [3, 0, 47]


def test_servers_that_are_killed_again_and_again(tmp_path: Path) -> None:
    """Nothing is lost, and every score is right."""
    pytest.importorskip("transformers", reason="the models extra is not installed")
    from tiny_rerankers import TEXTS, load_scorer

    folder = make_encoder(tmp_path / "model")
    scorer = load_scorer(str(folder), device="cpu")
    expected = scorer.score(scorer.encode(QUERY, TEXTS))
    serve = ("--model", folder, "--canary", "repeat", "--device", "cpu")
    log = (tmp_path / f"{number}.log" for number in itertools.count())
    sidecars = [Sidecar(next(log), *serve), Sidecar(next(log), *serve)]
    reranker = shared(*(one.url for one in sidecars), seconds=300)
    done = threading.Event()

    def call() -> list[tuple[float, ...]]:
        found = []
        while not done.is_set():
            found.append(reranker(QUERY, TEXTS).values)
        return found

    try:
        with ThreadPoolExecutor(3) as callers:
            looping = [callers.submit(call) for _ in range(3)]
            try:
                for number in (0, 1):
                    time.sleep(0.3)
                    sidecars[number].stop(signal.SIGKILL)
                    sidecars[number] = Sidecar(next(log), *serve, port=sidecars[number].port)
                    assert sidecars[number].url
            finally:
                done.set()
            found = [values for one in looping for values in one.result(300)]
    finally:
        for sidecar in sidecars:
            sidecar.stop(signal.SIGKILL)
    assert len(found) > 3 and all(values == pytest.approx(expected, abs=1e-5) for values in found)
