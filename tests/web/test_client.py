"""`ccheck query` with `CCHECK_SERVER`: the same output as without, from a server that has its models loaded."""

import asyncio
import functools
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from cli_runs import ccheck, jsonl
from http_stub import Reply, http_stub
from rerank_servers import Sidecar, wait_until
from scripted_llm import KEY, Said, say, scripted
from web_servers import CLAIM, KEYS, PAPERS, Web, serving

from ccheck import open as open_checker
from ccheck.core.errors import InvalidData, MissingExtra, ServerError, UsageError
from ccheck.core.settings import resolve
from ccheck.service.workers import _error, _said, received, sent
from ccheck.web.client import Server
from ccheck.web.local import connected, listening


@pytest.fixture
def asked(web, monkeypatch):
    monkeypatch.setenv("CCHECK_SERVER", web.url)
    return web


def test_a_query_prints_what_the_server_has(asked, tmp_path):
    said = ccheck("query", CLAIM, "--json", "-k", 2)
    assert said.code == 0, said.err
    (answer,) = said.objects
    checks = asked.client.get("/v1/checks", params={"limit": 200, "search": CLAIM}).json()
    assert answer in [one["result"] for one in checks if one["settings"]["k"] == 2]
    shown = ccheck("query", CLAIM, "-k", 2)
    assert "Tide gauges" in shown.out and "Verdict  CONFLICTING" in shown.out
    assert ccheck("query", CLAIM, "--format", "bibtex").out.startswith("@article{church2015")
    assert ccheck("query", "-", stdin=CLAIM).out == ccheck("query", CLAIM).out


def test_a_file_of_claims_is_checked_there(asked, tmp_path):
    file = tmp_path / "claims.csv"
    file.write_text(f'id,text\nfirst,"{CLAIM}"\nsecond,...\n', encoding="utf-8")
    said = ccheck("query", "--claims", file, "-k", 1)
    assert said.code == 7 and [one["claim"]["id"] for one in said.objects] == ["first", "second"]
    assert said.objects[0]["verdict"]["label"] == "CONFLICTING" and "only marks" in said.objects[1]["error"]
    again = ccheck("query", "--claims", "-", "-k", 1, stdin=json.dumps({"_id": "other", "text": CLAIM}))
    assert again.objects == [said.objects[0] | {"claim": {"id": "other", "text": CLAIM}}]
    assert ccheck("query", "--claims", tmp_path / "no.csv").code == 4


def test_its_errors_have_their_codes(asked, tmp_path, monkeypatch):
    wrong = ccheck("query", CLAIM, "--filter", "yeer>2010")
    assert wrong.code == 2 and "yeer" in wrong.err
    assert ccheck("query", "...").code == 5
    monkeypatch.setenv("CCHECK_SERVER", "http://127.0.0.1:9")
    gone = ccheck("query", CLAIM)
    assert gone.code == 6 and "CCHECK_SERVER" in gone.err and "ccheck serve web" in gone.err
    # With a store of one's own the claim is checked here.
    said = ccheck("query", CLAIM, "--store", tmp_path / "nothing", "--rerank-depth", 1)
    assert said.code == 4 and "not asked because of --rerank-depth, --store" in said.err


def test_the_key_is_sent(serve_web, monkeypatch):
    web = serve_web(keys=KEYS)
    monkeypatch.setenv("CCHECK_SERVER", web.url)
    for said in ("needs a key: set CCHECK_SERVER_KEY", "does not know the key in CCHECK_SERVER_KEY"):
        assert (ran := ccheck("query", CLAIM)).code == 6 and said in ran.err
        monkeypatch.setenv("CCHECK_SERVER_KEY", "another-0123456789")
    monkeypatch.setenv("CCHECK_SERVER_KEY", "checker-012345678")
    # It may check, and not read: the answer comes at once.
    assert ccheck("query", CLAIM).code == 0


def test_a_server_that_is_none_of_ours(monkeypatch):
    for url in ("localhost:8350", "http://127.0.0.1:abc", "http://[::1"):
        with pytest.raises(UsageError, match="write the address"):
            Server(url)
    with http_stub(lambda asked: Reply({"error": "no handler", "status": 400}, 400)) as stub:
        with pytest.raises(ServerError, match=r"status 400\. Is ccheck serve web running"):
            Server(stub.url, "a-key\n").check(CLAIM, {})
        assert stub.asked[0].headers["authorization"] == "Bearer a-key"
        with pytest.raises(UsageError, match="CCHECK_SERVER_KEY contains"):
            Server(stub.url, "ключ")
    for body in (b"[]", b"not json", json.dumps({"id": "x"}).encode()):
        with http_stub(lambda asked, body=body: Reply(body)) as stub, pytest.raises(InvalidData, match="not a ccheck"):
            Server(stub.url).check(CLAIM, {})
    with http_stub(lambda asked: Reply(b"x" * 3000)) as stub, monkeypatch.context() as patch:
        patch.setattr("ccheck.web.client.MOST_BYTES", 2000)
        with pytest.raises(ServerError, match="larger than 2,000 bytes"):
            Server(stub.url).check(CLAIM, {})


