"""The service behind the routes: from a request's texts to their scores, in the worker's batches; and its metrics."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from more_itertools import chunked
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ...core.errors import CcheckError
from ..types import Scorer, sigmoid
from .dialects import Dialect, Ranked, Refusal
from .guard import Access, Limits
from .worker import Batch, Held, Job, Worker

PIECE = 32
"""Texts that are tokenised at a time, so that a huge request leaves room for others and a cancelled one stops."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = tuple(2.0**power for power in range(5, 18))
REQUESTS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """A server's own registry: several servers in one process don't mix."""

    def __init__(self, waiting: Callable[[], tuple[int, int]]) -> None:
        """`waiting`: how many requests and tokens wait for the model now."""
        self.registry = registry = CollectorRegistry()

        def counter(name: str, said: str, *labels: str) -> Counter:
            return Counter(f"ccheck_{name}", said, labels, registry=registry)

        def histogram(name: str, said: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"ccheck_{name}", said, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests", "Requests answered.", "path", "status")
        self.seconds = histogram("request_seconds", "Seconds from a request's arrival to its answer.", SECONDS, "path")
        self.gone = counter("gone", "Callers that hung up before the answer.")
        self.texts = counter("texts", "Texts accepted.")
        self.cut = counter("texts_cut", "Texts cut to the model's length.")
        self.model_tokens = counter("model_tokens", "Tokens read by the model.")
        self.model_seconds = counter("model_seconds", "Seconds in which the model was busy.")
        self.batch_tokens = histogram("batch_tokens", "Tokens in a batch.", TOKENS)
        self.batch_requests = histogram("batch_requests", "Requests in a batch.", REQUESTS)
        requests = Gauge("ccheck_waiting_requests", "Requests waiting for the model.", registry=registry)
        requests.set_function(lambda: waiting()[0])
        tokens = Gauge("ccheck_waiting_tokens", "Tokens waiting for the model.", registry=registry)
        tokens.set_function(lambda: waiting()[1])

    def batch(self, batch: Batch) -> None:
        self.model_tokens.inc(batch.tokens)
        self.model_seconds.inc(batch.seconds)
        self.batch_tokens.observe(batch.tokens)
        self.batch_requests.observe(batch.requests)

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Service:
    """The model, called by its `name`, and what is counted. Runs in one event loop, between `start` and `stop`."""

    def __init__(self, name: str, scorer: Scorer, limits: Limits, access: Access) -> None:
        self.name, self.scorer, self.limits, self.access = name, scorer, limits, access
        self.metrics = Metrics(lambda: self.worker.waiting)
        self.worker = Worker(scorer.score, limits.batch_tokens, self.metrics.batch)
        self.requests = Held(limits.requests, "requests", lambda: self.worker.seconds_to_wait)
        self.bytes = Held(limits.held_bytes, "bytes", lambda: self.worker.seconds_to_wait)
        self._tokenising = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "ccheck-tokenise")

    def start(self) -> None:
        self.worker.start()

    def stop(self) -> None:
        """Finishes what was accepted."""
        self.worker.stop()
        self._tokenising.shutdown()

    async def rerank(
        self, model: str | None, query: str, texts: Sequence[str], *, raw: bool, dialect: Dialect
    ) -> Ranked:
        """Scores as the model gives them, or their sigmoid. Raises Refusal, also for a request for another `model`."""
        if model not in (None, self.name):
            raise Refusal(dialect.unknown_model, f"no model {model!r} here; available: {self.name}")
        most = self.limits.characters
        if len(texts) > self.limits.texts:
            raise Refusal(413, f"{len(texts)} texts are too many: one request may have at most {self.limits.texts}")
        if len(query) > most:
            raise Refusal(413, f"the query has {len(query):,} characters; at most {most:,} are allowed")
        read = [text[:most] for text in texts]
        loop = asyncio.get_running_loop()
        encoded = []
        for piece in chunked(read, PIECE):
            try:
                encoded += await loop.run_in_executor(self._tokenising, self.scorer.encode, query, piece)
            except CcheckError as error:
                raise Refusal(422, str(error)) from error
        cut = [i for i, (one, text) in enumerate(zip(encoded, texts, strict=True)) if one.cut or len(text) > most]
        self.metrics.texts.inc(len(texts))
        self.metrics.cut.inc(len(cut))
        costs = [len(one.ids) for one in encoded]
        values = await self._run(Job(encoded, costs), dialect)
        scores = values if raw else list(map(sigmoid, values))
        return Ranked(self.name, texts, scores, cut, sum(costs))

    async def _run(self, job: Job, dialect: Dialect) -> list[float]:
        self.worker.submit(job)
        try:
            # If this is cancelled, so is the job.
            return await asyncio.wrap_future(job.done)
        except CcheckError as error:
            raise Refusal(dialect.failed, str(error)) from error
        except Exception as error:
            what = f"the model {self.name} failed: {type(error).__name__}; the server's log has more"
            raise Refusal(dialect.failed, what) from error
