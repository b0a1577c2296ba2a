"""The sidecar's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .worker import Batch

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = tuple(2.0**power for power in range(5, 18))


class Metrics:
    """A server's own registry: several servers in one process don't mix."""

    def __init__(self, waiting: Callable[[], tuple[int, int]]) -> None:
        """`waiting`: how many requests and tokens wait for the model now."""
        self.registry = CollectorRegistry()
        self.requests = Counter("ccheck_requests", "Requests answered.", ["path", "status"], registry=self.registry)
        self.seconds = Histogram(
            "ccheck_request_seconds",
            "Seconds from a request's arrival to its answer.",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.gone = Counter("ccheck_gone", "Callers that hung up before the answer.", registry=self.registry)
        self.texts = Counter("ccheck_texts", "Texts accepted.", ["model"], registry=self.registry)
        self.cut = Counter("ccheck_texts_cut", "Texts cut to the model's length.", ["model"], registry=self.registry)
        self.model_tokens = Counter("ccheck_model_tokens", "Tokens read by a model.", ["model"], registry=self.registry)
        self.model_seconds = Counter(
            "ccheck_model_seconds", "Seconds in which a model was busy.", ["model"], registry=self.registry
        )
        self.batch_tokens = Histogram(
            "ccheck_batch_tokens", "Tokens in a batch.", buckets=TOKENS, registry=self.registry
        )
        self.batch_requests = Histogram(
            "ccheck_batch_requests",
            "Requests in a batch.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self.registry,
        )
        Gauge("ccheck_waiting_requests", "Requests waiting for the model.", registry=self.registry).set_function(
            lambda: waiting()[0]
        )
        Gauge("ccheck_waiting_tokens", "Tokens waiting for the model.", registry=self.registry).set_function(
            lambda: waiting()[1]
        )

    def batch(self, batch: Batch) -> None:
        self.model_tokens.labels(batch.engine).inc(batch.tokens)
        self.model_seconds.labels(batch.engine).inc(batch.seconds)
        self.batch_tokens.observe(batch.tokens)
        self.batch_requests.observe(batch.requests)

    def page(self) -> bytes:
        return generate_latest(self.registry)
