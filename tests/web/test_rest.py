"""REST over a real port: checks, events, corrections, what is refused, and OpenAPI."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from paths import ROOT
from rerank_servers import TEI_BODY, WordScorer, wait_until
from web_servers import CLAIM, KEYS, PAPERS, web_server

from ccheck.core import errors
from ccheck.core.errors import ServerError, UsageError
from ccheck.service import Check, Correction
from ccheck.service.record import FileRecord
from ccheck.web import shared as web_shared
from ccheck.web.access import keys_from
from ccheck.web.client import error_of
from ccheck.web.page import hide
from ccheck.web.problems import json_text, problem_of
from ccheck.web.shared import Limits


def problem(answer: httpx.Response, status: int, type_: str | None = None) -> str:
    """The detail of a problem, which has the shape of RFC 9457."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert set(said) == {"type", "title", "status", "detail"} and said["status"] == status
    assert said["type"] == ("about:blank" if type_ is None else f"urn:ccheck:{type_}")
    return str(said["detail"])


def events_of(text: str) -> list[tuple[str, Any]]:
    blocks = [[line for line in block.splitlines() if line[0] != ":"] for block in text.split("\n\n")]
    found = (dict(line.split(": ", 1) for line in lines) for lines in blocks if lines)
    return [(one["event"], json.loads(one["data"])) for one in found]


def test_a_quick_check_is_answered_at_once_and_found_again(web):
    check = web.check()
    assert check["status"] == "done" and check["result"]["verdict"]["label"] == "CONFLICTING"
    assert {one["doc_id"]: one["stance"]["label"] for one in check["result"]["evidence"]}["gauge"] == "REFUTES"
    assert web.check()["created"] == check["created"] != web.check(fresh=True)["created"]
    assert web.client.get(f"/v1/checks/{check['id']}").json()["claim"] == CLAIM
    assert check["id"] in {one["id"] for one in web.client.get("/v1/checks", params={"search": "risen"}).json()}


def test_a_recorded_check_is_sent_as_it_was_kept_but_for_what_an_error_advises(tmp_path):
    verdict = {"label": "SUPPORTS", "error": None, "reason": "one_side"}
    answer = {"claim": {"id": None, "text": "é ☃"}, "verdict": verdict, "warnings": [], "evidence": []}
    advice = "no vectors: run ccheck ingest again."
    hide(tmp_path)
    with FileRecord(tmp_path / "record") as record:
        for warnings in ([], [advice]):
            result = answer | {"warnings": warnings}
            record.put(made := Check(id="1" * 16, claim="é ☃", status="done", result=result, user=f"{tmp_path}/"))
            for _ in range(2):
                kept = record.get([made.id])[made.id]
                assert kept.text is not None and (again := replace(kept)).text is None
                assert json_text(kept) == json_text(again) == json_text(kept.to_dict())
                assert str(tmp_path) not in json_text(kept) and "ccheck ingest" not in json_text(kept)
                record.correct(Correction(made.id, "wrong verdict", label="REFUTES", note='"no"'))
            assert len(json.loads(json_text(kept))["corrections"]) == 1 + 2 * bool(warnings)


def test_what_is_recorded_spends_no_tokens_again(serve_web):
    service = (web := serve_web(tokens=50, checks=3)).web.service  # the first, and two files
    made = service.find(web.check()["id"])
    used = {**made.result, "usage": {"llm_calls": 1, "prompt_tokens": 100, "completion_tokens": 1, "cached": 0}}
    assert service.record.put(replace(made, result=used)).tokens == 101
    for _ in range(2):
        assert web.check()["result"]["usage"]["prompt_tokens"] == 100
        many = web.client.post("/v1/checks/many", content=CLAIM)
        assert many.status_code == 200 and json.loads(many.text)["id"] == made.id


