"""Rerankers on servers: the sidecar itself, and what others answer, by a server that answers what a test says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import pytest
from http_stub import Asked, HttpStub, Reply, Scripted, http_stub, next_reply
from rerank_servers import WordScorer, running
from tiny_rerankers import TEXTS

from ccheck.core import http
from ccheck.core.errors import InvalidData, ServerError, UsageError
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.rerank import remote
from ccheck.rerank.open import open_remote
from ccheck.rerank.remote import RemoteReranker

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]] | None
"""A status with its body and headers; None drops the connection."""
QUERY = "sea level rise"
PASSAGES = ("tea with milk", "the sea level", "sea level rise", "sea")
NOT_FOUND: Answer = (404, {"detail": "Not Found"})
TEI_INFO = {"model_id": "BAAI/bge-reranker-large", "model_type": {"reranker": {}}, "max_client_batch_size": 32}


@dataclass
class Stub:
    """The server: `answers` maps (method, path) to what is answered, in order, the last one for ever."""

    answers: Scripted = field(default_factory=dict)
    server: HttpStub = field(init=False)

    @property
    def url(self) -> str:
        return self.server.url

    def bodies(self, path: str) -> list[Any]:
        return list(map(json.loads, self.server.bodies(path)))

    def reply(self, asked: Asked) -> Reply | None:
        answer = next_reply(self.answers, asked, NOT_FOUND)
        if (answer := answer(asked.json) if callable(answer) else answer) is None:
            return None
        status, body, headers = (*answer, {})[:3]
        return Reply(body, status, {"Content-Type": None, **headers})


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    with http_stub(stub.reply) as stub.server:
        yield stub


@pytest.fixture
def ask() -> Iterator[Callable[..., Any]]:
    """Calls a reranker once, and closes it."""
    opened: list[RemoteReranker] = []

    def call(url: str, passages: Any = PASSAGES, **given: Any) -> Any:
        opened.append(RemoteReranker(url, **{"timeout": 20, "retry_seconds": 10, **given}))
        return opened[-1](QUERY, passages)

    yield call
    for one in opened:
        one.close()


def tei(body: Any) -> Answer:
    """TEI's: logits where raw scores are asked for, best first."""
    assert body["raw_scores"] and body["truncate"]
    return 200, [{"index": i, "score": len(text) - 10.0} for i, text in reversed(list(enumerate(body["texts"])))]


def cohere(body: Any) -> Answer:
    return 200, {
        "id": "x",
        "results": [
            {"index": i, "relevance_score": len(text) / 100, "document": {"text": text}}
            for i, text in reversed(list(enumerate(body["documents"])))
        ],
        "meta": {},
    }


LENGTHS = tuple(map(len, PASSAGES))


# -- dialects


@pytest.mark.parametrize("path", ["", "/", "/rerank"])
def test_tei_is_known_by_its_info(stub, ask, path):
    stub.answers = {("GET", "/info"): [(200, TEI_INFO)], ("POST", "/rerank"): [tei]}
    scores = ask(stub.url + path, api_key="k3y")
    assert scores.values == tuple(length - 10.0 for length in LENGTHS) and scores.logits
    assert scores.cut == (False,) * 4
    assert all(one.headers["authorization"] == "Bearer k3y" for one in stub.server.asked)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("/v1/rerank", "/v1/rerank"),
        ("/v2/rerank", "/v2/rerank"),
        ("/v1", "/v1/rerank"),
        ("/proxy/v2/", "/proxy/v2/rerank"),
        ("", "/v1/rerank"),
        ("/rerank", "/rerank"),
        ("/deep", "/deep/v1/rerank"),
    ],
)
def test_cohere_jina_and_what_speaks_like_them(stub, ask, given, asked):
    stub.answers = {("POST", asked): [cohere]}
    scores = ask(f"{stub.url}{given}?model=rerank-v3.5")
    assert scores.values == tuple(length / 100 for length in LENGTHS) and not scores.logits
    (body,) = stub.bodies(asked)
    assert body == {
        "query": QUERY,
        "documents": list(PASSAGES),
        "top_n": 4,
        "return_documents": False,
        "model": "rerank-v3.5",
    }


def test_vllm_behind_the_same_setting():
    """As its source says (entrypoints, RerankRequest and RerankResponse): no vLLM runs here, it is our reading."""

    def vllm(asked: Asked) -> Reply:
        if (asked.method, asked.path) != ("POST", "/v1/rerank"):
            return Reply({"detail": "Not Found"}, 404)
        body = asked.json
        assert isinstance(body["query"], str) and body["top_n"] == len(body["documents"]) and "model" not in body
        results = cohere(body)[1]["results"]
        usage = {"prompt_tokens": 9, "total_tokens": 9}
        return Reply({"id": "rerank-1", "model": "BAAI/bge-reranker-v2-m3", "usage": usage, "results": results})

    with http_stub(vllm) as one, http_stub(vllm) as other, Runtime(Settings()) as runtime:
        scores = open_remote(f"{one.url},{other.url}", runtime)(QUERY, PASSAGES * 40)
        assert scores.values == tuple(length / 100 for length in LENGTHS) * 40
        assert sum(len(server.bodies("/v1/rerank")) for server in (one, other)) == 10  # of 16 passages, each once


