"""The sidecar over real HTTP: every dialect, limits, load, and callers that behave badly."""

from __future__ import annotations

import base64
import functools
import json
import logging
import re
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_runs import ccheck
from rerank_servers import Sidecar, WordScorer, running, wait_until
from tiny_embedder import TinyEmbedder
from tiny_rerankers import TEXTS, make_decoder, make_encoder

from ccheck.errors import InvalidData, UsageError
from ccheck.rerank import Scorer, sigmoid

pytest.importorskip("fastapi", reason="the server extra is not installed")

from ccheck.rerank.server import app as app_module
from ccheck.rerank.server import service as service_module
from ccheck.rerank.server.app import create_app
from ccheck.rerank.server.canary import check_scorer
from ccheck.rerank.server.config import Access, Limits
from ccheck.rerank.server.dialects import CUT, from_ranges, ranges
from ccheck.rerank.server.run import named_models, public

QUERY = "sea level rise"
LONG = "sea " * 9
TEI_BODY = {"query": QUERY, "texts": ["tea with milk", "the sea level", "sea level rise"]}
COHERE_BODY = {"query": QUERY, "documents": TEI_BODY["texts"]}


class Served:
    """A running server of words, and what to do with it."""

    def __init__(self, url: str, app: Any, scorer: WordScorer) -> None:
        self.url, self.scorer = url, scorer
        self.service: service_module.Service = app.state.service
        self.client = httpx.Client(base_url=url, timeout=60)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.client.post(path, json=body, headers=headers)

    @property
    def metrics(self) -> dict[str, float]:
        lines = [line for line in self.client.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture(scope="module")
def start() -> Iterator[Any]:
    """Starts servers that all tests may use."""
    with ExitStack() as stack:
        yield functools.partial(_start, stack)


@pytest.fixture
def serve() -> Iterator[Any]:
    """Starts servers for one test: `serve(limits…)`."""
    with ExitStack() as stack:
        yield functools.partial(_start, stack)


@pytest.fixture(scope="module")
def words(start) -> Served:
    """A server whose requests leave nothing behind."""
    return start()


def _start(
    stack: ExitStack, *, scorers: dict[str, Scorer] | None = None, key: str | None = None, **given: Any
) -> Served:
    batch_tokens = given.pop("batch_tokens", 4096)
    embedder = given.pop("embedder", None)
    scorer = WordScorer()
    app = create_app(
        scorers or {"words": scorer},
        limits=Limits(**given),
        access=Access(key),
        embedder=embedder,
        batch_tokens=batch_tokens,
    )
    served = Served(stack.enter_context(running(app)), app, scorer)
    stack.callback(served.client.close)
    stack.callback(scorer.go.set)
    return served


# -- dialects


def test_tei(words):
    served = words
    answer = served.post("/rerank", {**TEI_BODY, "raw_scores": True})
    expected = [served.scorer.expected(QUERY, text) for text in TEI_BODY["texts"]]
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json() == [{"index": i, "score": expected[i]} for i in (2, 1, 0)]
    for body in (TEI_BODY, {**TEI_BODY, "raw_scores": False}):
        scores = [item["score"] for item in served.post("/rerank", body).json()]
        assert scores == [sigmoid(expected[i]) for i in (2, 1, 0)]
    answer = served.post("/rerank?raw_scores=true", TEI_BODY).json()
    assert [item["score"] for item in answer] == [expected[i] for i in (2, 1, 0)]


@pytest.mark.parametrize("return_text", [None, False, True])
def test_what_elasticsearch_sends_and_reads(words, return_text):
    """Its parser fails on a key that it does not know, and every text must come back whatever top_n says."""
    body = {**TEI_BODY, "top_n": 1, **({} if return_text is None else {"return_text": return_text})}
    items = words.post("/rerank", body, Authorization="Bearer anything").json()
    assert isinstance(items, list) and sorted(item["index"] for item in items) == [0, 1, 2]
    keys = {"index", "score", "text"} if return_text else {"index", "score"}
    assert all(set(item) == keys for item in items)
    assert all(item["text"] == TEI_BODY["texts"][item["index"]] for item in items if return_text)
    assert [type(item["score"]) for item in items] == [float] * 3


@pytest.mark.parametrize(("path", "version"), [("/v1/rerank", "1"), ("/v2/rerank", "2"), ("/rerank", "1")])
def test_cohere_and_jina(words, path, version):
    served = words
    body = {"model": "words", "query": QUERY, "documents": ["tea", {"text": QUERY}, "the sea"], "top_n": 2}
    answer = served.post(path, body).json()
    expected = [sigmoid(served.scorer.expected(QUERY, text)) for text in ("tea", QUERY, "the sea")]
    assert answer["results"] == [{"index": i, "relevance_score": expected[i]} for i in (1, 2)]
    assert answer["meta"]["api_version"]["version"] == version and answer["id"]
    assert answer["model"] == "words" and answer["usage"]["total_tokens"] > 0
    answer = served.post(path, {**body, "return_documents": True}).json()
    assert [result["document"] for result in answer["results"]] == [{"text": QUERY}, {"text": "the sea"}]
    assert len(served.post(path, COHERE_BODY).json()["results"]) == 3


def test_long_texts_are_cut_and_said_to_be(serve):
    served = serve()
    body = {"query": "sea", "texts": ["tea", LONG, LONG, "x", LONG]}
    answer = served.post("/rerank", body)
    assert answer.status_code == 200 and answer.headers[CUT] == "1-2,4"
    assert CUT not in served.post("/rerank", TEI_BODY).headers
    answer = served.post("/v1/rerank", {"query": "sea", "documents": body["texts"]}).json()
    assert "1-2,4" in answer["meta"]["warnings"][0]
    refused = served.post("/rerank", {**body, "truncate": False})
    assert refused.status_code == 413 and "1-2,4" in refused.json()["error"]
    assert served.metrics['ccheck_texts_cut_total{model="words"}'] == 6


@pytest.mark.parametrize("numbers", [[], [0], [0, 1, 2], [3, 5, 6, 9], list(range(0, 100, 2))])
def test_ranges_are_read_as_they_were_written(numbers):
    assert from_ranges(ranges(numbers)) == numbers
    short = ranges(numbers, 20)
    assert len(short) <= 20 and from_ranges(short) == numbers[: len(from_ranges(short))]


def test_embeddings(serve):
    embedder = TinyEmbedder()
    embedder.encode_queries = lambda texts: -embedder.encode_documents(texts)
    served = serve(embedder=("tiny", embedder))
    expected = [embedder.vector(text).tolist() for text in ("a", "b c")]
    answer = served.post("/v1/embeddings", {"model": "tiny", "input": ["a", "b c"]}).json()
    assert [item["embedding"] for item in answer["data"]] == [pytest.approx(one) for one in expected]
    assert [item["index"] for item in answer["data"]] == [0, 1] and answer["usage"]["total_tokens"] == 3
    answer = served.post("/v1/embeddings", {"input": "a", "encoding_format": "base64", "dimensions": 8}).json()
    data = base64.b64decode(answer["data"][0]["embedding"])
    assert struct.unpack("<8f", data) == pytest.approx(expected[0])
    assert served.post("/embed", {"inputs": ["a", "b c"]}).json() == [pytest.approx(one) for one in expected]
    query = served.post("/embed", {"inputs": "a", "prompt_name": "query"}).json()
    assert query == [pytest.approx([-value for value in expected[0]])]
    for path, body, said in [
        ("/v1/embeddings", {"input": "a", "dimensions": 4}, "8 dimensions"),
        ("/v1/embeddings", {"input": [1, 2]}, "input"),
        ("/embed", {"inputs": "a", "normalize": False}, "normalize"),
    ]:
        refused = served.post(path, body)
        assert refused.status_code == 422 and said in refused.text
    refused = served.post("/v1/embeddings", {"input": "a", "model": "other"})
    assert refused.status_code == 404 and "tiny is served" in refused.json()["error"]["message"]
    assert serve().post("/embed", {"inputs": "a"}).status_code == 422


def test_the_client_of_openai(serve, minilm):
    openai = pytest.importorskip("openai")
    from ccheck.search import embedding

    model = embedding.load_embedder("all-MiniLM-L6-v2")
    served = serve(embedder=("all-MiniLM-L6-v2", model))
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        made = client.embeddings.create(model="all-MiniLM-L6-v2", input=list(TEXTS))
    expected = model.encode_documents(TEXTS)
    assert [item.embedding for item in made.data] == [pytest.approx(row, abs=1e-6) for row in expected.tolist()]


@pytest.mark.parametrize("version", ["Client", "ClientV2"])
def test_the_client_of_cohere(serve, version):
    cohere = pytest.importorskip("cohere", reason="the client of Cohere is not installed")
    served = serve(key="k3y")
    given = {"model": "words", "query": QUERY, "documents": TEI_BODY["texts"]}
    make = functools.partial(getattr(cohere, version), base_url=served.url, httpx_client=served.client)
    client = make(api_key="k3y")
    answer = client.rerank(**given, top_n=2)
    expected = [sigmoid(served.scorer.expected(QUERY, text)) for text in TEI_BODY["texts"]]
    assert [(result.index, result.relevance_score) for result in answer.results] == [(i, expected[i]) for i in (2, 1)]
    with pytest.raises(cohere.NotFoundError, match="these are served: words"):
        client.rerank(**(given | {"model": "other"}))
    with pytest.raises(cohere.UnauthorizedError):
        make(api_key="wrong").rerank(**given)


def test_several_models_by_name(serve):
    one, other = WordScorer("one"), WordScorer("other", scale=-4.0)
    served = serve(scorers={"one": one, "other": other})
    for path, named, best in [
        ("/rerank", {}, 2),
        ("/rerank", {"model": "other"}, 0),
        ("/rerank?model=other", {}, 0),
        ("/v2/rerank", {"model": "one"}, 2),
    ]:
        body = COHERE_BODY if "v2" in path else TEI_BODY
        answer = served.post(path, {**body, **named}).json()
        assert (answer["results"] if "v2" in path else answer)[0]["index"] == best
    refused = served.post("/v2/rerank", {**COHERE_BODY, "model": "third"})
    assert refused.status_code == 404 and "one, other" in refused.json()["message"]
    assert served.client.get("/info").json()["models"] == ["one", "other"]


# -- errors


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/rerank", "{bad", 422, "JSON"),
        ("/rerank", "", 422, "JSON"),
        ("/rerank", "[1]", 422, "the body"),
        ("/rerank", '{"query": "a"}', 422, "texts"),
        ("/rerank", '{"texts": ["a"]}', 422, "query"),
        ("/rerank", '{"query": "a", "texts": []}', 422, "texts"),
        ("/rerank", '{"query": "a", "texts": [1]}', 422, "texts.0"),
        ("/rerank", '{"query": "a", "texts": "b"}', 422, "texts"),
        ("/rerank", '{"query": "a", "documents": [1]}', 422, "documents.0"),
        ("/rerank", '{"query": "a", "texts": ["\\ud800"]}', 422, "JSON"),
        ("/rerank", '{"query": "a", "texts": ["b"], "model": "none"}', 422, "none"),
        ("/rerank", '{"query": "a", "texts": ["nan"]}', 424, "not a number"),
        ("/rerank", '{"query": "a", "texts": ["boom"]}', 424, "RuntimeError"),
        ("/v1/rerank", '{"query": "a", "documents": [{"image": "b"}]}', 422, "documents.0"),
        ("/v1/rerank", '{"query": "a", "documents": ["b"], "top_n": 0}', 422, "top_n"),
        ("/v2/rerank", '{"query": "a", "documents": ["nan"]}', 500, "not a number"),
        ("/v2/rerank", '{"query": "a", "documents": ["boom"]}', 500, "RuntimeError"),
        ("/v1/embeddings", '{"input": "a"}', 404, "--embedding-model"),
        ("/v1/embeddings", "{", 422, "JSON"),
        ("/embed", "{", 422, "JSON"),
        ("/rerank", "[" * 100_000, 422, "recursion"),
    ],
)
def test_errors_are_in_the_callers_dialect(words, caplog, path, body, status, said):
    caplog.set_level(logging.CRITICAL)
    answer = words.client.post(path, content=body, headers={"Content-Type": "application/json"})
    error = answer.json()
    message = {
        "/rerank": lambda: error["error"],
        "/embed": lambda: error["error"],
        "/v1/rerank": lambda: error["message"],
        "/v2/rerank": lambda: error["detail"],
        "/v1/embeddings": lambda: error["error"]["message"],
    }[path]()
    assert answer.status_code == status and said in message, error
    if path == "/rerank":
        assert error["error_type"] == ("Backend" if status == 424 else "Validation")


