"""The sidecar over real HTTP: every dialect, limits, load, and callers that behave badly."""

import base64
import functools
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from rerank_servers import LONG, QUERY, TEI_BODY

from ccheck.rerank import sigmoid

pytest.importorskip("fastapi", reason="the server extra is not installed")

from ccheck.rerank.server import app as app_module
from ccheck.rerank.server import service as service_module
from ccheck.rerank.server.dialects import CUT, listed
from ccheck.rerank.server.guard import Access


def test_tei(words):
    answer = words.post("/rerank", {**TEI_BODY, "raw_scores": True})
    expected = [words.scorer.expected(QUERY, text) for text in TEI_BODY["texts"]]
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json() == [{"index": i, "score": expected[i]} for i in (2, 1, 0)]
    for body in (TEI_BODY, {**TEI_BODY, "raw_scores": False}):
        scores = [item["score"] for item in words.post("/rerank", body).json()]
        assert scores == [sigmoid(expected[i]) for i in (2, 1, 0)]
    answer = words.post("/rerank?raw_scores=true", TEI_BODY).json()
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
    body = {"model": "words", "query": QUERY, "documents": ["tea", {"text": QUERY}, "the sea"], "top_n": 2}
    body |= {"return_documents": False, "max_chunks_per_doc": 5}  # as Elasticsearch's service for Cohere sends it
    answer = words.post(path, body).json()
    expected = [sigmoid(words.scorer.expected(QUERY, text)) for text in ("tea", QUERY, "the sea")]
    assert answer["results"] == [{"index": i, "relevance_score": expected[i]} for i in (1, 2)]
    assert answer["meta"]["api_version"]["version"] == version and answer["id"]
    assert answer["model"] == "words" and answer["usage"]["total_tokens"] > 0
    answer = words.post(path, {**body, "return_documents": True}).json()
    assert [result["document"] for result in answer["results"]] == [{"text": QUERY}, {"text": "the sea"}]
    assert len(words.post(path, {"query": QUERY, "documents": ["tea", "sea", "ice"]}).json()["results"]) == 3


def test_long_texts_are_cut_and_said_to_be(serve):
    served = serve()
    body = {"query": "sea", "texts": ["tea", LONG, LONG, "x", LONG]}
    answer = served.post("/rerank", body)
    assert answer.status_code == 200 and answer.headers[CUT] == "1,2,4"
    assert CUT not in served.post("/rerank", TEI_BODY).headers
    answer = served.post("/v1/rerank", {"query": "sea", "documents": body["texts"]}).json()
    assert "1,2,4" in answer["meta"]["warnings"][0]
    assert served.metrics["ccheck_texts_cut_total"] == 6


def test_a_header_is_not_longer_than_clients_take():
    assert listed([0, 1, 7]) == "0,1,7" and listed([], 10) == ""
    assert listed(range(1000), 20) == "0,1,2,3,4,5,6,7,8,9"


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
    with pytest.raises(cohere.NotFoundError, match="available: words"):
        client.rerank(**(given | {"model": "other"}))
    with pytest.raises(cohere.UnauthorizedError):
        make(api_key="wrong").rerank(**given)


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
        ("/rerank", '{"query": "a", "texts": ["nan"]}', 424, "not finite"),
        ("/rerank", '{"query": "a", "texts": ["boom"]}', 424, "RuntimeError"),
        ("/v1/rerank", '{"query": "a", "documents": [{"image": "b"}]}', 422, "documents.0"),
        ("/v1/rerank", '{"query": "a", "documents": ["b"], "top_n": 0}', 422, "top_n"),
        ("/v2/rerank", '{"query": "a", "documents": ["nan"]}', 500, "not finite"),
        ("/v2/rerank", '{"query": "a", "documents": ["boom"]}', 500, "RuntimeError"),
        ("/rerank", "[" * 100_000, 422, "recursion"),
    ],
)
def test_errors_are_in_the_callers_dialect(words, caplog, path, body, status, said):
    caplog.set_level(logging.CRITICAL)
    answer = words.client.post(path, content=body, headers={"Content-Type": "application/json"})
    error = answer.json()
    message = error[{"/rerank": "error", "/v1/rerank": "message", "/v2/rerank": "detail"}[path]]
    assert answer.status_code == status and said in message, error
    if path == "/rerank":
        assert error["error_type"] == ("Backend" if status == 424 else "Validation")


def test_a_body_that_is_not_json_is_refused_before_it_is_read(words):
    for headers in (
        {"Content-Type": "text/plain"},
        {},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ):
        answer = words.client.post("/rerank", content=json.dumps(TEI_BODY), headers=headers)
        assert answer.status_code == 415 and answer.json()["error_type"] == "Validation"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_told_so(serve, chunked):
    served = serve(body=100_000)
    data = json.dumps({**TEI_BODY, "texts": ["sea " * 50_000] * 20}).encode()
    content = iter([data[i : i + 65536] for i in range(0, len(data), 65536)]) if chunked else data
    answer = served.client.post("/rerank", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413 and "100,000 bytes" in answer.json()["error"]
    assert served.post("/rerank", TEI_BODY).status_code == 200  # also on the same connection


def test_too_many_texts_are_refused_and_what_is_long_is_cut(serve):
    served = serve(texts=5, characters=50)
    answer = served.post("/rerank", {"query": "a", "texts": ["b"] * 6})
    assert answer.status_code == 413 and "at most 5" in answer.json()["error"]
    for query, second, cut in (("sea " + "a" * 60, "tea", "0,1"), ("sea", "tea " * 20, "1")):
        answer = served.post("/rerank", {"query": query, "texts": ["the sea", second]})
        assert answer.status_code == 200 and answer.headers[CUT] == cut
        assert [item["index"] for item in answer.json()] == [0, 1]


def test_a_key_is_asked_for(serve, caplog):
    caplog.set_level(logging.DEBUG)
    served = serve(key="s3cret-é")
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic s3cret-é".encode()},
        {"Authorization": "s3cret-é".encode()},
        {"Authorization": "Basic " + base64.b64encode("s3cret-é:wrong".encode()).decode()},
        {"X-API-Key": "wrong"},
        {"api-key": ""},
    ):
        for method, path in (("POST", "/rerank"), ("POST", "/v1/rerank"), ("GET", "/info"), ("GET", "/metrics")):
            answer = served.client.request(method, path, json=TEI_BODY, headers=headers)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            assert "s3cret" not in answer.text
    assert served.client.get("/health").status_code == 200
    for headers in (
        {"Authorization": "Bearer s3cret-é".encode()},
        {"Authorization": "Basic " + base64.b64encode("elastic:s3cret-é".encode()).decode()},
        {"X-API-Key": "s3cret-é".encode()},
        {"api-key": "s3cret-é".encode()},
    ):
        assert served.client.post("/rerank", json=TEI_BODY, headers=headers).status_code == 200
        assert served.client.get("/metrics", headers=headers).status_code == 200
        assert served.client.get("/info", headers=headers).status_code == 200
    assert "s3cret" not in caplog.text + repr(Access("s3cret-é"))


PAGE = (Path(__file__).parents[2] / "docs" / "rerank-server.md").read_text(encoding="utf-8")
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
