"""Traces and events. A collector of the test's own takes the spans, as OTLP over HTTP sends them."""

import asyncio
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cli_runs import ccheck as ccheck_command
from http_stub import Reply, http_stub
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

import ccheck
from ccheck.core import telemetry
from ccheck.core.events import access_log, event, written
from ccheck.core.redaction import keep_secret
from ccheck.search.elastic import Connection
from ccheck.search.elastic.client import Client
from ccheck.service import Service


@pytest.fixture
def own_tracer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    caches = (telemetry.tracer, telemetry.meters, telemetry._meter)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_stages_are_spans_and_servers_get_the_trace(own_tracer: None, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    with http_stub(lambda asked: Reply({}, headers={"X-Elastic-Product": "Elasticsearch"})) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        client = Client(Connection(server.url))

        @telemetry.span("retrieve")
        def retrieve() -> None:
            client.request("GET", "/papers")
            raise ValueError("a claim that nobody else should read")

        with telemetry.span("check"), pytest.raises(ValueError):
            retrieve()
        client.close()
        made = telemetry.tracer()
        assert made is not None
        made.span_processor.force_flush()  # type: ignore[attr-defined]
    sent, spans = server.bodies("/v1/traces"), {}
    for body in sent:
        request = trace.ExportTraceServiceRequest.FromString(body)
        names = {
            (one.key, one.value.string_value) for part in request.resource_spans for one in part.resource.attributes
        }
        assert ("service.name", "ccheck") in names
        spans |= {found.name: found for part in request.resource_spans for found in part.scope_spans[0].spans}
    assert set(spans) == {"check", "retrieve"} and b"nobody else" not in b"".join(sent)
    inner, outer = spans["retrieve"], spans["check"]
    assert inner.parent_span_id == outer.span_id and inner.trace_id == outer.trace_id
    assert [(one.key, one.value.string_value) for one in inner.attributes] == [("error.type", "ValueError")]
    (asked,) = (one for one in server.asked if one.path == "/papers")
    assert asked.headers["traceparent"].startswith(f"00-{inner.trace_id.hex()}-{inner.span_id.hex()}-")


def test_checks_stages_and_failures_are_counted(own_tracer: None, monkeypatch: pytest.MonkeyPatch) -> None:
    collected = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    with http_stub(lambda asked: Reply({})) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{server.url}/v1/metrics")
        papers = [{"_id": "a", "text": "Tea number 1 is warm."}, {"_id": "b", "text": "Tea number 2 is cold."}]
        with ccheck.open("local:counted", recipe="bm25") as checker:
            checker.ingest(papers, dense=False)
            with Service(checker) as service:
                labels = [service.check(f"Tea number {number} is warm.", k=2).label for number in (1, 2)]
        with telemetry.span("verdict"), pytest.raises(ZeroDivisionError), telemetry.span("retrieve"):
            1 / 0  # noqa: B018
        telemetry.meters().shutdown()
    assert telemetry.tracer() is None and {asked.path for asked in server.asked} == {"/v1/metrics"}
    request = collected.ExportMetricsServiceRequest.FromString(server.asked[-1].body)
    found = {one.name: one for part in request.resource_metrics for one in part.scope_metrics[0].metrics}

    def points(name: str) -> list[tuple[dict[str, str], Any]]:
        data = getattr(found[name], found[name].WhichOneof("data"))
        return [({one.key: one.value.string_value for one in point.attributes}, point) for point in data.data_points]

    counted = {about["verdict"]: point.as_int for about, point in points("ccheck.checks")}
    assert counted == Counter(labels) and all(about["status"] == "done" for about, _ in points("ccheck.checks"))
    assert {about["kind"] for about, _ in points("ccheck.tokens")} == {"prompt", "completion"}
    durations = points("ccheck.stage.duration")
    stages = {(about["stage"], about.get("error.type")): point.count for about, point in durations}
    assert stages["check", None] == stages["retrieve", None] == 2 and stages["retrieve", "ZeroDivisionError"] == 1
    assert {point.as_int for _, point in points("ccheck.stage.active")} == {0}
    assert b"warm" not in server.asked[-1].body


def test_a_command_does_not_wait_for_a_collector_that_does_not_answer(own_tracer, monkeypatch, no_server, caplog):
    pytest.importorskip("opentelemetry.exporter")
    monkeypatch.setattr(telemetry, "FAREWELL_SECONDS", 0.3)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", no_server)
    assert "take" in ccheck_command("history").err and not caplog.text
    answers = threading.Event()

    def collector(asked: Any) -> Reply:
        assert answers.wait(60)
        return Reply({})

    with http_stub(collector) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        ran = ccheck_command("history")
        assert ran.code == 0 and not answers.is_set() and "did not take the last of them" in ran.err
        assert "take" not in ccheck_command("history", "--quiet").err
        answers.set()
        monkeypatch.setattr(telemetry, "FAREWELL_SECONDS", 60)
        # What comes later is sent as if nothing had happened.
        assert "did not take" not in ccheck_command("history").err
        assert {"/v1/traces", "/v1/metrics"} <= {asked.path for asked in server.asked}


def test_nothing_is_traced_or_written_unless_asked_for(own_tracer: None, capsys: pytest.CaptureFixture[str]) -> None:
    with telemetry.span("check"):
        assert telemetry.tracer() is None is telemetry.meters() and telemetry.trace_headers() == {}
    event("check", id="1")
    assert capsys.readouterr().err == ""


async def shown(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("seen", 201 if Request(scope).url.query else 200)(scope, receive, send)


def test_each_request_is_a_line_of_json_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(written, "is_set", lambda: True)
    keep_secret("a-secret-in-a-path")

    async def ask() -> None:
        transport = httpx.ASGITransport(access_log(shown))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            await client.get("/a-secret-in-a-path?claim=vaccines")

    asyncio.run(ask())
    event("check", id="1", verdict="SUPPORTS")
    text = capsys.readouterr().err
    request, check = map(json.loads, text.splitlines())
    assert (request["event"], request["method"], request["status"], request["bytes"]) == ("request", "GET", 201, 4)
    assert request["ms"] >= 0 and re.fullmatch(r"\d{4}-.*T.*\+00:00", request["@timestamp"])
    assert "secret" not in text and "vaccines" not in text
    assert (check["event"], check["verdict"]) == ("check", "SUPPORTS")