def test_values_outside_of_0_to_1_are_logits(stub, ask):
    results = [{"index": i, "relevance_score": 1.5 - i} for i in range(4)]
    stub.answers = {("POST", "/v1/rerank"): [(200, {"results": results})]}
    scores = ask(f"{stub.url}/v1")
    assert scores.logits and scores.normalized[0] == pytest.approx(0.8176, abs=1e-4)


def test_the_name_shows_no_secret():
    reranker = RemoteReranker("https://user:pass@host/rerank?token=abc&model=m", api_key="k3y")
    assert reranker.name == "https://host/rerank?model=m"
    assert reranker(QUERY, []).values == ()
    reranker.close()


@pytest.mark.parametrize("url", ["", "host:80", "ftp://host", "http://", "http://[::1", "http://host:port"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(UsageError, match="URL"):
        RemoteReranker(url)


# -- the server's limit


def test_texts_are_split_to_the_limit_that_the_server_names(stub, ask):
    stub.answers = {("GET", "/info"): [(200, TEI_INFO)], ("POST", "/rerank"): [tei]}
    passages = ["x" * (i % 37) for i in range(100)]
    assert ask(stub.url, passages).values == tuple(i % 37 - 10.0 for i in range(100))
    assert [len(body["texts"]) for body in stub.bodies("/rerank")] == [32, 32, 32, 4]


# -- servers that are busy, gone, or wrong


@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"error": "busy"}, {"Retry-After": "0"}),
        (429, {"error": "busy"}),
        (503, b"", {"Retry-After": formatdate(usegmt=True)}),
        (502, b"<html>"),
        (504, b""),
        None,
    ],
)
def test_what_may_pass_is_tried_again(stub, ask, trouble):
    stub.answers = {
        ("GET", "/info"): [trouble, (200, TEI_INFO)],
        ("POST", "/rerank"): [trouble, trouble, tei],
    }
    assert ask(stub.url).values[0] == LENGTHS[0] - 10.0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((429, {"error": {"message": "quota"}}, {"Retry-After": "3600"}), r"refused \(429\): quota: it is busy"),
        ((401, {"message": "invalid api token"}), "invalid api token: set the key in CCHECK_RERANK_API_KEY"),
        ((404, {"message": "model 'x' not found"}), "model 'x' not found: check the URL and the model"),
        ((413, {"message": "too large"}), r"refused \(413\): too large: choose a smaller depth \(--rerank-depth"),
        ((422, {"error": "4 texts > 2"}), r"4 texts > 2: if .* too many texts at once, choose a smaller depth"),
        ((500, b"<html>\nInternal"), r"refused \(500\): <html>"),
        ((301, b"", {"Location": "http://127.0.0.1:1/"}), r"redirects to http://127.0.0.1:1/ \(301\)"),
        ((200, b"<html>"), "did not return a ranking: the answer"),
        ((200, {"results": []}), "0 scores for 4 passages"),
        ((200, {"data": []}), "return a ranking: results: Field required"),
        ((200, {"results": [{"index": 0, "relevance_score": None}]}), "results.0.relevance_score"),
        ((200, b'{"results": [{"index": 0, "relevance_score": NaN}]}'), "finite"),
        ((200, b'{"results": [{"index": 0, "relevance_score": 1e999}]}'), "finite"),
        ((200, {"results": [{"index": -1, "relevance_score": 1}]}), "results.0.index"),
        ((200, {"results": [{"index": i, "relevance_score": i / 9} for i in (0, 1, 2, 2)]}), "not one for each"),
        ((200, {"results": [{"index": i, "relevance_score": i / 9} for i in range(5)]}), "5 scores for 4 passages"),
        ((200, {"results": [{"index": i, "relevance_score": i / 9} for i in (1, 2, 3, 4)]}), "not one for each"),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error_that_names_the_server(stub, ask, answer, said):
    stub.answers = {("POST", "/v1/rerank"): [answer]}
    with pytest.raises(ServerError, match=said) as error:
        ask(f"{stub.url}/v1", api_key="k3y", retry_seconds=2)
    assert str(error.value).startswith(stub.url) and "k3y" not in str(error.value)


def test_the_same_score_for_all_is_an_error(stub, ask):
    results = [{"index": i, "relevance_score": 0.5} for i in range(4)]
    stub.answers = {("POST", "/v1/rerank"): [(200, {"results": results})]}
    with pytest.raises(InvalidData, match="scored every passage the same"):
        ask(f"{stub.url}/v1")
    assert ask(f"{stub.url}/v1", ["same"] * 4).values == (0.5,) * 4


