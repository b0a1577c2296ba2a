"""What `ccheck kibana install` puts into Kibana. A recorder stands for Kibana; the record is on a real server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from cli_runs import ccheck
from elastic_indices import LAYOUT, entry
from filling import fill
from http_stub import Asked, HttpStub, Reply, http_stub

from ccheck.core.errors import InvalidData, NotFound, ServerError, UsageError
from ccheck.core.settings import Settings
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.service import Check
from ccheck.service.kibana import Kibana, lacking, objects, put, remove, state
from ccheck.service.record_elastic import ElasticRecord

STAGES = ("embed", "retrieve", "rerank", "evidence")


class Recorder:
    """Keeps what it is sent under a space's paths, as Kibana's saved objects are kept."""

    def __init__(self) -> None:
        self.saved: dict[str, Any] = {}
        self.server: HttpStub

    @property
    def url(self) -> str:
        return self.server.url

    def reply(self, asked: Asked) -> Reply:
        if "kbn-xsrf" not in asked.headers:  # Kibana's own refusal
            return Reply({"message": "Request must contain a kbn-xsrf header."}, 400)
        path = asked.path
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
        "evidence": [
            {"rank": 1, "doc_id": f"d{number % 3}", "title": "T", "stance": None, "metadata": {}},
        ],
        "timings_ms": dict.fromkeys(STAGES, float(number)),
        "usage": {"llm_calls": 1, "prompt_tokens": 100 * number, "completion_tokens": number},
    }
    settings = {"key": "k", "recipe": "default", "k": 2, "filters": [], "models": ["m"], "store": "s"}
    settings |= {"generation": "g", "version": "1"}
    made = Check(
        id=f"{number:016x}",
        claim=f"Claim {number}.",
        status="done",
        result=result,
        created="2026-01-01T00:00:00Z",
        settings=settings,
    )
    return replace(made, status="failed", result=None, error="why") if number % 5 == 4 else made


@pytest.fixture
def store(elasticsearch_url: str, elasticsearch_index: str) -> Iterator[ElasticStore]:
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        fill(store, LAYOUT, [entry("a")])
        yield store
        httpx.delete(f"{elasticsearch_url}/ccheck-checks-{elasticsearch_index}-000001", timeout=60)


def test_every_field_of_every_panel_is_in_the_record(store: ElasticStore) -> None:
    with pytest.raises(NotFound, match="there is no record"):
        lacking(store.client, store.index)
    record = ElasticRecord(store, Settings())
    record.put(Check(id="0" * 16, claim="C", status="failed", result=None, created="2026-01-01T00:00:00Z", error="no"))
    assert lacking(store.client, store.index) == {"latency": [f"timings_ms.{name}" for name in sorted(STAGES)]}
    record.put(check(1))
    assert lacking(store.client, store.index) == {}


def test_the_record_counts_what_the_panels_ask_for(store: ElasticStore) -> None:
    """The same sums as the panels', by aggregations, since the tests' server has no ES|QL."""
    record, checks = ElasticRecord(store, Settings()), [check(number) for number in range(20)]
    for one in checks:
        record.put(one)
    store.client.on_index("POST", f"ccheck-checks-{store.index}", "_refresh")
    aggregations = {
        "verdicts": {"terms": {"field": "verdict"}},
        "cited": {"terms": {"field": "documents"}},
        "failed": {"filter": {"term": {"status": "failed"}}},
        "tokens": {"sum": {"field": "prompt_tokens"}},
        "retrieval": {"avg": {"field": "timings_ms.retrieve"}},
    }
    found = store.client.search(f"ccheck-checks-{store.index}", {"size": 0, "aggs": aggregations})["aggregations"]
    results = [one.result for one in checks if one.result is not None]
    counted = {name: {one["key"]: one["doc_count"] for one in found[name]["buckets"]} for name in ("verdicts", "cited")}
    assert counted["verdicts"] == Counter(one["verdict"]["label"] for one in results)
    assert counted["cited"] == Counter(one["evidence"][0]["doc_id"] for one in results)
    assert found["failed"]["doc_count"] == len(checks) - len(results) == 4
    assert found["tokens"]["value"] == sum(one["usage"]["prompt_tokens"] for one in results)
    spent = [one["timings_ms"]["retrieve"] for one in results]
    assert found["retrieval"]["value"] == pytest.approx(sum(spent) / len(spent))


def test_it_is_put_once_and_taken_out_again(recorder: Recorder) -> None:
    recorder.saved["/s/facts/api/dashboards/theirs"] = theirs = {"title": "theirs"}
    kibana = Kibana(recorder.url, "facts", "secret-key")
    found = objects("papers")
    assert [state(kibana, one) for one in found] == ["new", "new"]
    put(kibana, found)
    assert [state(kibana, one) for one in objects("papers")] == ["same", "same"]
    assert [state(kibana, one) for one in objects("papers", {"latency"})] == ["same", "changed"]
    dashboard = recorder.saved["/s/facts/api/dashboards/ccheck-papers"]
    assert "STORE" not in json.dumps(dashboard) and len(dashboard["panels"]) == 9
    assert (
        recorder.saved["/s/facts/api/data_views/data_view/ccheck-papers"]["data_view"]["title"]
        == "ccheck-checks-papers"
    )
    assert {one.headers["authorization"] for one in recorder.server.asked} == {"ApiKey secret-key"}
    assert "secret-key" not in repr(kibana)
    remove(kibana, found)
    assert recorder.saved == {"/s/facts/api/dashboards/theirs": theirs}
    remove(kibana, found)


def test_what_somebody_else_made_is_left_alone(recorder: Recorder) -> None:
    recorder.saved["/api/dashboards/ccheck-papers"] = {"title": "mine"}
    with pytest.raises(InvalidData, match="was not made by ccheck"):
        state(Kibana(recorder.url), objects("papers")[1])


@pytest.mark.parametrize(
    ("url", "space", "error"),
    [("kibana", "", UsageError), ("http://127.0.0.1:1", "", ServerError), ("http://127.0.0.1:1", "../x", UsageError)],
)
def test_a_kibana_that_can_not_be_asked_is_an_error(url: str, space: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        state(Kibana(url, space), objects("papers")[0])


def test_the_command_asks_first_and_leaves_out_what_has_no_field(store: ElasticStore, recorder: Recorder) -> None:
    ElasticRecord(store, Settings()).put(
        Check(id="0" * 16, claim="C", status="failed", result=None, created="2026-01-01T00:00:00Z", error="no")
    )
    command = ("kibana", "install", "--url", recorder.url, "--store", store.name)
    shown = ccheck(*command, "--dry-run")
    assert shown.code == 0 and "PUT /api/dashboards/" in shown.out and not recorder.saved
    assert "the panel latency is left out" in shown.err
    assert ccheck(*command).code == 2 and not recorder.saved
    assert ccheck(*command, "--yes").code == 0
    (dashboard,) = (one for path, one in recorder.saved.items() if "dashboards" in path)
    assert "latency" not in {panel["id"] for panel in dashboard["panels"]} and len(dashboard["panels"]) == 8
    again = ccheck(*command)
    assert again.code == 0 and "nothing to do" in again.err and not again.out
    assert ccheck(*command, "--undo", "--yes").code == 0 and not recorder.saved
