"""A reranker in several processes and on several servers: each does its part, and what one loses another does."""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from cli_runs import ccheck
from rerank_servers import QUERY, Served, Sidecar, WordScorer, wait_until
from tiny_rerankers import TEXTS, load_scorer, make_encoder

from ccheck.core.errors import CcheckError, InvalidData, ServerError
from ccheck.core.http import Patience
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import ModelStage
from ccheck.rerank.open import open_remote
from ccheck.rerank.remote import RemoteReranker
from ccheck.rerank.server.guard import Limits
from ccheck.rerank.server.workers import TRIES, Workers, _Ended, _Worker
from ccheck.rerank.shared import PIECE, SharedReranker

pytest.importorskip("fastapi", reason="the server extra is not installed")


PASSAGES = [f"{TEXTS[i % len(TEXTS)]} {i}" for i in range(100)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("reranker") / "model")


@pytest.fixture
def serve_on(model: Path, tmp_path: Path) -> Iterator[Callable[[str], Sidecar]]:
    """Starts a server on the devices that it is told, with a model at `tmp_path / "model"`."""
    (tmp_path / "model").symlink_to(model)
    started = []

    def start(devices: str) -> Sidecar:
        asked = "--model", tmp_path / "model", "--canary", "repeat"
        started.append(Sidecar(tmp_path / "log", *asked, CCHECK_SERVE_DEVICES=devices))
        return started[0]

    yield start
    for sidecar in started:
        sidecar.stop(signal.SIGKILL)


def workers_of(sidecar: Sidecar) -> list[psutil.Process]:
    return psutil.Process(sidecar.process.pid).children()


def scores_of(answer: httpx.Response) -> list[float]:
    items = sorted(answer.raise_for_status().json(), key=lambda one: one["index"])
    assert [one["index"] for one in items] == list(range(len(PASSAGES)))
    return [one["score"] for one in items]


def test_a_request_is_split_and_the_parts_are_scored_at_once(serve: Callable[..., Served]) -> None:
    scorer = WordScorer()
    scorer.at_once = 2
    scorer.hold()
    with ThreadPoolExecutor(1) as caller:
        served = serve(model=scorer)
        asked = caller.submit(served.post, "/rerank", {"query": QUERY, "texts": PASSAGES, "raw_scores": True})
        wait_until(lambda: len(scorer.batches) == 2)
        scorer.go.set()
        scores = scores_of(asked.result(60))
    assert scores == [scorer.expected(QUERY, text) for text in PASSAGES] and sorted(scorer.seen) == sorted(PASSAGES)


def test_one_that_is_killed_is_replaced_and_nothing_is_lost(serve_on: Callable[[str], Sidecar], model: Path) -> None:
    served = serve_on("cpu, cpu")
    scorer = load_scorer(str(model), device="cpu")
    expected = scorer.score(scorer.encode(QUERY, PASSAGES))
    body = {"query": QUERY, "texts": PASSAGES, "raw_scores": True}
    done = threading.Event()
    with httpx.Client(base_url=served.url, timeout=120) as client, ThreadPoolExecutor(3) as callers:

        def call() -> list[list[float]]:
            found = [scores_of(client.post("/rerank", json=body))]
            while not done.is_set():
                found.append(scores_of(client.post("/rerank", json=body)))
            return found

        looping = [callers.submit(call) for _ in range(2)]
        try:
            wait_until(lambda: "ccheck_texts_total 0.0" not in client.get("/metrics").text)
            first = workers_of(served)
            first[0].kill()
            wait_until(lambda: "was started again" in served.said, 120)
        finally:
            done.set()
        found = [scores for one in looping for scores in one.result(120)]
        assert all(scores == pytest.approx(expected, abs=1e-5) for scores in found)
        last = workers_of(served)
        assert len(first) == len(last) == 2 and first[0] not in last and first[1] in last
        assert "was ended (-9); another does its work" in served.said
        # SIGTERM, to the workers too, as a service manager sends it: what was taken is finished.
        works = callers.submit(client.post, "/rerank", json=body | {"texts": PASSAGES * 9})
        wait_until(lambda: "ccheck_waiting_requests 1.0" in client.get("/metrics").text)
        for process in (served.process, *last):
            process.send_signal(signal.SIGTERM)
        assert len(works.result(120).raise_for_status().json()) == 900
    assert served.process.wait(60) == 0 and served.said.count("was ended") == 1
    psutil.wait_procs(last, 60)
    assert not any(one.is_running() for one in last)