def test_a_body_that_is_not_json_is_refused_before_it_is_read(words):
    served = words
    for headers in (
        {"Content-Type": "text/plain"},
        {},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ):
        answer = served.client.post("/rerank", content=json.dumps(TEI_BODY), headers=headers)
        assert answer.status_code == 415 and answer.json()["error_type"] == "Validation"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_told_so(serve, chunked):
    served = serve(body=100_000)
    data = json.dumps({**TEI_BODY, "texts": ["sea " * 50_000] * 20}).encode()
    content = iter([data[i : i + 65536] for i in range(0, len(data), 65536)]) if chunked else data
    answer = served.client.post("/rerank", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413 and "100,000 bytes" in answer.json()["error"]
    assert served.post("/rerank", TEI_BODY).status_code == 200  # also on the same connection


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"query": "a", "texts": ["b"] * 6}, "the 5 that"),
        ({"query": "a", "texts": ["b", "c" * 51]}, "text 1 has 51 characters, of which one may have 50"),
        ({"query": "a" * 51, "texts": ["b"]}, "the query has 51"),
    ],
)
def test_too_many_and_too_long_texts_are_refused_with_the_limit(serve, body, said):
    answer = serve(texts=5, characters=50).post("/rerank", body)
    assert answer.status_code == 413 and said in answer.json()["error"]


