"""The service behind the routes: from a request's texts to their scores and vectors, in the worker's batches."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from more_itertools import chunked

from ...core.errors import CcheckError
from ..types import Scorer, sigmoid
from .config import Access, Limits
from .dialects import Dialect, Ranked, Refusal, ranges
from .metrics import Metrics
from .worker import Engine, Gate, Job, Worker

PIECE = 32
"""Texts that are tokenised at a time, so that a huge request leaves room for others and a cancelled one stops."""
CHARACTERS_PER_TOKEN = 4


class Embedder(Protocol):
    """An embedding model: vectors are float32 arrays of shape [texts, dimensions]."""

    @property
    def spec(self) -> Any: ...
    def encode_documents(self, texts: Sequence[str]) -> Any: ...
    def encode_queries(self, texts: Sequence[str]) -> Any: ...
    def count_tokens(self, texts: Sequence[str]) -> list[int]: ...


class Service:
    """The models by their names, and what is counted. Runs in one event loop, between `start` and `stop`."""

    def __init__(
        self,
        scorers: Mapping[str, Scorer],
        embedder: tuple[str, Embedder] | None,
        limits: Limits,
        access: Access,
        batch_tokens: int,
    ) -> None:
        self.scorers, self.limits, self.access = dict(scorers), limits, access
        self.batch_tokens = batch_tokens
        self.metrics = Metrics(lambda: self.worker.waiting)
        self.worker = Worker(batch_tokens, self.metrics.batch)
        self.gate = Gate(limits.requests, limits.held_bytes, lambda: self.worker.seconds_to_wait)
        self._engines = {name: Engine(name, scorer.score) for name, scorer in self.scorers.items()}
        self._embedder = embedder
        self._embed: dict[str, Engine] = {}
        if embedder is not None:
            name, model = embedder
            self._embed["document"] = Engine(name, _embedding(model, queries=False))
            self._embed["query"] = Engine(name, _embedding(model, queries=True))
        self._tokenising = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "ccheck-tokenise")

    def start(self) -> None:
        self.worker.start()

    def stop(self) -> None:
        """Finishes what was accepted."""
        self.worker.stop()
        self._tokenising.shutdown()

    def model(self, wanted: str | None, dialect: Dialect) -> str:
        """The name of the reranker that a request asks for. Raises Refusal."""
        if wanted is None or wanted in self.scorers:
            return wanted or next(iter(self.scorers))
        raise Refusal(dialect.unknown_model, f"no model {wanted!r} here; available: {', '.join(self.scorers)}")

    @property
    def embedder_name(self) -> str | None:
        return None if self._embedder is None else self._embedder[0]

    def embedding_model(self, wanted: str | None, dialect: Dialect) -> tuple[str, Embedder]:
        """Raises Refusal."""
        if self._embedder is None:
            raise Refusal(dialect.unknown_model, "this server has no embedding model: start it with --embedding-model")
        name = self._embedder[0]
        if wanted not in (None, name):
            raise Refusal(dialect.unknown_model, f"no embedding model {wanted!r} here; available: {name}")
        return self._embedder

    def check_texts(self, texts: Sequence[str], query: str = "") -> None:
        """Raises Refusal for more or longer texts than the limits allow."""
        if len(texts) > self.limits.texts:
            raise Refusal(413, f"{len(texts)} texts are too many: one request may have at most {self.limits.texts}")
        for what, text in [("the query", query), *((f"text {i}", text) for i, text in enumerate(texts))]:
            if len(text) > self.limits.characters:
                most = self.limits.characters
                raise Refusal(413, f"{what} has {len(text):,} characters; at most {most:,} are allowed")

    async def rerank(
        self, name: str, query: str, texts: Sequence[str], *, raw: bool, refuse_long: bool, dialect: Dialect
    ) -> Ranked:
        """Scores as the model gives them, or their sigmoid. Raises Refusal."""
        cut_here = set() if refuse_long else {i for i, text in enumerate(texts) if len(text) > self.limits.characters}
        # What a model can't read anyway is cut before the limit is applied: one long text refuses no other.
        read = [text[: self.limits.characters] if i in cut_here else text for i, text in enumerate(texts)]
        self.check_texts(read, query)
        scorer, loop = self.scorers[name], asyncio.get_running_loop()
        encoded = []
        for piece in chunked(read, PIECE):
            try:
                encoded += await loop.run_in_executor(self._tokenising, scorer.encode, query, piece)
            except CcheckError as error:
                raise Refusal(422, str(error)) from error
        cut = [i for i, one in enumerate(encoded) if one.cut or i in cut_here]
        if cut and refuse_long:
            raise Refusal(
                413,
                f"texts {ranges(cut)} are longer than the model can read, and truncate is false: remove "
                "truncate to have them cut",
            )
        self.metrics.texts.labels(name).inc(len(texts))
        self.metrics.cut.labels(name).inc(len(cut))
        costs = [one.tokens for one in encoded]
        values = await self._run(Job(self._engines[name], encoded, costs), dialect)
        if not all(map(math.isfinite, values)):
            raise Refusal(dialect.failed, f"the model {name} gave a score that is not a number")
        scores = values if raw or not scorer.logits else list(map(sigmoid, values))
        return Ranked(name, texts, scores, cut, sum(costs))

    async def embed(self, texts: Sequence[str], kind: str, dialect: Dialect) -> tuple[list[Any], int]:
        """The vectors, and how many tokens were read. Raises Refusal."""
        self.check_texts(texts)
        name = self._embed[kind].name
        self.metrics.texts.labels(name).inc(len(texts))
        # Counted by the model's thread, which owns the tokenizer: until then, an estimate.
        costs = [1 + min(len(text) // CHARACTERS_PER_TOKEN, self.batch_tokens) for text in texts]
        results = await self._run(Job(self._embed[kind], texts, costs), dialect)
        return [vector for vector, _ in results], sum(tokens for _, tokens in results)

    async def _run(self, job: Job, dialect: Dialect) -> list[Any]:
        self.worker.submit(job)
        try:
            # If this is cancelled, so is the job.
            return await asyncio.wrap_future(job.done)
        except CcheckError as error:
            raise Refusal(dialect.failed, str(error)) from error
        except Exception as error:
            what = f"the model {job.engine.name} failed: {type(error).__name__}; the server's log has more"
            raise Refusal(dialect.failed, what) from error


def _embedding(embedder: Embedder, *, queries: bool) -> Any:
    """Each text's vector with its number of tokens."""

    def run(texts: Sequence[str]) -> list[tuple[Any, int]]:
        vectors = embedder.encode_queries(texts) if queries else embedder.encode_documents(texts)
        return list(zip(vectors, embedder.count_tokens(texts), strict=True))

    return run
