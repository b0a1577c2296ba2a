"""A reranker on this machine: a scorer that is called for some queries at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ..errors import CcheckError
from .types import Request, Scorer, Scores, only
from .values import telling


class LocalReranker:
    """Scores passages with a scorer, one caller at a time."""

    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.name
        self._scorer = scorer
        self._lock = threading.Lock()

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """One score for each passage. Raises InvalidData where scores are not finite, or all the same."""
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
                telling(self.name, some, own)
                answers.append(Scores(own, tuple(one.cut for one in some), self._scorer.logits))
            except CcheckError as error:
                answers.append(error)
        return answers
