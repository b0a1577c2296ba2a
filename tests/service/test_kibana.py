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
from elastic_indices import entry
from http_stub import Asked, HttpStub, Reply, http_stub
from searching import fill
from store_documents import LAYOUT

from ccheck.core.errors import InvalidData, NotFound, ServerError, UsageError
from ccheck.core.settings import Settings
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.service import Check, Correction
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
        "evidence": [{"rank": 1, "doc_id": f"d{number % 3}", "title": "T", "stance": None, "metadata": {}}],
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
        created=f"2026-01-{1 + number % 5:02}T00:00:00Z",
        settings=settings,
    )
    return replace(made, status="failed", result=None, error="why", problem="ServerError") if number % 5 == 4 else made


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


def days(field: str | None = None, **inside: Any) -> dict[str, Any]:
    """What panels over time ask for: by day, and by a field."""
    parts = inside or ({"by": {"terms": {"field": field}}} if field else {})
    return {"date_histogram": {"field": "@timestamp", "calendar_interval": "day"}, "aggs": parts}


def within(status: str, aggregation: dict[str, Any]) -> dict[str, Any]:
    return {"filter": {"term": {"status": status}}, "aggs": {"in": aggregation}}


def test_every_panel_counts_what_python_counts(store: ElasticStore) -> None:
    """The same sums as the panels', by aggregations, since the tests' server has no ES|QL."""
    settings = Settings(llm_prompt_price=2.0, llm_completion_price=8.0, llm_currency="EUR")
    record, checks = ElasticRecord(store, settings), [check(number) for number in range(40)]
    for one in checks:
        record.put(one)
    corrected = [checks[number] for number in (1, 2, 7)]
    for one in corrected:
        record.correct(Correction(one.id, "wrong verdict", label="SUPPORTS", created=one.created))
    store.client.on_index("POST", f"ccheck-checks-{store.index}", "_refresh")
    open_labels = {"terms": {"verdict": ["NOT_ENOUGH_INFO", "CONFLICTING"]}}
    asked = {
        "checks": {"value_count": {"field": "id"}},
        "cost": {"sum": {"field": "cost"}},
        "verdicts-over-time": days("verdict"),
        "corrections": {"filter": {"term": {"corrected": True}}, "aggs": {"in": days()}},
        "open": {"filter": {"bool": {"should": [open_labels, {"term": {"status": "failed"}}]}}},
        "cited": {"terms": {"field": "documents"}},
        "failures": within("failed", days("problem")),
        "latency": days(**{name: {"avg": {"field": f"timings_ms.{name}"}} for name in STAGES}),
        "tokens": {"terms": {"field": "method"}, "aggs": {"p": {"sum": {"field": "prompt_tokens"}},
                                                          "c": {"sum": {"field": "completion_tokens"}}}},
        "spent": {"terms": {"field": "currency"}, "aggs": {"sum": {"sum": {"field": "cost"}}}},
    }  # fmt: skip
    assert set(asked) == {panel["id"] for panel in objects("x")[1].body["panels"]}
    found = store.client.search(f"ccheck-checks-{store.index}", {"size": 0, "aggs": asked})["aggregations"]
    done = [one.result for one in checks if one.result is not None]
    usage = [one["usage"] for one in done]
    cost = sum(2e-6 * one["prompt_tokens"] + 8e-6 * one["completion_tokens"] for one in usage)
    assert found["checks"]["value"] == len(checks)
    assert found["cost"]["value"] == pytest.approx(cost)
    assert by_day(found["verdicts-over-time"]) == Counter(
        (one.created[:10], one.label) for one in checks if one.label is not None
    )
    days_of = Counter(one.created[:10] for one in corrected)
    assert [day["doc_count"] for day in found["corrections"]["in"]["buckets"]] == [
        days_of[day] for day in sorted(days_of)
    ]
    undecided = [one for one in checks if one.label in (None, "NOT_ENOUGH_INFO", "CONFLICTING")]
    assert found["open"]["doc_count"] == len(undecided)
    assert counts(found["cited"]) == Counter(one["evidence"][0]["doc_id"] for one in done)
    failed = [one for one in checks if one.status == "failed"]
    assert by_day(found["failures"]["in"]) == Counter((one.created[:10], one.problem) for one in failed)
    for day in found["latency"]["buckets"]:
        here = [
            one.result["timings_ms"] for one in checks if one.result and day["key_as_string"][:10] == one.created[:10]
        ]
        for name in STAGES:
            spent = [one[name] for one in here]
            assert day[name]["value"] == (pytest.approx(sum(spent) / len(spent)) if spent else None)
    (tokens,) = found["tokens"]["buckets"]
    assert tokens["key"] == "m" and tokens["p"]["value"] == sum(one["prompt_tokens"] for one in usage)
    assert tokens["c"]["value"] == sum(one["completion_tokens"] for one in usage)
    (spent_in,) = found["spent"]["buckets"]
    assert (spent_in["key"], spent_in["sum"]["value"]) == ("EUR", pytest.approx(cost))


def counts(terms: dict[str, Any]) -> dict[str, int]:
    return {one["key"]: one["doc_count"] for one in terms["buckets"]}


def by_day(histogram: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {
        (day["key_as_string"][:10], key): count
        for day in histogram["buckets"]
        for key, count in counts(day["by"]).items()
    }


def test_it_is_put_once_and_taken_out_again(recorder: Recorder) -> None:
    recorder.saved["/s/facts/api/dashboards/theirs"] = theirs = {"title": "theirs"}
    kibana = Kibana(recorder.url, "facts", "secret-key")
    found = objects("papers")
    assert [state(kibana, one) for one in found] == ["new", "new"]
    put(kibana, found)
    assert [state(kibana, one) for one in objects("papers")] == ["same", "same"]
    assert [state(kibana, one) for one in objects("papers", {"latency"})] == ["same", "changed"]
    dashboard = recorder.saved["/s/facts/api/dashboards/ccheck-papers"]
    assert "STORE" not in json.dumps(dashboard) and len(dashboard["panels"]) == 10
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
    assert "latency" not in {panel["id"] for panel in dashboard["panels"]} and len(dashboard["panels"]) == 9
    again = ccheck(*command)
    assert again.code == 0 and "nothing to do" in again.err and not again.out
    assert ccheck(*command, "--undo", "--yes").code == 0 and not recorder.saved
