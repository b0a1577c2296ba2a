"""Traces by OpenTelemetry (extra `telemetry`): a span for each stage, for whoever sets OTEL_EXPORTER_OTLP_ENDPOINT.

Its other variables (OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_HEADERS, …) count too. Spans hold names, and no claim.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import require

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The variables that say where traces go, over HTTP. Without one, nothing is traced or imported."""


@functools.cache
def tracer() -> Any:
    """OpenTelemetry's tracer, which sends spans in the background; or None. Raises MissingExtra."""
    if not any(map(os.environ.get, ENDPOINTS)):
        return None
    require("tracing", "telemetry", "opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME", "ccheck")})
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("ccheck")


@contextmanager
def span(name: str) -> Iterator[None]:
    """A part of the work, also as a decorator. What it raises is noted in the span, by its type alone."""
    if (found := tracer()) is None:
        yield
        return
    with found.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as current:
        try:
            yield
        except Exception as error:
            current.set_attribute("error.type", type(error).__name__)
            raise


def trace_headers() -> dict[str, str]:
    """The header `traceparent`, by which another server's spans join the trace; nothing if nothing is traced."""
    if tracer() is None:
        return {}
    from opentelemetry.propagate import inject

    found: dict[str, str] = {}
    inject(found)
    return found