def test_the_tokens_of_a_file_count_as_it_goes(serve_web, monkeypatch):
    monkeypatch.setattr(Check, "tokens", 40)
    web = serve_web(tokens=50)
    sent = "\n".join(f"The {name} stood at a record level" for name in ("gauge", "river", "lake", "sea", "tide"))
    *checks, last = map(json.loads, web.client.post("/v1/checks/many", content=sent).text.splitlines())
    assert len(checks) == 2 and last["status"] == 429 and " h" in last["detail"]
    assert web.client.post("/v1/checks", json={"claim": "another"}).status_code == 429
    few = serve_web(tokens=50).client.post("/v1/checks/many", content="The moon is round\nThe sun is round")
    assert ["id" in json.loads(one) for one in few.text.splitlines()] == [True] * 2  # nothing is left to refuse


def test_a_file_on_the_page_ends_where_no_tokens_are_left(serve_web, monkeypatch):
    monkeypatch.setattr(Check, "tokens", 40)
    web = serve_web(tokens=50)
    sent = "\n".join(f"Sea number {number} stood at a record level" for number in range(40))
    path = web.send("/files", {}, files={"file": ("c.txt", sent)}).url.path
    (job,) = web.web.jobs.files.values()
    wait_until(lambda: not job.running)
    assert "too many tokens" in str(job.error) and 2 <= job.done < 40
    assert "Too many tokens" in web.page(path).words