def test_a_key_is_asked_for(serve, caplog):
    caplog.set_level(logging.DEBUG)
    served = serve(key="s3cret-é")
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic s3cret-é".encode()},
        {"Authorization": "s3cret-é".encode()},
    ):
        for path in ("/rerank", "/v1/rerank", "/v1/embeddings", "/embed", "/info", "/metrics"):
            method = "GET" if path in ("/info", "/metrics") else "POST"
            content = json.dumps(TEI_BODY) if method == "POST" else None
            answer = served.client.request(
                method, path, content=content, headers={"Content-Type": "application/json", **headers}
            )
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            assert "s3cret" not in answer.text
    assert served.client.get("/health").status_code == 200
    headers = {"Authorization": "Bearer s3cret-é".encode(), "Content-Type": "application/json"}
    assert served.client.post("/rerank", content=json.dumps(TEI_BODY), headers=headers).status_code == 200
    assert served.client.get("/info", headers=headers).status_code == 200
    assert "s3cret" not in caplog.text + repr(Access("s3cret-é"))


# -- load


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
        wait_until(lambda: served.service.gate.requests == 2)
        gone.close()
        wait_until(lambda: served.service.gate.requests == 1)
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
    served = serve(requests=1, timeout=1.0)
    whole = request_of(TEI_BODY)
    with socket.create_connection(("127.0.0.1", httpx.URL(served.url).port)) as slow:
        slow.settimeout(30)
        slow.sendall(whole[:-10])
        wait_until(lambda: served.service.gate.bytes > 0)
        assert served.post("/rerank", TEI_BODY).status_code == 200
        answer = b""
        while part := slow.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 408") and b"did not arrive within 1 s" in answer
    assert served.service.gate.bytes == 0