def test_an_answer_that_is_too_large_is_not_read(stub, ask, monkeypatch):
    monkeypatch.setattr(remote, "MOST_BYTES", 1 << 20)
    stub.answers = {("POST", "/v1/rerank"): [(200, b" " * (2 << 20))]}
    with pytest.raises(ServerError, match="larger than 1 MiB"):
        ask(f"{stub.url}/v1")


def test_a_server_that_is_not_there(ask, no_server):
    with pytest.raises(ServerError, match=r"can't be reached: the connection was refused.*Is it running"):
        ask(no_server, retry_seconds=0.5)


def test_a_server_that_hangs(ask):
    # It takes the connection and says nothing.
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        pytest.raises(ServerError, match=r"did not answer within 0\.3 s"),
    ):
        ask(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", timeout=0.3)


def test_a_server_that_hangs_costs_two_timeouts_and_not_one_for_each_query(stub, monkeypatch):
    goes_on, tries = threading.Event(), []
    once = RemoteReranker._request
    monkeypatch.setattr(RemoteReranker, "_request", lambda self, *given: tries.append(given) or once(self, *given))

    def answer(body: Any) -> Answer:
        goes_on.wait()
        return cohere(body)

    stub.answers = {("POST", "/v1/rerank"): [cohere, answer]}
    ask = RemoteReranker(f"{stub.url}/v1")
    ask(QUERY, PASSAGES)
    ask._timeout = 0.3
    for _ in range(5):
        with pytest.raises(ServerError, match=r"did not answer within 0\.3 s"):
            ask(QUERY, PASSAGES)
        ask._left_alone.until *= 2  # whatever time this machine takes
    goes_on.set()
    assert len(tries) == 1 + 2
    ask._timeout, ask._left_alone.until = 60, 0
    assert ask(QUERY, PASSAGES).values and ask(QUERY, PASSAGES).values


def test_a_server_that_stays_busy_is_waited_for_once(stub):
    stub.answers = {("POST", "/v1/rerank"): [cohere, (503, b"")]}
    ask = RemoteReranker(f"{stub.url}/v1", retry_seconds=1)
    ask(QUERY, PASSAGES)
    asked = []
    for _ in range(3):
        with pytest.raises(ServerError, match=r"refused \(503\)"):
            ask(QUERY, PASSAGES)
        ask._left_alone.until *= 2  # whatever time this machine takes
        asked.append(len(stub.bodies("/v1/rerank")))
    assert asked[0] >= 2 and asked[1:] == asked[:1] * 2


def test_hostile_text_is_sent(stub, ask):
    stub.answers = {("POST", "/v1/rerank"): [cohere]}
    passages = ["\x00", "\ud800", "é\u2028😀"]
    ask(f"{stub.url}/v1", passages)
    assert stub.bodies("/v1/rerank")[0]["documents"] == ["\x00", "\ufffd", "é\u2028😀"]


# -- the sidecar


@pytest.fixture
def words() -> Iterator[tuple[str, WordScorer]]:
    pytest.importorskip("fastapi", reason="the server extra is not installed")
    from ccheck.rerank.server.app import create_app
    from ccheck.rerank.server.guard import Access, Limits

    scorer = WordScorer()
    with running(create_app("words", scorer, Limits(texts=3), Access("k3y"))) as url:
        yield url, scorer


def test_the_sidecar(words, ask):
    url, scorer = words
    passages = [*PASSAGES, "sea " * 9]
    scores = ask(url, passages, api_key="k3y")
    assert scores.values == tuple(scorer.expected(QUERY, passage) for passage in passages)
    assert scores.logits and scores.cut == (False, False, False, False, True)
    assert list(map(len, scorer.batches)) == [3, 2]
    for path in ("/v1/rerank", "/v2/rerank"):
        other = ask(url + path, passages[2:], api_key="k3y")
        assert other.values == pytest.approx(scores.normalized[2:]) and other.cut == scores.cut[2:]
    with pytest.raises(ServerError, match=r"the key is missing or wrong.*CCHECK_RERANK_API_KEY"):
        ask(url, passages)
    with pytest.raises(ServerError, match="no model 'x' here"):
        ask(f"{url}?model=x", passages, api_key="k3y")


def test_a_server_that_stays_away_is_waited_for_once(monkeypatch):
    pytest.importorskip("fastapi", reason="the server extra is not installed")
    from ccheck.rerank.server.app import create_app

    monkeypatch.setattr(http, "FIRST_SECONDS", 0.0)
    tries = []
    once = RemoteReranker._request
    monkeypatch.setattr(RemoteReranker, "_request", lambda self, *given: tries.append(given) or once(self, *given))
    with running(create_app("words", WordScorer())) as url:
        ask = RemoteReranker(f"{url}/v1/rerank", retry_seconds=3)
        assert len(ask("sea level", TEXTS[:3]).values) == 3
    for least, most in ((2, 100), (0, 0), (1, 1)):
        tries.clear()
        if least == 1:
            ask._left_alone.until = 0
        with pytest.raises(ServerError, match="can't be reached"):
            ask("sea level", TEXTS[:3])
        assert least <= len(tries) <= most