def test_a_slow_check_is_accepted_and_tells_what_happens(serve_web):
    web = serve_web()
    web.judge.go.clear()
    answer = web.client.post("/v1/checks", json={"claim": CLAIM, "wait": 0.1})
    assert answer.status_code == 202 and answer.json()["status"] == "running"
    place = answer.headers["location"]
    assert web.judge.busy.wait(60)
    assert web.client.get(place).json()["status"] == "running"
    again = web.client.post("/v1/checks", json={"claim": CLAIM, "wait": 0})
    assert again.headers["location"] == place and len(web.web.jobs.checks) == 1
    with web.client.stream("GET", f"{place}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        web.judge.go.set()
        events = events_of(stream.read().decode())
    kinds = [kind for kind, _ in events]
    assert kinds[0] == "queries" and kinds[-2:] == ["verdict", "done"] and {"hits", "stance"} <= set(kinds)
    assert events[-1][1]["id"] == answer.json()["id"]
    assert ("gauge", "REFUTES") in [(data["doc_id"], data["label"]) for kind, data in events if kind == "stance"]
    kind, data = events_of(web.client.get(f"{place}/events").text)[-1]
    assert kind == "done" and data["check"] == data["id"]  # of the record, or still of the job


def test_a_stream_that_was_lost_goes_on_where_it_was_and_stays_open_with_nothing_to_say(serve_web, monkeypatch):
    for room in ("jobs", "rest"):
        monkeypatch.setattr(f"ccheck.web.{room}.KEEP_ALIVE", 0.05)
    web = serve_web()
    place = web.held()
    with web.client.stream("GET", f"{place}/events", headers={"Last-Event-ID": "0"}) as stream:
        assert stream.headers["x-accel-buffering"] == "no"
        lines = stream.iter_lines()
        seen = [next(lines)]
        while seen[-1] != ": waiting":
            seen.append(next(lines))
        web.judge.go.set()
        assert "event: queries" not in seen and "event: verdict" in lines
    web.judge.go.clear()
    with web.client.stream("POST", "/v1/checks/many", content="Seas rise.\nIt rose.") as stream:
        pieces = stream.iter_text()
        assert next(pieces) == " " and stream.headers["x-accel-buffering"] == "no"
        web.judge.go.set()
        assert [json.loads(one)["status"] for one in "".join(pieces).splitlines()] == ["done"] * 2


def test_checks_at_once_are_limited_while_others_go_on_and_can_be_stopped(serve_web):
    web = serve_web(at_once=1)
    place = web.held()
    assert "wait for one" in problem(web.client.post("/v1/checks", json={"claim": "Ice.", "wait": 0}), 429)
    assert web.client.get("/v1/documents/sea").status_code == 200  # nobody waits for the judge
    assert web.client.delete(place).status_code == 202
    web.judge.go.set()
    events = events_of(web.client.get(f"{place}/events", headers={"Last-Event-ID": "99"}).text)
    assert events[-1][0] == "error" and "stopped" in events[-1][1]["detail"] and events[-1][1]["check"] in place


def test_who_stops_a_check_stops_it_for_nobody_else_and_hides_no_answer(serve_web):
    web = serve_web(keys=KEYS, at_once=1)
    anna, other = ({"Authorization": f"Bearer {key}"} for key in ("anna-0123456789ab", "checker-012345678"))
    sent: dict[str, Any] = {"claim": CLAIM, "wait": 0}
    web.judge.go.clear()
    place, _ = (web.client.post("/v1/checks", json=sent, headers=one).headers["location"] for one in (anna, other))
    assert [web.client.delete(place, headers=anna).status_code for _ in range(2)] == [202, 404]
    assert web.client.post("/v1/checks", json=sent | {"claim": "Ice."}, headers=anna).status_code == 202
    web.judge.go.set()
    assert web.client.post("/v1/checks", json=sent | {"wait": 30}, headers=other).json()["status"] == "done"
    web.judge.go.clear()
    web.client.post("/v1/checks", json=sent | {"fresh": True}, headers=other)
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(web.client.post, "/v1/checks", json=sent | {"fresh": True, "wait": 30}, headers=other)
        wait_until(lambda: web.web.jobs.checks[place[-16:]]._changed._waiters)
        assert web.client.delete(place, headers=other).status_code == 202
        assert "stopped" in problem(waits.result(60), 409, "Incomplete")
    assert web.client.get(place, headers=anna).json()["status"] == "done"


def test_many_claims_come_back_in_order_and_a_body_that_is_not_json_is_told_what_to_send(web):
    body = f"{json.dumps({'claim': CLAIM})}\n...\n\n{json.dumps({'claim': 'The sea is a lake.', 'id': 7})}\n"
    answer = web.client.post("/v1/checks/many", params={"k": 1}, content=body)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    checks = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["status"] for one in checks] == ["done", "failed", "done"] and checks[1]["problem"] == "InvalidData"
    assert checks[2]["result"]["claim"] == {"id": "7", "text": "The sea is a lake."}
    table = web.client.post("/v1/checks/many", params={"k": 1, "name": "../x.csv"}, content=f"qid,text\nq1,{CLAIM}\n")
    assert [json.loads(line)["result"]["claim"]["id"] for line in table.text.splitlines()] == ["q1"]
    assert "claims.txt has no claims" in problem(web.client.post("/v1/checks/many", content=""), 422, "InvalidData")
    form = web.client.post("/v1/checks", data={"claim": "x"})  # as curl -d sends it
    assert "Content-Type: application/json" in problem(form, 422, "InvalidData")
    broken = web.client.post("/v1/checks", content='{"claim":', headers={"Content-Type": "application/json"})
    assert "not valid JSON at character 9" in problem(broken, 422, "InvalidData")
    broken = web.client.post("/v1/checks", content=b'{"claim":"\xe9"}', headers={"Content-Type": "application/json"})
    assert problem(broken, 422, "InvalidData") == "the body: not valid UTF-8 at byte 11"


def test_corrections_stand_beside_the_answer_and_become_pairs(serve_web):
    check = (web := serve_web()).check()
    place = f"/v1/checks/{check['id']}/corrections"
    sent = {"what": "wrong stance", "doc_id": "ice", "label": "REFUTES", "note": "lakes", "user": "eve"}
    after = web.client.post(place, json=sent).json()
    assert after["result"] == check["result"]
    assert after["corrections"][0]["label"] == "REFUTES" and after["corrections"][0]["user"] == "eve"
    exported = web.client.get("/v1/corrections")
    pair = json.loads(exported.text)
    pair = pair["claim"], pair["doc_id"], pair["label"], exported.headers.get("Ccheck-Notice")
    assert pair == (CLAIM, "ice", "REFUTES", None)
    web.web.service.checker.store.delete(["ice"])
    assert web.client.get("/v1/corrections").headers["Ccheck-Notice"] == "left out: 1 whose document is gone"
    for wrong in {"doc_id": "nobody"}, {"what": "not relevant"}:
        assert problem(web.client.post(place, json=sent | wrong), 400, "UsageError")
    assert "query.q: Extra" in problem(web.client.get("/v1/checks?q=sugar"), 422, "InvalidData")
    assert "query.year: Extra" in problem(web.client.get("/v1/search?query=sugar&year=2010"), 422, "InvalidData")
    assert "'nope' is no label" in problem(web.client.get("/v1/checks?label=nope"), 400, "UsageError")
    assert problem(web.client.post("/v1/checks/0123456789abcdef/corrections", json=sent), 404, "NotFound")


