"""The service behind the routes: from a request's texts to their scores, in the model's batches; and its metrics."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from more_itertools import chunked, constrained_batches
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ...core.errors import CcheckError
from ...core.telemetry import SECONDS
from ..types import Encoded, Scorer, sigmoid
from .dialects import Dialect, Ranked, Refusal
from .guard import Access, Held, Limits

PIECE = 32
"""Texts that are tokenised at a time, so that a huge request leaves room for others and a cancelled one stops."""
TOKENS = tuple(2.0**power for power in range(5, 18))
SICK_AFTER = 3
"""After this many failures of the model in a row that were not caused by the texts, the server is unhealthy."""
MOST_SECONDS_TO_WAIT = 60
_log = logging.getLogger(__name__)


class Metrics:
    """A server's own registry: several servers in one process don't mix."""

    def __init__(self, model: Model) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, said: str, *labels: str) -> Counter:
            return Counter(f"ccheck_{name}", said, labels, registry=registry)

        def histogram(name: str, said: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"ccheck_{name}", said, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests", "Requests answered.", "path", "status")
        self.seconds = histogram("request_seconds", "Seconds from a request's arrival to its answer.", SECONDS, "path")
        self.queued = histogram("queue_seconds", "Seconds that a request waited for the model.", SECONDS)
        self.gone = counter("gone", "Callers that hung up before the answer.")
        self.texts = counter("texts", "Texts accepted.")
        self.cut = counter("texts_cut", "Texts cut to the model's length.")
        self.model_tokens = counter("model_tokens", "Tokens read by the model.")
        self.model_seconds = counter("model_seconds", "Seconds in which the model was busy.")
        self.batch_tokens = histogram("batch_tokens", "Tokens in a batch.", TOKENS)
        requests = Gauge("ccheck_waiting_requests", "Requests waiting for the model.", registry=registry)
        requests.set_function(lambda: model.requests)
        tokens = Gauge("ccheck_waiting_tokens", "Tokens waiting for the model.", registry=registry)
        tokens.set_function(lambda: model.tokens)
        wait = Gauge("ccheck_waiting_seconds", "How long what waits will take.", registry=registry)
        wait.set_function(lambda: model.seconds_to_wait() if model.requests else 0)

    def batch(self, tokens: int, seconds: float, waited: float | None) -> None:
        """A batch is done. `waited`: the seconds for which its request waited, if it is a request's first one."""
        self.model_tokens.inc(tokens)
        self.model_seconds.inc(seconds)
        self.batch_tokens.observe(tokens)
        if waited is not None:
            self.queued.observe(waited)

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Model:
    """The thread that runs a model, or as many as it has workers. Requests take turns: each has one batch for each of
    them in the queue."""

    def __init__(self, scorer: Scorer, batch_tokens: int) -> None:
        self._scorer, self._batch_tokens, self.metrics = scorer, batch_tokens, Metrics(self)
        self._thread = ThreadPoolExecutor(scorer.at_once, "ccheck-rerank")
        self._failures = 0
        self._tokens_per_second = 0.0
        self.requests = self.tokens = 0
        """What waits for the model now, or is with it."""

    @property
    def healthy(self) -> bool:
        return self._failures < SICK_AFTER

    def seconds_to_wait(self) -> int:
        """How long what waits will take, from what the last batches took; at least 1."""
        expected = self.tokens / self._tokens_per_second / self._scorer.at_once if self._tokens_per_second else 1
        return max(1, min(MOST_SECONDS_TO_WAIT, math.ceil(expected)))

    async def run(self, encoded: Sequence[Encoded]) -> list[float]:
        """The scores. If this is cancelled, what is not yet with the model never is. Raises what the scorer raises."""
        loop = asyncio.get_running_loop()
        left = sum(len(one.ids) for one in encoded)
        values: list[float] = []
        came: float | None = time.perf_counter()
        self.requests, self.tokens = self.requests + 1, self.tokens + left
        try:
            most = min(self._batch_tokens, math.ceil(left / self._scorer.at_once))
            batches = constrained_batches(encoded, most, get_len=lambda one: len(one.ids), strict=False)
            for some in chunked(batches, self._scorer.at_once):
                scoring = [loop.run_in_executor(self._thread, self._score, batch, came) for batch in some]
                values += chain.from_iterable(await asyncio.gather(*scoring))
                came = None
                done = sum(len(one.ids) for batch in some for one in batch)
                left, self.tokens = left - done, self.tokens - done
        finally:
            self.requests, self.tokens = self.requests - 1, self.tokens - left
        return values

    def stop(self) -> None:
        """Finish what was accepted."""
        self._thread.shutdown()

    def _score(self, batch: Sequence[Encoded], came: float | None) -> list[float]:
        started = time.perf_counter()
        try:
            values = self._scorer.score(batch)
        except CcheckError as error:  # about these texts
            _log.warning("the model: %s", error)
            raise
        except Exception:
            self._failures += 1
            _log.exception("the model failed")
            raise
        self._failures = 0
        tokens, seconds = sum(len(one.ids) for one in batch), time.perf_counter() - started
        rate = tokens / max(seconds, 1e-6)
        self._tokens_per_second = 0.8 * self._tokens_per_second + 0.2 * rate if self._tokens_per_second else rate
        self.metrics.batch(tokens, seconds, None if came is None else started - came)
        return values