def request_of(body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("rerankers")
    return {"decoder": make_decoder(folder / "decoder"), "encoder": make_encoder(folder / "encoder")}


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_32_callers_get_the_scores_of_the_bare_scorer(serve, folders, kind):
    """Their texts share batches; queries, lengths and duplicates differ."""
    from ccheck.rerank.load import load_scorer

    scorer = load_scorer(str(folders[kind]), device="cpu", max_tokens=128)
    asked = [
        (
            f"{TEXTS[i % 8]} {i}",
            [f"{TEXTS[(i + j) % 8]} {j} " * (1 + (i * j) % 5) for j in range(1 + i % 13)] + ["", "é"],
        )
        for i in range(64)
    ]
    expected = [scorer.score(scorer.encode(query, texts)) for query, texts in asked]
    served = serve(scorers={kind: scorer}, batch_tokens=1024)
    with ThreadPoolExecutor(32) as callers:
        answers = list(
            callers.map(
                lambda one: served.post("/rerank", {"query": one[0], "texts": one[1], "raw_scores": True}), asked
            )
        )
    for answer, scores in zip(answers, expected, strict=True):
        found = {item["index"]: item["score"] for item in answer.json()}
        assert [found[i] for i in range(len(scores))] == pytest.approx(scores, abs=1e-5)
    metrics = served.metrics
    assert metrics["ccheck_batch_requests_sum"] > metrics["ccheck_batch_requests_count"]  # they did share
    assert metrics[f'ccheck_texts_total{{model="{kind}"}}'] == sum(len(texts) for _, texts in asked)


# -- state


def test_health_info_metrics_and_the_openapi_page(serve, caplog):
    caplog.set_level(logging.CRITICAL)
    served = serve(texts=77)
    assert served.client.get("/health").json() == {"status": "ok"}
    info = served.client.get("/info").json()
    assert (info["model_id"], info["max_client_batch_size"], info["max_input_length"]) == ("words", 77, 8)
    served.post("/rerank", TEI_BODY)
    assert served.metrics['ccheck_requests_total{path="/rerank",status="200"}'] == 1
    assert served.metrics['ccheck_texts_total{model="words"}'] == 3
    page = served.client.get("/openapi.json").json()
    assert {"/rerank", "/v1/rerank", "/v2/rerank", "/v1/embeddings", "/embed", "/health", "/info"} <= set(page["paths"])
    sent = page["paths"]["/rerank"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"query", "texts", "raw_scores", "return_text"} <= set(sent["properties"])
    assert served.client.get("/docs").status_code == 200
    for _ in range(3):
        served.post("/rerank", {"query": "q", "texts": ["boom"]})
    sick = served.client.get("/health")
    assert sick.status_code == 503 and sick.json()["error_type"] == "Unhealthy"


def test_the_canary(folders):
    from ccheck.rerank.load import load_scorer

    good = WordScorer()
    check_scorer(good)
    with pytest.raises(InvalidData, match="answers it has the score"):
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
    given = ["org/model", "rerank-v3.5=org/other", str(tmp_path / "mine"), str(tmp_path / "a=b")]
    assert named_models(given) == {
        "org/model": "org/model",
        "rerank-v3.5": "org/other",
        "mine": str(tmp_path / "mine"),
        "a=b": str(tmp_path / "a=b"),
    }
    for wrong in (["x", "x"], ["a=x", "a=y"], ["a="]):
        with pytest.raises(UsageError, match="--model"):
            named_models(wrong)


@pytest.mark.parametrize(
    ("host", "is_public"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True), ("box", True)],
)
def test_who_can_reach_it(host, is_public):
    assert public(host) is is_public


