"""Rerankers on servers: the sidecar itself, and what others answer, by a server that answers what a test says."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import pytest
from http_stub import Asked, HttpStub, Reply, Scripted, http_stub, next_reply

from ccheck.core import http
from ccheck.core.errors import InvalidData, ServerError, UsageError
from ccheck.rerank.remote import RemoteReranker
from ccheck.rerank.types import WrongKey

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
    results = [
        {"index": i, "relevance_score": len(text) / 100, "document": {"text": text}}
        for i, text in reversed(list(enumerate(body["documents"])))
    ]
    return 200, {"id": "x", "results": results, "meta": {}}


LENGTHS = tuple(map(len, PASSAGES))


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
        *((path, path) for path in ("/v1/rerank", "/v2/rerank", "/rerank")),
        *(("/v1", "/v1/rerank"), ("/proxy/v2/", "/proxy/v2/rerank"), ("", "/v1/rerank"), ("/deep", "/deep/v1/rerank")),
    ],
)
def test_cohere_jina_and_what_speaks_like_them(stub, ask, given, asked):
    stub.answers = {("POST", asked): [cohere]}
    scores = ask(f"{stub.url}{given}?model=rerank-v3.5")
    assert scores.values == tuple(length / 100 for length in LENGTHS) and not scores.logits
    (body,) = stub.bodies(asked)
    sent = {"query": QUERY, "documents": list(PASSAGES), "top_n": 4, "return_documents": False}
    assert body == sent | {"model": "rerank-v3.5"}


def test_values_outside_of_0_to_1_are_logits(stub, ask):
    results = [{"index": i, "relevance_score": 1.5 - i} for i in range(4)]
    stub.answers = {("POST", "/v1/rerank"): [(200, {"results": results})]}
    scores = ask(f"{stub.url}/v1")
    assert scores.logits and scores.normalized[0] == pytest.approx(0.8176, abs=1e-4)
    assert "model" not in stub.bodies("/v1/rerank")[0]


def test_the_name_shows_no_secret():
    reranker = RemoteReranker("https://user:pass@host/rerank?token=abc&model=m", api_key="k3y")
    assert reranker.name == "https://host/rerank?model=m"
    assert reranker(QUERY, []).values == ()
    reranker.close()


@pytest.mark.parametrize("url", ["", "host:80", "ftp://host", "http://", "http://[::1", "http://host:port"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(UsageError, match="URL"):
        RemoteReranker(url)


# -- servers that are busy, gone, or wrong


@pytest.mark.parametrize(
    "trouble",
    [
        *((429, {"error": "busy"}, {"Retry-After": "0"}), (429, {"error": "busy"}), (502, b"<html>"), (504, b""), None),
        (503, b"", {"Retry-After": formatdate(usegmt=True)}),
    ],
)
def test_what_may_pass_is_tried_again(stub, ask, trouble):
    stub.answers = {("GET", "/info"): [trouble, (200, TEI_INFO)], ("POST", "/rerank"): [trouble, trouble, tei]}
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
        ((200, {"data": []}), "return a ranking: results: Field required"),
        ((200, {"results": [{"index": 0, "relevance_score": None}]}), "results.0.relevance_score"),
        *(((200, b'{"results": [{"index": 0, "score": %b}]}' % one), "finite") for one in (b"NaN", b"1e999")),
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
    assert not ask._left_alone.failures, "the next one is the first since it answered"


def test_hostile_text_is_sent(stub, ask):
    stub.answers = {("POST", "/v1/rerank"): [cohere]}
    passages = ["\x00", "\ud800", "é\u2028😀"]
    ask(f"{stub.url}/v1", passages)
    assert stub.bodies("/v1/rerank")[0]["documents"] == ["\x00", "\ufffd", "é\u2028😀"]


def test_the_sidecar(serve, ask):
    pytest.importorskip("fastapi", reason="the server extra is not installed")
    served = serve(texts=3, key="k3y")
    url, scorer = served.url, served.scorer
    passages = [*PASSAGES, "sea " * 9]
    scores = ask(url, passages, api_key="k3y")
    assert scores.values == tuple(scorer.expected(QUERY, passage) for passage in passages)
    assert scores.logits and scores.cut == (False, False, False, False, True)
    assert list(map(len, scorer.batches)) == [3, 2]
    for path in ("/v1/rerank", "/v2/rerank"):
        other = ask(url + path, passages[2:], api_key="k3y")
        assert other.values == pytest.approx(scores.normalized[2:]) and other.cut == scores.cut[2:]
    with pytest.raises(WrongKey, match=r"the key is missing or wrong.*CCHECK_RERANK_API_KEY"):
        ask(url, passages)
    with pytest.raises(ServerError, match="no model 'x' here"):
        ask(f"{url}?model=x", passages, api_key="k3y")


@pytest.mark.parametrize(("busy", "said"), [((503, b""), r"refused \(503\)"), (None, "can't be reached")])
def test_a_server_that_stays_busy_or_away_is_waited_for_once(stub, monkeypatch, busy, said):
    monkeypatch.setattr(http, "FIRST_SECONDS", 0.0)
    tries, once = [], RemoteReranker._request
    monkeypatch.setattr(RemoteReranker, "_request", lambda self, *given: tries.append(given) or once(self, *given))
    stub.answers = {("POST", "/v1/rerank"): [cohere, busy]}
    ask = RemoteReranker(f"{stub.url}/v1", retry_seconds=1)
    assert ask(QUERY, PASSAGES).values
    if busy is None:
        stub.server.stop()
    for least, most in ((2, 100), (0, 0), (1, 1 if busy is None else 100)):
        tries.clear()
        if least == 1:
            ask._left_alone.until = 0
        with pytest.raises(ServerError, match=said):
            ask(QUERY, PASSAGES)
        assert least <= len(tries) <= most
        ask._left_alone.until *= 2  # whatever time this machine takes
