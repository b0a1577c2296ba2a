"""Rerankers on this machine: a model's scorer, and the reranker that calls it for several queries at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.errors import CcheckError
from .packing import best_of_windows
from .types import Encoded, Forward, Pairs, Request, Scorer, Scores, only
from .values import finite, refuse_equal


@dataclass(frozen=True, slots=True)
class ModelScorer:
    """The `Scorer` of a model: how pairs become ids, and the forward pass that scores them."""

    name: str
    pairs: Pairs
    forward: Forward
    max_tokens: int
    logits: bool = True

    def encode(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        return self.pairs(query, passages)

    def score(self, encoded: Sequence[Encoded]) -> list[float]:
        return finite(self.name, best_of_windows(encoded, self.forward))


class LocalReranker:
    """Scores passages with a model, for one caller at a time."""

    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.name
        self._scorer = scorer
        self._lock = threading.Lock()

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """One score for each passage. Raises InvalidData if scores are not finite, or all the same."""
        return only(self.many([(query, passages)]))

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        """The passages of all queries go through the model together, in its own batches of tokens."""
        encoded = [self._scorer.encode(query, passages) for query, passages in requests]
        try:
            with self._lock:
                values = iter(self._scorer.score([one for some in encoded for one in some]))
        except CcheckError as error:
            if len(requests) == 1:
                return [error]
            return [answer for request in requests for answer in self.many([request])]
        answers: list[Scores | CcheckError] = []
        for some in encoded:
            own = tuple(next(values) for _ in some)
            try:
                refuse_equal(self.name, some, own)
                answers.append(Scores(own, tuple(one.cut for one in some), self._scorer.logits))
            except CcheckError as error:
                answers.append(error)
        return answers
