"""Traces and metrics by OpenTelemetry (extra `telemetry`), for whoever sets OTEL_EXPORTER_OTLP_ENDPOINT.

Its other variables (OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRICS_EXPORTER=none, …) count too. What is
sent holds names and numbers, and no claim.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from .errors import require

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""Where both go, over HTTP; each has a variable of its own, too. Without any, nothing is collected or imported."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""The limits between which durations are counted."""

FAREWELL_SECONDS = 2.0
"""How long the end of a command waits for collectors, which OpenTelemetry's own end does for 10 s and more each."""
_providers: list[Any] = []


@atexit.register
def finish() -> bool:
    """Send what is left, for `FAREWELL_SECONDS` at most. Returns whether it was sent, or refused, by then.

    What is traced afterwards is sent anew.
    """
    threads = [threading.Thread(target=one.shutdown, daemon=True) for one in _providers]
    _providers.clear()
    for cached in (tracer, meters, _meter):
        cached.cache_clear()
    ends = time.monotonic() + FAREWELL_SECONDS
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:  # since Python 3.12, a program that is about to end can't start one
            thread.run()
    for thread in filter(threading.Thread.is_alive, threads):
        thread.join(max(0.0, ends - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _wanted(signal: str) -> bool:
    """Whether somebody collects traces, or metrics. Raises MissingExtra if that is not installed."""
    endpoints = (ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if not any(map(os.environ.get, endpoints)) or os.environ.get(f"OTEL_{signal}_EXPORTER") == "none":
        return False
    require("telemetry", "telemetry", "opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter")
    os.environ.setdefault("OTEL_SERVICE_NAME", "ccheck")
    return True


@functools.cache
def tracer() -> Any:
    """OpenTelemetry's tracer, which sends spans in the background; or None. Raises MissingExtra."""
    if not _wanted("TRACES"):
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    _providers.append(provider)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("ccheck")


@functools.cache
def meters() -> Any:
    """A provider of OpenTelemetry's meters, which sends numbers every minute and at the end; or None."""
    if not _wanted("METRICS"):
        return None
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], shutdown_on_exit=False)
    _providers.append(provider)
    return provider


@functools.cache
def _meter(kind: str, name: str, unit: str, **how: Any) -> Any:
    return getattr(meters().get_meter("ccheck"), f"create_{kind}")(f"ccheck.{name}", unit, **how)


def count(name: str, unit: str, number: float = 1, **about: Any) -> None:
    """Add to the counter `ccheck.NAME`, for these values of its attributes."""
    if meters() is not None:
        _meter("counter", name, unit).add(number, about)


@contextmanager
def span(name: str) -> Iterator[None]:
    """A part of the work, also as a decorator: its span, its seconds, and that it is under way.

    What it raises is noted in both, by its type alone.
    """
    traced, metered = tracer(), meters() is not None
    if traced is None and not metered:
        yield
        return
    how = {"record_exception": False, "set_status_on_exception": False}
    about, started = {"stage": name}, time.perf_counter()
    if metered:
        _meter("up_down_counter", "stage.active", "1").add(1, {"stage": name})
    with nullcontext() if traced is None else traced.start_as_current_span(name, **how) as current:
        try:
            yield
        except Exception as error:
            about["error.type"] = type(error).__name__
            if current is not None:
                current.set_attribute("error.type", about["error.type"])
            raise
        finally:
            if metered:
                _meter("up_down_counter", "stage.active", "1").add(-1, {"stage": name})
                seconds = _meter("histogram", "stage.duration", "s", explicit_bucket_boundaries_advisory=SECONDS)
                seconds.record(time.perf_counter() - started, about)


def trace_headers() -> dict[str, str]:
    """The header `traceparent`, by which another server's spans join the trace; nothing if nothing is traced."""
    if tracer() is None:
        return {}
    from opentelemetry.propagate import inject

    found: dict[str, str] = {}
    inject(found)
    return found


def join_trace(headers: Mapping[str, str]) -> None:
    """This thread's spans are part of the trace of whoever made the headers with `trace_headers`."""
    if tracer() is not None:
        from opentelemetry import context, propagate

        context.attach(propagate.extract(headers))
