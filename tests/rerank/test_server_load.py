"""The reranking server under load, what it says of itself, and the program."""

import json
import logging
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_runs import ccheck
from rerank_servers import QUERY, TEI_BODY, Sidecar, WordScorer, wait_until
from tiny_rerankers import TEXTS, load_scorer, make_decoder, make_encoder

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.install import install_command

pytest.importorskip("fastapi", reason="the server extra is not installed")

from ccheck.cli.serve import named_model
from ccheck.rerank.server.canary import check_scorer


def test_a_full_queue_says_when_to_come_again(serve):
    """Every request is answered: as many as are taken with the true scores, the others with 429."""
    served = serve(requests=4)
    served.scorer.hold()
    bodies = [{"query": QUERY, "texts": [f"sea number {i}", f"level {i}"], "raw_scores": True} for i in range(24)]
    with ThreadPoolExecutor(24) as callers:
        asked = [callers.submit(served.post, "/rerank", body) for body in bodies]
        wait_until(lambda: sum(one.done() for one in asked) == 20)
        served.scorer.go.set()
        answers = [one.result() for one in asked]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 20
    for answer in refused:
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json() == {"error": "the queue is full (4 requests)", "error_type": "Overloaded"}
    for body, answer in zip(bodies, answers, strict=True):
        if answer.status_code != 429:
            scores = {item["index"]: item["score"] for item in answer.json()}
            assert scores == {i: served.scorer.expected(QUERY, text) for i, text in enumerate(body["texts"])}
    assert served.metrics['ccheck_requests_total{path="/rerank",status="429"}'] == 20
    assert served.post("/rerank", TEI_BODY).status_code == 200


def test_a_caller_that_hung_up_costs_no_more(serve):
    served = serve()
    served.scorer.hold()
    with ThreadPoolExecutor(1) as caller:
        first = caller.submit(served.post, "/rerank", {"query": "q", "texts": ["first"]})
        assert served.scorer.busy.wait(30)
        gone = socket.create_connection(("127.0.0.1", httpx.URL(served.url).port))
        gone.sendall(request_of({"query": "q", "texts": ["gone"] * 50}))
        wait_until(lambda: served.service.requests.used == 2)
        gone.close()
        wait_until(lambda: served.service.requests.used == 1)
        served.scorer.go.set()
        assert first.result().status_code == 200
    served.post("/rerank", {"query": "q", "texts": ["last"]})
    assert served.scorer.seen == ["first", "last"]
    assert served.metrics["ccheck_gone_total"] == 1


def test_a_deadline(serve):
    served = serve(timeout=0.5)
    served.scorer.hold()
    late = [served.post("/rerank", {"query": "q", "texts": [text]}) for text in ("running", "waiting")]
    assert [answer.status_code for answer in late] == [504, 504]
    assert late[0].json()["error_type"] == "Timeout" and "0.5 s" in late[0].json()["error"]
    served.scorer.go.set()
    wait_until(lambda: served.post("/rerank", {"query": "q", "texts": ["next"]}).status_code == 200)
    assert "waiting" not in served.scorer.seen


