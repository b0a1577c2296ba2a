"""Traces and events. A collector of the test's own takes the spans, as OTLP over HTTP sends them."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Iterator

import httpx
import pytest
from http_stub import Reply, http_stub
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from ccheck.core import events, telemetry
from ccheck.core.events import AccessLog, event, write_events
from ccheck.core.redaction import keep_secret
from ccheck.search.elastic import Connection
from ccheck.search.elastic.client import Client


@pytest.fixture
def own_tracer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in telemetry.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    telemetry.tracer.cache_clear()
    yield
    telemetry.tracer.cache_clear()


def test_stages_are_spans_and_servers_get_the_trace(own_tracer: None, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    with http_stub(lambda asked: Reply({}, headers={"X-Elastic-Product": "Elasticsearch"})) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
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
    sent = [one for one in server.asked if one.path == "/v1/traces"]
    spans = {}
    for one in sent:
        request = trace.ExportTraceServiceRequest.FromString(one.body)
        spans |= {found.name: found for part in request.resource_spans for found in part.scope_spans[0].spans}
    assert set(spans) == {"check", "retrieve"} and b"nobody else" not in b"".join(one.body for one in sent)
    inner, outer = spans["retrieve"], spans["check"]
    assert inner.parent_span_id == outer.span_id and inner.trace_id == outer.trace_id
    assert [(one.key, one.value.string_value) for one in inner.attributes] == [("error.type", "ValueError")]
    (asked,) = (one for one in server.asked if one.path == "/papers")
    assert asked.headers["traceparent"].startswith(f"00-{inner.trace_id.hex()}-{inner.span_id.hex()}-")


def test_nothing_is_traced_unless_somebody_collects_it(own_tracer: None) -> None:
    with telemetry.span("check"):
        assert telemetry.tracer() is None and telemetry.trace_headers() == {}


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    write_events(found := io.StringIO())
    yield found
    events._streams.clear()


async def shown(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("seen", 201 if Request(scope).url.query else 200)(scope, receive, send)


def test_each_request_is_a_line_of_json_without_secrets(written: io.StringIO) -> None:
    keep_secret("a-secret-in-a-path")

    async def ask() -> None:
        transport = httpx.ASGITransport(AccessLog(shown))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            await client.get("/a-secret-in-a-path?claim=vaccines")

    asyncio.run(ask())
    event("check", id="1", verdict="SUPPORTS")
    text = written.getvalue()
    request, check = map(json.loads, text.splitlines())
    assert (request["event"], request["method"], request["status"], request["bytes"]) == ("request", "GET", 201, 4)
    assert request["ms"] >= 0 and re.fullmatch(r"\d{4}-.*T.*\+00:00", request["@timestamp"])
    assert "secret" not in text and "vaccines" not in text
    assert (check["event"], check["verdict"]) == ("check", "SUPPORTS")


def test_nothing_is_written_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    event("check", id="1")
    assert capsys.readouterr().err == ""