def test_the_collection(web):
    found = web.client.get("/v1/search", params={"query": "sea ice", "k": 1, "filters": "year>=2016"}).json()
    assert [(one["doc_id"], one["stance"], bool(one["sentences"])) for one in found["hits"]] == [("ice", None, True)]
    assert "sea ice" not in {one["claim"] for one in web.client.get("/v1/checks").json()}, "a search is no check"
    assert web.client.get("/v1/documents/sea").json()["text"] == PAPERS[0]["text"]
    assert problem(web.client.get("/v1/documents/no/such"), 404, "NotFound")
    (one,) = web.client.get("/v1/collections").json()
    assert one["documents"] == 3 and one["ready"] is True and one["fields"]["year"] == "numbers"
    assert {"bm25", "default"} <= {*one["recipes"]} and not {"dense", "checkthat-4b"} & {*one["recipes"]}
    assert "default" in {one["name"] for one in web.client.get("/v1/recipes").json()}
    assert web.client.get("/health").json() == {"status": "ok"} and web.client.get("/ready").status_code == 200
    assert [web.client.head(one).status_code for one in ("/", "/home", "/health", "/ready")] == [200] * 4
    assert 'ccheck_web_requests_total{path="/health"' in web.client.get("/metrics").text


WRONG = [({"claim": "x", "k": 0}, "k: "), ({"claim": "x", "kk": 1}, "kk: "), ({"claim": " "}, "claim: "), ([], "")]
WRONG += [({"claim": "x", "recipe": "../../etc"}, "not a packaged recipe")]
WRONG += [({"claim": "x", "recipe": "climatecheck-hybrid"}, "can't run here. Choose another, or have the papers")]


@pytest.mark.parametrize(("body", "said"), [*WRONG, ({"claim": "x", "filters": ["yeer>=2010"]}, "yeer")])
def test_what_is_wrong_with_a_request_is_said(web, body, said):
    wrong = (400, "UsageError") if {"recipe", "filters"} & set(body) else (422, "InvalidData")
    assert said in problem(web.client.post("/v1/checks", json=body), *wrong)
    if wrong[0] == 400:
        how = {name: value for name, value in body.items() if name != "claim"}
        assert said in problem(web.client.post("/v1/checks/many", params=how, content="x"), *wrong)
        assert web.send("/files", how, files={"file": ("c.txt", "x")}).status_code == 400 and not web.web.jobs.files


def test_ready_finds_out_that_the_store_is_gone_and_loads_it_with_one_look_at_a_time(serve_web, monkeypatch):
    web = serve_web()
    wait_until(lambda: not web.web.loading)
    store, looks = web.web.service.checker.store, []
    monkeypatch.setattr(web_shared, "LOOKED_FOR", 600)
    monkeypatch.setattr(store, "count", lambda: looks.append(1) or 3)
    assert [web.client.get("/ready").status_code for _ in range(3)] == [200] * 3 and len(looks) == 1
    monkeypatch.setattr(store, "count", Mock(side_effect=ServerError("the cluster is gone")))
    assert web.client.get("/ready").status_code == 200
    web.web.look_at = 0
    assert "the cluster is gone" in problem(web.client.get("/ready"), 503)


def test_a_server_that_stops_finishes_the_checks_that_run(tmp_path):
    with web_server(tmp_path) as start:
        web = start()
        place = web.held()
        threading.Timer(0.5, web.judge.go.set).start()
    with web_server(tmp_path) as start:
        assert start(papers=None).client.get(place).json()["status"] == "done"


