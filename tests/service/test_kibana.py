"""What `ccheck kibana install` puts into Kibana. A recorder stands for Kibana; the record is on a real server."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from cli_runs import ccheck
from elastic_indices import entry
from http_stub import Asked, HttpStub, Reply, http_stub
from searching import fill
from store_documents import LAYOUT

from ccheck.core.errors import InvalidData, NotFound, ServerError, UsageError
from ccheck.core.settings import Settings
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.service import Check, Correction
from ccheck.service.kibana import Kibana, objects, put, remove, require_record, state
from ccheck.service.record_elastic import ElasticRecord

STAGES = ("embed", "retrieve", "rerank", "evidence")


def fields(panel: dict[str, Any]) -> set[str]:
    """The fields that a panel's ES|QL reads: its lower-case names, for commands and functions are in capitals."""
    layers = panel["config"].get("layers") or [panel["config"]]
    queries = (layer["data_source"]["query"].partition("|")[2] for layer in layers)
    named = (re.findall(r"(?<![\w.])@?[a-z][\w.]*", re.sub(r'"[^"]*"|`[^`]*`|\?_t\w+', "", one)) for one in queries)
    return {name for names in named for name in names if name != "true"}


class Recorder:
    """Keeps what it is sent under a space's paths, as Kibana's saved objects are kept."""

    def __init__(self) -> None:
        self.saved: dict[str, Any] = {}
        self.server: HttpStub

    def reply(self, asked: Asked) -> Reply:
        if "kbn-xsrf" not in asked.headers:  # Kibana's own refusal
            return Reply({"message": "Request must contain a kbn-xsrf header."}, 400)
        path = asked.path
        if path in ("/api/spaces/space/default", "/s/facts/api/spaces/space/facts"):
            return Reply({"id": path.rpartition("/")[2]})
        if asked.method == "POST":
            path = f"{path}/{asked.json['data_view']['id']}"
            assert asked.json["override"] is True
        if asked.method in ("POST", "PUT"):
            self.saved[path] = asked.json
        elif path not in self.saved:
            return Reply({"statusCode": 404}, 404)
        return Reply(self.saved.pop(path) if asked.method == "DELETE" else {"id": path, "data": self.saved[path]})


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    with http_stub(made.reply) as made.server:
        yield made


def check(number: int) -> Check:
    label = ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "CONFLICTING")[number % 4]
    result = {
        "verdict": {"label": label, "confidence": number / 10, "method": "m"},
        "evidence": [{"rank": 1, "doc_id": f"d{number % 3}", "title": "T", "stance": None, "metadata": {}}],
        "timings_ms": dict.fromkeys(STAGES, float(number)),
        "usage": {"llm_calls": 1, "prompt_tokens": 100 * number, "completion_tokens": number},
    }
    created = f"2026-01-{1 + number % 5:02}T00:00:00Z"
    made = Check(id=f"{number:016x}", claim=f"Claim {number}.", status="done", result=result, created=created)
    return replace(made, status="failed", result=None, error="why", problem="ServerError") if number % 5 == 4 else made


@pytest.fixture
def store(elasticsearch_url: str, elasticsearch_index: str) -> Iterator[ElasticStore]:
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        fill(store, LAYOUT, [entry("a")])
        yield store
        httpx.delete(f"{elasticsearch_url}/ccheck-checks-{elasticsearch_index}-000001", timeout=60)


def test_every_field_of_every_panel_is_in_the_record(store: ElasticStore) -> None:
    with pytest.raises(NotFound, match="there is no record"):
        require_record(store.client, store.index)
    ElasticRecord(store, Settings()).put(check(4))  # it failed
    require_record(store.client, store.index)
    caps = store.client.on_index("GET", f"ccheck-checks-{store.index}", "_field_caps", params={"fields": "*"})
    shown = {name for panel in objects(store.index)[0].body["panels"] for name in fields(panel)}
    assert shown - caps["fields"].keys() == set() and f"timings_ms.{STAGES[0]}" in shown