def test_it_stops_when_no_worker_can_be_started_again(serve_on: Callable[[str], Sidecar], tmp_path: Path) -> None:
    served = serve_on("cpu")
    assert served.url
    (tmp_path / "model").unlink()
    for worker in workers_of(served):
        worker.kill()
    answer = httpx.post(f"{served.url}/rerank", json={"query": QUERY, "texts": PASSAGES}, timeout=120)  # finds it dead
    assert answer.status_code == 424 and "no worker is left" in answer.json()["error"]
    assert served.process.wait(300) == 6
    assert f"(try {TRIES})" in served.said and "no worker is left: " in served.said


def test_one_that_hangs_is_ended_and_a_batch_is_not_tried_for_ever(model, monkeypatch):
    said: list[str] = []
    runtime, stage = Runtime(Settings(), said.append), ModelStage(model=str(model))
    with Workers("cpu,cpu", runtime, stage, Limits(), "repeat") as workers:
        encoded = workers.scorer.encode(QUERY, PASSAGES)
        first = workers.scorer.score(encoded)
        monkeypatch.setattr(workers, "_seconds", 5)
        stopped = workers.workers[0].process
        assert stopped is not None
        stopped.send_signal(signal.SIGSTOP)
        for _ in workers.workers:
            assert workers.scorer.score(encoded) == pytest.approx(first, abs=1e-5)
        assert stopped.poll() == -signal.SIGKILL
        monkeypatch.setattr(workers, "_seconds", 600)
        said.clear()
        with pytest.raises(ServerError, match="worker after worker ended over these texts"):
            list(workers.scorer.forward([(10**6,)], [0]))  # no such token: the model raises
        assert sum("was ended (1)" in one for one in said) == TRIES
    assert all(one.process is not None and one.process.poll() is not None for one in workers.workers)