def test_a_slow_caller_holds_up_nobody(serve):
    """It takes no place in the queue while it sends, and is told when it took too long."""
    served = serve(requests=1, timeout=2.0)
    whole = request_of(TEI_BODY)
    with socket.create_connection(("127.0.0.1", httpx.URL(served.url).port)) as slow:
        slow.settimeout(30)
        slow.sendall(whole[:-10])
        wait_until(lambda: served.service.bytes.used > 0)
        assert served.post("/rerank", TEI_BODY).status_code == 200
        answer = b"".join(iter(lambda: slow.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408") and b"did not arrive within 2 s" in answer
    assert served.service.bytes.used == 0


def request_of(body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = "POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("rerankers")
    return {"decoder": make_decoder(folder / "decoder"), "encoder": make_encoder(folder / "encoder")}


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_32_callers_get_the_scores_of_the_bare_scorer(serve, folders, kind):
    """They take turns; queries, lengths and duplicates differ."""
    scorer = load_scorer(str(folders[kind]), device="cpu", max_tokens=128)
    asked = [
        {"query": f"{TEXTS[i % 8]} {i}", "raw_scores": True}
        | {"texts": [f"{TEXTS[(i + j) % 8]} {j} " * (1 + (i * j) % 5) for j in range(1 + i % 13)] + ["", "é"]}
        for i in range(64)
    ]
    expected = [scorer.score(scorer.encode(body["query"], body["texts"])) for body in asked]
    served = serve(model=scorer, batch_tokens=1024)
    with ThreadPoolExecutor(32) as callers:
        answers = list(callers.map(lambda body: served.post("/rerank", body), asked))
    for answer, scores in zip(answers, expected, strict=True):
        found = {item["index"]: item["score"] for item in answer.json()}
        assert [found[i] for i in range(len(scores))] == pytest.approx(scores, abs=1e-5)
    assert served.metrics["ccheck_texts_total"] == sum(len(body["texts"]) for body in asked)


def test_a_small_request_does_not_wait_for_a_huge_one(serve):
    served = serve(batch_tokens=32)
    served.scorer.hold()
    with ThreadPoolExecutor(2) as callers:
        huge = callers.submit(served.post, "/rerank", {"query": "q", "texts": [f"huge {i}" for i in range(100)]})
        assert served.scorer.busy.wait(30)
        small = callers.submit(served.post, "/rerank", {"query": "q", "texts": ["small"]})
        wait_until(lambda: served.metrics["ccheck_waiting_requests"] == 2)
        served.scorer.go.set()
        assert huge.result().status_code == small.result().status_code == 200
    assert "small" in served.scorer.seen[:60]
    assert served.metrics["ccheck_waiting_tokens"] == 0


def test_health_info_metrics_and_the_openapi_page(serve, caplog):
    caplog.set_level(logging.CRITICAL)
    served = serve(texts=77)
    assert served.client.get("/health").json() == {"status": "ok"}
    info = served.client.get("/info").json()
    assert (info["model_id"], info["max_client_batch_size"], info["max_input_length"]) == ("words", 77, 8)
    served.post("/rerank", TEI_BODY)
    assert served.metrics['ccheck_requests_total{path="/rerank",status="200"}'] == 1
    assert served.metrics["ccheck_texts_total"] == 3
    page = served.client.get("/openapi.json").json()
    assert {"/rerank", "/v1/rerank", "/v2/rerank", "/health", "/info"} <= set(page["paths"])
    sent = page["paths"]["/rerank"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"query", "texts", "raw_scores", "return_text"} <= set(sent["properties"])
    assert served.client.get("/docs").status_code == 200
    for _ in range(3):
        served.post("/rerank", {"query": "q", "texts": ["boom"]})
    sick = served.client.get("/health")
    assert sick.status_code == 503 and sick.json()["error_type"] == "Unhealthy"


def test_the_canary(folders):
    good = WordScorer()
    check_scorer(good)
    with pytest.raises(InvalidData, match="answers it scores"):
        check_scorer(WordScorer(scale=-4.0))
    check_scorer(WordScorer(scale=-4.0), "repeat")
    for values, said in [
        (lambda encoded: [0.5] * len(encoded), "every pair has the same score, 0.5"),
        (lambda encoded: [float("nan")] * len(encoded), "not a number"),
        (lambda encoded: [float(i) for i in range(len(encoded))], "differ by"),
    ]:
        good.score = values
        with pytest.raises(InvalidData, match=said):
            check_scorer(good, "repeat")
    for folder in folders.values():
        check_scorer(load_scorer(str(folder), device="cpu"), "repeat")


def test_names_of_models(tmp_path):
    (tmp_path / "a=b").mkdir()
    (tmp_path / "mine").mkdir()
    assert named_model("org/model") == ("org/model", "org/model")
    assert named_model("rerank-v3.5=org/other") == ("rerank-v3.5", "org/other")
    for name in ("mine", "a=b"):
        assert named_model(str(tmp_path / name)) == (name, str(tmp_path / name))
    with pytest.raises(UsageError, match="--model"):
        named_model("a=")


def test_the_program_serves_and_finishes_what_it_took_when_it_is_stopped(folders, tmp_path):
    sidecar = Sidecar(
        tmp_path / "log",
        *("--model", f"small={folders['encoder']}", "--canary", "repeat"),
        CCHECK_SERVE_DEVICE="cpu",
        CCHECK_SERVE_API_KEY="s3cret",
        CCHECK_SERVE_MAX_TEXTS="5000",
    )
    try:
        headers = {"Authorization": "Bearer s3cret"}
        with httpx.Client(base_url=sidecar.url, timeout=60, headers=headers) as client:
            assert client.get("/health").status_code == 200
            assert client.get("/info").json()["model_id"] == "small"
            texts = [f"{TEXTS[i % 8]} {i}" * 4 for i in range(1500)]
            with ThreadPoolExecutor(2) as callers:
                works = callers.submit(client.post, "/rerank", json={"query": QUERY, "texts": texts})
                wait_until(lambda: "ccheck_batch_tokens_count 0.0" not in client.get("/metrics").text)
                sidecar.process.send_signal(signal.SIGTERM)
                answer = works.result()
        assert answer.status_code == 200 and len(answer.json()) == 1500
        assert sidecar.process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{sidecar.url}/health")
        assert f"small ({folders['encoder']}) at http://127.0.0.1:" in sidecar.said
        assert "s3cret" not in sidecar.said and "Traceback" not in sidecar.said
    finally:
        sidecar.stop(signal.SIGKILL)


def test_a_model_that_was_not_trained_is_not_served(folders):
    ran = ccheck("serve", "rerank", "--model", folders["encoder"], "--port", 0, "--device", "cpu")
    assert ran.code == 5 and "failed the check with known pairs" in ran.err and "--canary repeat" in ran.err


def test_what_is_said_when_it_can_not_start(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = ccheck("serve", "rerank", "--model", tmp_path, "--port", taken.getsockname()[1])
        assert ran.code == 6 and "--port" in ran.err
    ran = ccheck("serve", "rerank", "--model", "nobody/none", "--host", "nowhere.invalid")
    assert ran.code == 6 and "nowhere.invalid" in ran.err
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert ccheck("serve", "rerank", "--model", "nobody/no-such-model", "--port", 0).code == 4
    assert ccheck("serve", "rerank").code == 2
    monkeypatch.setitem(sys.modules, "fastapi", None)
    ran = ccheck("serve", "rerank", "--model", "x")
    assert ran.code == 3 and install_command("server") in ran.err


def test_every_flag_has_a_twin_in_the_environment():
    from ccheck.cli.serve import rerank

    flags = [option for option in rerank.params if option.name != "quiet"]
    for option in flags:
        twin = f"CCHECK_SERVE_{option.opts[0].removeprefix('--').replace('-', '_').upper()}"
        assert option.envvar == twin and twin in " ".join(ccheck("serve", "rerank", "--help").out.split())