def test_keys_have_rights(serve_web):
    web = serve_web(keys=KEYS)

    def asked(key: str, method: str, path: str, body: Any = None) -> int:
        return web.client.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"}).status_code

    assert "Authorization" in problem(web.client.get("/v1/collections"), 401)
    assert web.client.get("/v1/collections").headers["www-authenticate"] == "Bearer"
    assert {asked("reader-0123456789", "GET", path) for path in ("/v1/collections", "/metrics")} == {200}
    assert asked("reader-0123456780", "GET", "/v1/collections") == 401
    assert asked("reader-0123456789", "POST", "/v1/checks", {"claim": CLAIM}) == 403
    assert asked("checker-012345678", "POST", "/v1/checks", {"claim": CLAIM, "wait": 30}) == 200
    assert asked("checker-012345678", "GET", "/v1/checks") == 403
    (check,) = web.client.get("/v1/checks", headers={"Authorization": "Bearer anna-0123456789ab"}).json()
    assert check["user"] == "checker"
    assert asked("anna-0123456789ab", "POST", "/v1/checks", {"claim": "Ice.", "wait": 30}) == 200
    for path in ("", "/events"):  # its own, and no other
        for id_, status in ((check["id"], 200), (web.web.service.checks()[0].id, 403)):
            assert asked("checker-012345678", "GET", f"/v1/checks/{id_}{path}") == status
            wrong = {"what": "wrong verdict", "label": "REFUTES"}
            assert asked("checker-012345678", "POST", f"/v1/checks/{id_}/corrections", wrong) == status
    assert [asked("no", "GET", path) for path in ("/metrics", "/health", "/ready")] == [401, 200, 200]


@pytest.mark.parametrize("given", ["anna", "anna:read:short", "anna:all:0123456789abcdef", "a b:read:0123456789abcdef"])
def test_keys_that_are_not_written_well_are_refused_and_not_shown(given):
    with pytest.raises(UsageError) as refused:
        keys_from(given)
    assert "0123456789abcdef" not in str(refused.value) and "CCHECK_API_KEYS" in str(refused.value)


def test_limits_are_counted_by_caller(serve_web):
    web = serve_web(keys=KEYS, checks=2, requests=50)
    anna = {"Authorization": "Bearer anna-0123456789ab"}
    for number, status in enumerate((200, 200, 429)):
        assert web.client.post("/v1/checks", json={"claim": f"{CLAIM} {number}"}, headers=anna).status_code == status
    other = {"Authorization": "Bearer checker-012345678"}
    assert web.client.post("/v1/checks/many", content="one\ntwo\nthree\n", headers=other).status_code == 200
    assert web.client.post("/v1/checks", json={"claim": CLAIM}, headers=other).status_code == 429  # three were counted
    refused = web.client.post("/v1/checks", json={"claim": "x"}, headers=anna)
    assert "too many checks" in problem(refused, 429) and int(refused.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        *((421, {"Host": "evil.example"}), (200, {"Origin": "https://a.example", "Sec-Fetch-Site": "same-origin"})),
        *((403, {"Origin": one}) for one in ("https://evil.example", "null", "http://127.0.0.1:1", "https://x:y")),
        *((403, {"Sec-Fetch-Site": one}) for one in ("same-site", "cross-site")),
        (403, {"Origin": "https://evil.example", "Sec-Fetch-Site": "none"}),
        (403, {"Origin": "http://localhost", "Host": "localhost:443"}),
        (200, {"Origin": "https://localhost", "Host": "localhost:443"}),
    ],
)
def test_pages_of_other_sites_can_not_ask(web, status, headers):
    answer = web.client.post("/v1/checks", json={"claim": CLAIM, "wait": 30}, headers=headers)
    assert answer.status_code == status and (status != 403 or headers.get("Origin", "Host is 127.") in answer.text)
    if status != 421:
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("length", [True, False])
def test_a_body_that_is_too_large_is_refused(serve_web, length):
    web = serve_web(limits=Limits(body=2000, timeout=20))
    body = [b'{"claim": "', *[b"x" * (1 << 20)] * 8, b'"}']
    with closing(HTTPConnection(web.url.removeprefix("http://"))) as sends_all:  # before it reads
        sends_all.request("POST", "/v1/checks", b"".join(body) if length else iter(body), {"Connection": "close"})
        assert (answer := sends_all.getresponse()).status == 413 and b"2,000 bytes" in answer.read()