def test_a_batch_whose_workers_are_killed_is_not_given_up(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([-signal.SIGKILL] * (TRIES + 2))

    def ask(worker: _Worker, question: object, seconds: float) -> list[tuple[int, float]]:
        for code in ends:
            raise _Ended(worker.device, code)
        return [(0, 0.5)]

    monkeypatch.setattr(_Worker, "start", lambda worker: None)
    monkeypatch.setattr(_Worker, "ask", ask)
    monkeypatch.setattr("ccheck.rerank.server.workers.pause", lambda *_, **__: 0)
    with Workers("cpu,cpu", Runtime(Settings()), ModelStage(model=str(model)), Limits()) as workers:
        assert list(workers.scorer.forward([(1,)], [0])) == [(0, 0.5)] and next(ends, None) is None


@pytest.mark.parametrize(
    ("flags", "code", "why"),
    [
        (["--devices", "cpu,nowhere", "--canary", "repeat"], 2, "can't run on the device 'nowhere'"),
        (["--devices", "cpu,,cpu"], 2, "a name is missing"),
        (["--devices", "cpu", "--device", "cpu"], 2, "can't be given together"),
        (["--devices", "cpu"], 5, "failed the check with known pairs"),
        (["--devices", "cpu", "--prompt", "x"], 2, "is not a decoder"),
    ],
)
def test_what_can_not_start(model: Path, flags: list[str], code: int, why: str) -> None:
    ran = ccheck("serve", "rerank", "--model", model, "--port", 0, *flags)
    assert ran.code == code and why in ran.err and "Traceback" not in ran.err


def test_a_worker_that_ends_while_it_loads(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ServerError, match=r"the worker on cpu was ended \(1\)"):
        Workers("cpu", Runtime(Settings()), ModelStage(model=str(model)), Limits())


# -- several servers with one reranker: work goes to all of them, and what one loses another does


SHARED_TEXTS = [f"sea level {' '.join('rise' * (n % 3))} {'x' * n}" for n in range(7 * PIECE)]
EXPECTED = [WordScorer().expected(QUERY, text) for text in SHARED_TEXTS]


def shared(*urls: str, seconds: float = 30, said: list[str] | None = None) -> SharedReranker:
    patience = Patience(seconds, said.append if said is not None else lambda _: None)
    return SharedReranker([RemoteReranker(url, retry_seconds=0) for url in urls], patience)


def test_all_servers_work_on_one_query_and_who_has_less_to_do_gets_the_next(serve: Callable[..., Served]) -> None:
    slow, quick = serve(), serve()
    for server in (slow, quick):
        server.scorer.hold()
    reranker = shared(slow.url, quick.url)
    with ThreadPoolExecutor(1) as caller:
        asked = caller.submit(reranker, QUERY, SHARED_TEXTS)
        assert slow.scorer.busy.wait(30) and quick.scorer.busy.wait(30)
        quick.scorer.go.set()
        wait_until(lambda: len(quick.scorer.seen) >= 3 * PIECE, 30)
        slow.scorer.go.set()
        scores = asked.result(60)
    assert scores.values == pytest.approx(EXPECTED, abs=1e-5) and len(scores.cut) == len(SHARED_TEXTS) and scores.logits
    assert sorted(slow.scorer.seen + quick.scorer.seen) == sorted(SHARED_TEXTS)  # each once
    before = len(slow.scorer.seen)
    reranker(QUERY, SHARED_TEXTS[:1])  # neither has anything to do any more
    assert len(slow.scorer.seen) == before + 1


def test_another_server_does_what_one_can_not(serve: Callable[..., Served]) -> None:
    """One is not there, and one refuses: the key is wrong."""
    locked, good = serve(key="secret"), serve()
    scores = shared("http://127.0.0.1:9", locked.url, good.url)(QUERY, SHARED_TEXTS)
    assert scores.values == pytest.approx(EXPECTED, abs=1e-5)
    assert sorted(good.scorer.seen) == sorted(SHARED_TEXTS)


def test_no_server_is_an_error_after_a_wait_that_is_said() -> None:
    """And the next piece does not wait as long."""
    said: list[str] = []
    begun = time.monotonic()
    reranker = shared("http://127.0.0.1:9", "http://127.0.0.2:9", seconds=2, said=said)
    reranker._patience.reached = True
    with pytest.raises(ServerError, match=r"no reranking server was there.*127\.0\.0\.1:9.* and .*127\.0\.0\.2:9"):
        reranker(QUERY, SHARED_TEXTS[:2])
    assert not reranker._patience.reached
    assert 0.4 < time.monotonic() - begun < 30 and len(said) == 1


def test_all_refusing_is_the_last_ones_error(serve: Callable[..., Served]) -> None:
    with pytest.raises(ServerError, match="CCHECK_RERANK_API_KEY"):
        shared(serve(key="secret").url, serve(key="other").url)(QUERY, SHARED_TEXTS[:2])


def test_different_models_are_refused(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = serve(), serve()
    reranker = shared(one.url, other.url)
    reranker(QUERY, SHARED_TEXTS)  # each has said what it serves
    monkeypatch.setattr(reranker._servers[1].reranker, "model", "another")
    with pytest.raises(InvalidData, match="serve different models: another and words"):
        reranker(QUERY, SHARED_TEXTS)


def test_settings_name_several(serve: Callable[..., Served]) -> None:
    one, other = serve(), serve()
    with Runtime(Settings(rerank_url=f"{one.url}, {other.url}")) as runtime:
        reranker = open_remote(f"{one.url},{other.url}", runtime)
        assert isinstance(reranker, SharedReranker) and reranker.name == f"{one.url}, {other.url}"
        many = reranker.many([(QUERY, SHARED_TEXTS[:3]), ("tea", []), (QUERY, SHARED_TEXTS[3:50])])
    assert [len(scores.values) for scores in many if not isinstance(scores, CcheckError)] == [3, 0, 47]


def test_servers_that_are_killed_again_and_again(model: Path, tmp_path: Path) -> None:
    """Nothing is lost, and every score is right."""
    scorer = load_scorer(str(model), device="cpu")
    expected = scorer.score(scorer.encode(QUERY, SHARED_TEXTS))
    serve = ("--model", model, "--canary", "repeat", "--device", "cpu")
    log = (tmp_path / f"{number}.log" for number in itertools.count())
    sidecars = [Sidecar(next(log), *serve), Sidecar(next(log), *serve)]
    reranker = shared(*(one.url for one in sidecars), seconds=300)
    done = threading.Event()

    def call() -> list[tuple[float, ...]]:
        found = []
        while not done.is_set():
            found.append(reranker(QUERY, SHARED_TEXTS).values)
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