# -- the program


def test_the_program_serves_and_finishes_what_it_took_when_it_is_stopped(folders, tmp_path):
    sidecar = Sidecar(
        tmp_path / "log",
        *("--model", folders["decoder"], "--model", f"small={folders['encoder']}", "--canary", "repeat"),
        CCHECK_SERVE_DEVICE="cpu",
        CCHECK_SERVE_API_KEY="s3cret",
        CCHECK_SERVE_MAX_TEXTS="5000",
    )
    try:
        headers = {"Authorization": "Bearer s3cret"}
        with httpx.Client(base_url=sidecar.url, timeout=60, headers=headers) as client:
            assert client.get("/health").status_code == 200
            assert client.get("/info").json()["models"] == ["decoder", "small"]
            texts = [f"{TEXTS[i % 8]} {i}" * 4 for i in range(1500)]
            with ThreadPoolExecutor(2) as callers:
                works = callers.submit(client.post, "/rerank", json={"query": QUERY, "texts": texts})
                wait_until(lambda: "ccheck_batch_requests_count 0.0" not in client.get("/metrics").text)
                sidecar.process.send_signal(signal.SIGTERM)
                answer = works.result()
        assert answer.status_code == 200 and len(answer.json()) == 1500
        assert sidecar.process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{sidecar.url}/health")
        assert f"decoder ({folders['decoder']}), small ({folders['encoder']}) at http://127.0.0.1:" in sidecar.said
        assert "s3cret" not in sidecar.said and "Traceback" not in sidecar.said
    finally:
        sidecar.stop(signal.SIGKILL)