def test_why_a_server_can_not_be_asked(certificate, monkeypatch):
    with http_stub(lambda asked: Reply({}), certificate.server) as stub:
        for file, said in (("", "name its CA file in SSL_CERT_FILE"), ("/no.pem", "/no.pem does not exist")):
            monkeypatch.setenv("SSL_CERT_FILE", file)
            with pytest.raises(ServerError, match=f"CCHECK_SERVER: .*{said}") as refused:
                Server(stub.url).check(CLAIM, {})
            assert "running" not in str(refused.value)


def test_an_answer_that_comes_before_all_was_sent_is_read_also_a_proxys():
    def refuse() -> None:
        with listening.accept()[0] as one:
            one.recv(1000)
            one.sendall(b"HTTP/1.1 413 x\r\nconnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as proxy:
        proxy.submit(refuse)
        with pytest.raises(ServerError, match="A proxy takes no file as large"):
            list(Server(f"http://127.0.0.1:{listening.getsockname()[1]}").check_file(b"x" * (16 << 20), "c.txt", {}))


LEAST = ("httpx", "pydantic", "numpy", "sqlite3", "asyncio", "ccheck.core.settings", "ccheck.core.recipe")
"""What a command that asks a server never imports."""


def test_a_server_with_the_same_settings_is_found_and_prints_the_same(with_papers, tmp_path, monkeypatch):
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": "a", "text": CLAIM}, {"_id": "b", "text": "..."})
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    asked = [
        *((CLAIM,), (CLAIM, "--json"), (CLAIM, "--explain"), (CLAIM, "--format", "md"), (CLAIM, "-k", 1)),
        *(("--claims", claims), (CLAIM, "--filter", "yeer>2010"), ("no such word", "--filter", "year>2100")),
    ]
    alone = [told(ccheck("query", *one, *with_papers)) for one in asked]
    with serving(tmp_path / "log", *with_papers) as url:
        (at,) = (runtime / "ccheck").glob("*.sock")
        assert stat.S_IMODE(at.stat().st_mode) == 0o600 and stat.S_IMODE(at.parent.stat().st_mode) == 0o700
        code = f"import sys, ccheck.cli; ccheck.cli.run(sys.argv[1:]); print([m for m in {LEAST} if m in sys.modules])"
        given = [sys.executable, "-c", code, "query", CLAIM, *map(str, with_papers)]
        done = subprocess.run(given, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]" and "Tide gauges" in done.stdout
        asked_before = requests(url)
        for one, before in zip(asked, alone, strict=True):
            assert told(ccheck("query", *one, *with_papers)) == before
        assert requests(url) == asked_before + len(asked)
        for other in (("--recipe", "default"), ("--stance", "nothing")):
            ccheck("query", CLAIM, *with_papers, *other)
        at.parent.chmod(0o755)  # somebody else could have put a server there
        assert told(ccheck("query", CLAIM, *with_papers)) == alone[0]
        assert requests(url) == asked_before + len(asked)
        at.parent.chmod(0o700)
    assert not list((runtime / "ccheck").glob("*.sock"))


def test_of_two_servers_that_start_together_one_has_the_socket(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for _ in range(2):
        with listening({}) as (own,):  # which does not listen yet
            with listening({}) as none:
                assert none == []
            own.listen()
            connected({}).close()
        assert connected({}) is None
        next(tmp_path.glob("ccheck/*.lock")).with_suffix("").touch()  # as if it had been killed


def told(ran):
    """What a command said, but for what differs from run to run."""
    return ran.code, re.sub(r'"timings_ms": \{[^}]*\}', "", ran.out), ran.err


def requests(url):
    said = httpx.get(f"{url}/metrics").text
    return sum(float(one) for one in re.findall(r'requests_total\{path="/v1/checks[^}]*\} (\S+)', said))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_let_in_only_with_keys(host, monkeypatch):
    said = ccheck("serve", "web", "--host", host, "--port", 0)
    assert said.code == 2 and "CCHECK_API_KEYS=" in said.err
    monkeypatch.setenv("CCHECK_API_KEYS", "desk:read:short")
    said = ccheck("serve", "web", "--host", host, "--port", 0)
    assert said.code == 2 and "at least 16" in said.err and "short" not in said.err


def test_it_serves_and_stops(with_papers, tmp_path: Path):
    served = serving(tmp_path / "log", *with_papers)
    with served as url, httpx.Client(base_url=url, timeout=60) as client:
        assert client.post("/v1/checks", json={"claim": CLAIM, "wait": 60}).json()["status"] == "done"
        # It is stopped with an open connection.


@pytest.fixture
def with_model(with_papers, monkeypatch):
    """Words that serve the store with the language model of a server, which may take its time."""

    def words(url: str) -> tuple[object, ...]:
        for name, value in (("OPENAI_BASE_URL", url), ("OPENAI_API_KEY", KEY), ("CCHECK_LLM_TIMEOUT", "600")):
            monkeypatch.setenv(name, value)
        return (*with_papers, "--llm", "m", "--timeout", 0.5)

    return words


def test_it_stops_in_time_while_a_language_model_hangs(with_model, tmp_path: Path):
    with scripted([Said(hang=600)]) as hanging, ThreadPoolExecutor() as callers:
        with serving(tmp_path / "log", *with_model(hanging.url)) as url:  # whose log has no traceback
            send = functools.partial(httpx.post, timeout=60)
            waiting = callers.submit(send, f"{url}/v1/checks", json={"claim": CLAIM, "wait": 60})
            file = Server(url).check_file(b"The sea is a lake.\nIt is salty.", "claims.txt", {})
            streaming = callers.submit(list, file)
            wait_until(lambda: all(one in str(hanging.requests) for one in ("risen by", "is a lake")))
            web = Web(url)
            papers = "".join(json.dumps({"_id": f"{n}", "text": f"The sea of {n}. " * 400}) + "\n" for n in range(300))
            added = web.send("/papers", {}, files=[("file", ("p.jsonl", papers))]).url.path
            wait_until(lambda: "Embedding" in web.page(added).words)  # which takes minutes
            web.browser.close()
        assert waiting.result().status_code == 503
        with pytest.raises(ServerError, match="broke off after 0 claims"):
            streaming.result()
    said = " ".join((tmp_path / "log").read_text().split())
    assert "3 checks were not finished within 0.5 s" in said and "were not finished: send them again" in said


def test_it_stops_as_soon_on_ctrl_c(with_model, tmp_path: Path):
    with scripted([Said(hang=600)]) as hanging:
        server = Sidecar(tmp_path / "log", *with_model(hanging.url), what="web")
        httpx.post(f"{server.url}/v1/checks", json={"claim": CLAIM, "wait": 0})
        wait_until(lambda: "risen by" in str(hanging.requests))
        assert server.stop(signal.SIGINT) == 130


def test_papers_that_are_being_added_stop_with_the_server_and_those_before_stay(serve_web, monkeypatch):
    monkeypatch.setattr("ccheck.ingest.run.BATCH_DOCUMENTS", 1)
    web = serve_web(papers=None)
    store = web.web.service.checker.store
    monkeypatch.setattr(store, "upsert", lambda entries, put=store.upsert: time.sleep(0.1) or put(entries))
    lines = "".join(json.dumps({"_id": f"{number}", "text": f"Tea {number}."}) + "\n" for number in range(300))
    web.send("/papers", {}, files=[("file", ("p.jsonl", lines))])
    (job,) = web.web.jobs.ingests.values()
    asyncio.run_coroutine_threadsafe(web.web.jobs.close(8), job.task.get_loop()).result(60)
    assert "send them again" in str(job.error) and not web.web.jobs.unfinished
    assert 0 < len(found := web.web.service.search("tea", k=100)) < 300 and store.count() == len(found)


def test_servers_over_one_store_share_its_record_and_nothing_that_runs(with_model, tmp_path: Path):
    with scripted(lambda asked: Said(hang=600 if "a pond" in str(asked) else 0)) as llm, ExitStack() as stack:
        asked = (*with_model(llm.url), "--at-once", 1)
        urls = [stack.enter_context(serving(tmp_path / name, *asked)) for name in "ab"]
        first, second = (stack.enter_context(httpx.Client(base_url=url, timeout=60)) for url in urls)

        def post(one: httpx.Client, claim: str, wait: int = 0) -> httpx.Response:
            return one.post("/v1/checks", json={"claim": claim, "wait": wait})

        made = [post(one, f"Sea level rose, {place}.", 60).json()["id"] for place, one in enumerate((first, second))]
        first.post(f"/v1/checks/{made[1]}/corrections", json={"what": "wrong verdict", "label": "REFUTES"})
        history, same = (one.get("/v1/checks").json() for one in (first, second))
        assert history == same and [one["id"] for one in history] == made[::-1]
        assert [len(one["corrections"]) for one in history] == [1, 0]
        running = post(first, "The sea is a pond.")
        assert first.get(running.headers["location"]).json()["status"] == "running"
        assert second.get(running.headers["location"]).status_code == 404
        for claim, status in (("The sea is a pond.", 202), ("It is deep.", 429)):
            assert [post(one, claim).status_code for one in (first, second)] == [status] * 2


def workers_of(server: Sidecar) -> list[psutil.Process]:
    """Once all can check."""
    wait_until(lambda: "ccheck_web_workers 2.0" in httpx.get(f"{server.url}/metrics").text)
    return psutil.Process(server.process.pid).children()


@pytest.fixture
def with_workers(with_model, tmp_path: Path):
    """A server with two workers and a language model, whose answers wait for `go`."""
    go = threading.Event()

    def answer(request: Any) -> Said:
        assert go.wait(60)
        return say({"rationale": "so", "quote": "", "label": "SUPPORTS", "confidence": 0.8})

    with scripted(answer) as llm:
        server = Sidecar(tmp_path / "log", *with_model(llm.url), "--workers", 2, "--events", "--timeout", 8, what="web")
        try:
            yield server, llm, go
        finally:
            go.set()
            server.stop(signal.SIGKILL)


def busy_at(server: Sidecar, llm: Any, act: Callable[[], Any]) -> tuple[Any, psutil.Process]:
    """What an act returns, and the worker that then asks the model; none has an answer of it yet."""
    before = len(llm.requests)
    done = act()
    wait_until(lambda: len(llm.requests) > before)
    (busy,) = (one for one in workers_of(server) if one.net_connections("tcp"))
    return done, busy


def asked_of(server: Sidecar, llm: Any, claim: str) -> tuple[str, psutil.Process]:
    """Where a check is that runs, and the worker that has it."""
    sent = {"claim": claim, "wait": 0}
    place, busy = busy_at(server, llm, lambda: httpx.post(f"{server.url}/v1/checks", json=sent).headers["location"])
    return f"{server.url}{place}", busy


def test_workers_answer_as_one_process_does(with_papers, tmp_path: Path):
    claims = [f"Sea level rose by {number} cm at {place}." for place in ("coasts", "lakes") for number in range(12)]
    content = "\n".join([*claims, "...", claims[0]])
    found = []
    for words in ((), ("--workers", 2)):
        log = tmp_path / f"log {words}"
        with serving(log, *with_papers, "--no-record", *words) as url, httpx.Client(base_url=url, timeout=60) as client:
            wait_until(lambda client=client: client.get("/ready").status_code == 200)
            single = client.post("/v1/checks", json={"claim": CLAIM, "wait": 60, "filters": ["year>=2010"]}).json()
            wrong = client.post("/v1/checks", json={"claim": CLAIM, "filters": ["yeer!=2010"]})
            events = client.get(f"/v1/checks/{single['id']}/events").text
            many = client.post("/v1/checks/many", params={"k": 2}, content=content).text.splitlines()
            found.append([single, *map(json.loads, many), wrong.json(), wrong.status_code])
            found[-1].append([line for line in events.splitlines() if line.startswith("event:")])
    assert [one["claim"] for one in found[1][1:-3]] == [*claims, "", claims[0]] and found[1][-2] == 400
    own = re.compile(r'"(timings_ms|created|run)": (\{[^}]*\}|"[^"]*")|(\.\d{4})\d+')
    assert own.sub(r"\3", json.dumps(found[1])) == own.sub(r"\3", json.dumps(found[0]))


def test_what_a_worker_was_at_is_done_again_twice(with_workers):
    server, llm, go = with_workers
    place, busy = asked_of(server, llm, "The sea is a pond.")
    assert KEY not in str([one.cmdline() for one in workers_of(server)])
    for _ in range(2):
        _, busy = busy_at(server, llm, busy.kill)
    busy.kill()
    wait_until(lambda: httpx.get(place).json()["status"] == "failed")
    check = httpx.get(place).json()
    assert check["problem"] == "ServerError" and "3 worker processes ended" in check["error"]
    place, busy = asked_of(server, llm, CLAIM)
    busy_at(server, llm, busy.kill)
    go.set()
    wait_until(lambda: httpx.get(place).json()["status"] == "done")
    assert set(llm.keys) == {f"Bearer {KEY}"} and server.said.count("a worker process ended") == 4
    checks = httpx.get(f"{server.url}/v1/checks").json()
    assert [one["claim"] for one in checks] == [CLAIM, "The sea is a pond."] and checks[0]["kept"]
    assert server.said.count('"event": "check"') == 2 and httpx.get(f"{server.url}/ready").status_code == 200


def test_with_workers_it_stops_as_without(with_workers, tmp_path: Path):
    server, llm, go = with_workers
    place, _ = asked_of(server, llm, "The sea is a pond.")
    httpx.delete(place)
    go.set()
    wait_until(lambda: httpx.get(place).json()["status"] == "failed")
    assert "stopped" in httpx.get(place).json()["error"]
    wait_until(lambda: not any(one.net_connections("tcp") for one in workers_of(server)))
    go.clear()
    workers, (place, _) = workers_of(server), asked_of(server, llm, CLAIM)
    with ThreadPoolExecutor() as callers:
        waiting = callers.submit(httpx.post, f"{server.url}/v1/checks", json={"claim": CLAIM, "wait": 60}, timeout=60)
        tool = {"name": "check_claim", "arguments": {"claim": CLAIM}}
        sent = {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}, "timeout": 60}
        both = {"Accept": "application/json, text/event-stream"}
        by_tool = callers.submit(httpx.post, f"{server.url}/mcp", headers=both, **sent)
        wait_until(lambda: 'checks",status="202"' in httpx.get(f"{server.url}/metrics").text)
        server.process.terminate()
        workers[0].terminate()  # a service manager may tell all
        threading.Timer(1.5, go.set).start()
        assert waiting.result().json()["status"] == "done" and '"verdict":' in by_tool.result().text
    assert server.stop() == 0 and psutil.wait_procs(workers, 30)[1] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
def test_no_worker_outlives_the_server(with_workers, number, code):
    server, llm, _ = with_workers
    workers, _ = workers_of(server), asked_of(server, llm, CLAIM)
    assert len(workers) == 2 and server.stop(number) == code and psutil.wait_procs(workers, 30)[1] == []


def test_workers_have_the_settings_of_the_server_and_no_budget(monkeypatch):
    settings = resolve({"llm_api_key": KEY, "store": "a"}, {"CCHECK_ELASTICSEARCH_HOSTS": "http://a,http://b"}).settings
    same = received(json.loads(json.dumps(sent(settings))))
    assert same.model_dump() == settings.model_dump() and same.llm_api_key == settings.llm_api_key
    assert same.yours("elasticsearch_hosts") == settings.yours("elasticsearch_hosts")
    assert type(_error(*_said(MissingExtra("it", "models")))) is MissingExtra
    monkeypatch.setenv("CCHECK_LLM_MAX_CALLS", "3")
    said = ccheck("serve", "web", "--workers", 2, "--port", 0)
    assert said.code == 2 and "llm_max_calls" in said.err


def test_it_says_that_there_is_no_store_and_serves_what_can_make_one(tmp_path: Path):
    log = tmp_path / "log"
    tmp_path.joinpath("paper.checks.sqlite").write_text("this is no database" * 100)
    with serving(log, "--store", tmp_path / "paper", "--recipe", "bm25") as url:
        assert "checks are not recorded: the record" in log.read_text()
        wait_until(lambda: "nothing can be checked yet: there is no store" in log.read_text())
        assert "papers" in httpx.get(f"{url}/papers", headers={"Accept": "text/html"}).text


def test_the_reranker_that_is_served_is_the_one_that_checks_use(tmp_path: Path, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    from tiny_rerankers import make_encoder

    from ccheck.cli.serve import _reranker_of

    monkeypatch.setattr("ccheck.rerank.server.canary.check_scorer", lambda *_: None)  # its weights are random
    model = make_encoder(tmp_path / "model")
    with open_checker(str(tmp_path / "store"), recipe="bm25", rerank=str(model), device="cpu") as checker:
        checker.ingest(PAPERS, dense=False)
        app = _reranker_of(checker)
        ((_, reranker),) = checker.plan().rerankers.values()
        assert app.state.service.scorer is reranker.scorer
    said = ccheck("serve", "web", "--serve-reranker", "--store", tmp_path / "store", "--recipe", "bm25", "--port", 0)
    assert said.code == 2 and "Name one with --rerank" in said.err