def test_what_panels_count_is_what_python_counts(store: ElasticStore) -> None:
    """Sums and groups over the panels' fields by aggregations, since the tests' server has no ES|QL."""
    settings = Settings(llm_prompt_price=2.0, llm_completion_price=8.0, llm_currency="EUR")
    record, checks = ElasticRecord(store, settings), [check(number) for number in range(40)]
    for one in checks:
        record.put(one)
    for one in checks[1:4]:
        record.correct(Correction(one.id, "wrong verdict", label="SUPPORTS", created=one.created))
    store.client.on_index("POST", f"ccheck-checks-{store.index}", "_refresh")
    done = [one.result for one in checks if one.result is not None]
    tokens = {name: sum(one["usage"][name] for one in done) for name in ("prompt_tokens", "completion_tokens")}
    times = {f"timings_ms.{name}": sum(one["timings_ms"][name] for one in done) for name in STAGES}
    cost = (2 * tokens["prompt_tokens"] + 8 * tokens["completion_tokens"]) / 1e6
    sums = tokens | times | {"cost": cost, "milliseconds": sum(times.values())}
    groups = {
        "verdict": Counter(one.label for one in checks if one.label),
        "status": Counter(one.status for one in checks),
        "problem": Counter(one.problem for one in checks if one.problem),
        "documents": Counter(one["evidence"][0]["doc_id"] for one in done),
        "method": {"m": len(done)},
        "currency": {"EUR": len(checks)},
        "corrected": {1: 3},
        "@timestamp": Counter(one.created for one in checks),
    }
    asked = {name: {"sum": {"field": name}} for name in sums} | {name: {"terms": {"field": name}} for name in groups}
    found = store.client.search(f"ccheck-checks-{store.index}", {"size": 0, "aggs": asked})["aggregations"]
    assert {name: found[name]["value"] for name in sums} == pytest.approx(sums)
    for name, counted in groups.items():
        buckets = found[name]["buckets"]
        keys = [one["key_as_string"].replace(".000", "") if name[0] == "@" else one["key"] for one in buckets]
        assert dict(zip(keys, (one["doc_count"] for one in buckets), strict=True)) == counted, name
    shown = {name for panel in objects("x")[0].body["panels"] for name in fields(panel)}
    assert shown - sums.keys() - groups.keys() == {"confidence", "permalink", "claim.keyword"}


def test_it_is_put_once_and_taken_out_again(recorder: Recorder) -> None:
    recorder.saved["/s/facts/api/dashboards/theirs"] = theirs = {"title": "theirs"}
    kibana = Kibana(recorder.server.url, "facts", "secret-key")
    found = objects("papers")
    assert [state(kibana, one) for one in found] == ["new", "new"]
    put(kibana, found)
    assert [state(kibana, one) for one in objects("papers")] == ["same", "same"]
    assert state(kibana, replace(found[0], body={**found[0].body, "description": "newer"})) == "changed"
    dashboard = recorder.saved["/s/facts/api/dashboards/ccheck-papers"]
    assert "STORE" not in json.dumps(dashboard) and len(dashboard["panels"]) == 10
    view = recorder.saved["/s/facts/api/data_views/data_view/ccheck-papers"]["data_view"]
    assert view["title"] == "ccheck-checks-papers"
    assert {one.headers["authorization"] for one in recorder.server.asked} == {"ApiKey secret-key"}
    assert "secret-key" not in repr(kibana)
    remove(kibana, found)
    assert recorder.saved == {"/s/facts/api/dashboards/theirs": theirs}
    remove(kibana, found)
    # What somebody else made is left alone.
    recorder.saved["/api/dashboards/ccheck-papers"] = {"title": "mine"}
    with pytest.raises(InvalidData, match="was not made by ccheck"):
        state(Kibana(recorder.server.url), objects("papers")[0])


@pytest.mark.parametrize(
    ("url", "space", "error"),
    [("kibana", "", UsageError), ("http://127.0.0.1:1", "", ServerError), ("http://[::1", "", UsageError)],
)
def test_a_kibana_that_can_not_be_asked_is_an_error(url: str, space: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        state(Kibana(url, space), objects("papers")[0])


def test_an_older_kibana_keeps_nothing_and_a_redirect_is_said() -> None:
    there = {"PUT": Reply({}, 404), "GET": Reply(b"", 302, {"Location": "/login"})}
    with http_stub(lambda asked: there[asked.method]) as older:
        with pytest.raises(ServerError, match=r"need Kibana 9\.5"):
            put(Kibana(older.url), objects("papers"))
        with pytest.raises(ServerError, match="leads to /login"):
            Kibana(older.url).require_space()
    assert [one.method for one in older.asked] == ["PUT", "GET"]


def test_the_command_asks_first(store: ElasticStore, recorder: Recorder) -> None:
    ElasticRecord(store, Settings()).put(check(4))
    command = ("kibana", "install", "--url", recorder.server.url, "--store", store.name)
    shown = ccheck(*command, "--dry-run")
    assert shown.code == 0 and "PUT /api/dashboards/" in shown.out and not recorder.saved
    assert ccheck(*command).code == 2 and not recorder.saved
    assert ccheck(*command, "--yes").code == 0
    (dashboard,) = (one for path, one in recorder.saved.items() if "dashboards" in path)
    assert len(dashboard["panels"]) == 10
    again = ccheck(*command)
    assert again.code == 0 and "nothing to do" in again.err and not again.out
    assert "no space 'other'" in ccheck(*command, "--undo", "--yes", "--space", "other").err
    assert ccheck(*command, "--space", "../x").code == 2
    assert ccheck(*command, "--undo", "--yes").code == 0 and not recorder.saved