def test_a_model_that_was_not_trained_is_not_served(folders):
    ran = ccheck("serve", "rerank", "--model", folders["encoder"], "--port", 0, "--device", "cpu")
    assert ran.code == 5 and "known pairs come out wrong" in ran.err and "--canary repeat" in ran.err


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
    assert ran.code == 3 and "pip install 'ccheck[server]'" in ran.err


def test_every_flag_has_a_twin_in_the_environment():
    from ccheck.cli.serve import rerank

    flags = [option for option in rerank.params if option.name != "quiet"]
    for option in flags:
        twin = f"CCHECK_SERVE_{option.opts[0].removeprefix('--').replace('-', '_').upper()}"
        assert option.envvar == twin and twin in " ".join(ccheck("serve", "rerank", "--help").out.split())


# -- its page


PAGE = (Path(__file__).parents[1] / "docs" / "rerank-server.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```http\nPOST (/\S+)\n(.*?)```\n+```json\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("path", "body", "answer"), SHOWN, ids=[path for path, _, _ in SHOWN])
def test_the_page_shows_what_is_answered(words, path, body, answer):
    given, shown = words.post(path, json.loads(body)).json(), json.loads(answer)
    assert skeleton(given) == skeleton(shown)


def skeleton(value: Any) -> Any:
    """The keys and the order of texts; not the numbers, which are another model's."""
    if isinstance(value, dict):
        return {key: one if key == "index" else skeleton(one) for key, one in value.items()}
    return [skeleton(one) for one in value] if isinstance(value, list) else type(value)


def test_the_page_is_json_for_elasticsearch():
    bodies = re.findall(r"```http\n(?:PUT|POST) [^/\n]\S+\n(.*?)```", PAGE, re.DOTALL)
    services = [json.loads(body).get("service") for body in bodies]
    assert services == ["hugging_face", "custom", None]
    template = json.loads(bodies[1])["service_settings"]["request"]
    filled = template.replace("${query}", '"a"').replace("${input}", '["b"]')
    assert json.loads(filled) == {"query": "a", "documents": ["b"]}


def test_the_page_names_every_route_metric_and_status(words):
    routes = words.client.get("/openapi.json").json()["paths"]
    assert [path for path in routes if f"{path}`" not in PAGE] == []
    words.post("/rerank", TEI_BODY)
    names = {re.split(r"[{ ]", name)[0] for name in words.metrics}
    bare = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in names}
    assert [name for name in bare if f"`{name}" not in PAGE] == []
    source = Path(app_module.__file__).read_text() + Path(service_module.__file__).read_text()
    statuses = set(re.findall(r"Refusal\(\s*(\d{3})", source)) | {"408", "424", "429"}
    assert statuses and all(re.search(rf"\| .*\b{status}\b", PAGE) for status in statuses)