class Service:
    """The model, called by its `name`, and what is counted. Runs in one event loop, until `stop`."""

    def __init__(self, name: str, scorer: Scorer, limits: Limits, access: Access) -> None:
        self.name, self.scorer, self.limits, self.access = name, scorer, limits, access
        self.model = Model(scorer, limits.batch_tokens)
        self.metrics = self.model.metrics
        self.requests = Held(limits.requests, "requests", self.model.seconds_to_wait)
        self.bytes = Held(limits.held_bytes, "bytes", self.model.seconds_to_wait)
        self._tokenising = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "ccheck-tokenise")

    def stop(self) -> None:
        """Finishes what was accepted."""
        self.model.stop()
        self._tokenising.shutdown()

    async def rerank(
        self, model: str | None, query: str, texts: Sequence[str], *, raw: bool, dialect: Dialect
    ) -> Ranked:
        """Scores as the model gives them, or their sigmoid. Raises Refusal, also for a request for another `model`."""
        if model not in (None, self.name):
            raise Refusal(dialect.unknown_model, f"no model {model!r} here; available: {self.name}")
        most = self.limits.characters
        if len(texts) > self.limits.texts:
            ways = "Send fewer (in Elasticsearch, rank_window_size), or start the server with a larger --max-texts"
            said = f"{len(texts)} texts are too many: one request may have at most {self.limits.texts}"
            raise Refusal(413, f"{said}. {ways}")
        read = [text[:most] for text in texts]
        loop = asyncio.get_running_loop()
        encoded = []
        for piece in chunked(read, PIECE):
            try:
                encoded += await loop.run_in_executor(self._tokenising, self.scorer.encode, query[:most], piece)
            except CcheckError as error:
                raise Refusal(422, str(error)) from error
        pairs = enumerate(zip(encoded, texts, strict=True))
        short = [i for i, (one, text) in pairs if len(query) > most or one.cut or len(text) > most]
        self.metrics.texts.inc(len(texts))
        self.metrics.cut.inc(len(short))
        values = await self._run(encoded, dialect)
        scores = values if raw else list(map(sigmoid, values))
        return Ranked(self.name, texts, scores, short, sum(len(one.ids) for one in encoded))

    async def _run(self, encoded: Sequence[Encoded], dialect: Dialect) -> list[float]:
        try:
            return await self.model.run(encoded)
        except CcheckError as error:
            raise Refusal(dialect.failed, str(error)) from error
        except Exception as error:
            what = f"the model {self.name} failed: {type(error).__name__}; the server's log has more"
            raise Refusal(dialect.failed, what) from error