@pytest.mark.parametrize("name", ["UsageError", "NotFound", "InvalidData", "ServerError", "Incomplete"])
def test_a_client_gets_the_error_that_the_server_had(name):
    kind = getattr(errors, name)
    back = error_of(problem_of(kind("why")).to_dict())
    assert type(back) is kind and str(back) == "why"
    assert isinstance(error_of({"type": "urn:ccheck:redact", "detail": "x"}), errors.ServerError)


def test_a_reranker_is_served_beside_it_for_who_may_check(tmp_path):
    from ccheck.rerank.server.app import create_app
    from ccheck.rerank.server.guard import Limits as RerankLimits

    def app() -> Any:
        return create_app("words", WordScorer(), RerankLimits(body=3 << 20), None)

    def asked(web: Any, body: Any, **headers: str) -> httpx.Response:
        return web.client.post("/reranker/rerank", json=body, headers=headers)

    with web_server(tmp_path) as start:
        web = start(reranker=(reranker := app()))
        reranker.state.service.stop = stop = Mock(wraps=reranker.state.service.stop)
        assert [one["index"] for one in asked(web, TEI_BODY).json()] == [2, 1, 0]
        assert asked(web, TEI_BODY, Host="evil.example").status_code == 421
        for size, status in ((2 << 20, 200), (4 << 20, 413)):
            assert asked(web, TEI_BODY | {"texts": ["x" * size]}).status_code == status
        assert web.client.get("/reranker/info").json()["model_id"] == "words" and web.check()["status"] == "done"
    stop.assert_called_once()
    with web_server(tmp_path) as start:
        web = start(reranker=app(), keys=KEYS, papers=None)
        for key, status in (("reader-0123456789", 403), ("checker-012345678", 200), ("no", 401)):
            assert asked(web, TEI_BODY, Authorization=f"Bearer {key}").status_code == status
        assert asked(web, TEI_BODY, Host="name.example", Authorization="Bearer checker-012345678").status_code == 200


def test_openapi_is_the_one_that_is_documented_and_leads_nowhere_that_is_not_there(web):
    schema, text = web.client.get("/openapi.json").json(), (ROOT / "docs/openapi.json").read_text(encoding="utf-8")
    assert schema == json.loads(text), "run python3 scripts/openapi.py"
    names = set(schema["components"]["schemas"])
    said = {
        f"{method} {path}": {*"409 500 501 507".split()} & way[method]["responses"].keys()
        for path, way in schema["paths"].items()
        for method in way
    }
    assert all("500" in one and ("501" in one) == (" /v1/" in route) for route, one in said.items())
    assert {route for route, one in said.items() if "409" in one} == {"post /v1/checks", "get /v1/search"}
    assert [route for route, one in said.items() if "507" in one] == ["post /v1/checks/many"]
    assert schema["openapi"].startswith("3.1") and "HTTPValidationError" not in text
    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} <= names


def test_behind_a_proxy_the_public_address_is_taken_and_shown(serve_web):
    web = serve_web(settings={"public_url": "https://facts.example", "verdict": "none"})
    for origin, status in (("https://facts.example:443", 200), ("http://facts.example", 403)):
        assert web.client.post("/v1/checks", json={"claim": CLAIM}, headers={"Origin": origin}).status_code == status
    address = f"/checks/{web.check()['id']}"
    assert f'value="https://facts.example{address}"' in web.browser.get(address).text
    with pytest.raises(UsageError, match=r"CCHECK_PUBLIC_URL is https://facts.example/ccheck.*without a path"):
        serve_web(settings={"public_url": "https://facts.example/ccheck"}, papers=None)
