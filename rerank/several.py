"""Rerankers over others: a scorer for several queries, a program's function, remembered scores, several as one."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import orjson

from ..core.cache import Memory, memory_key, recall
from ..core.errors import CcheckError, InvalidData
from ..core.fusion import fuse
from ..core.stages import Fusion
from ..core.text import name_of
from .apply import score_many
from .types import BatchReranker, Request, Reranker, Scorer, Scores, all_or_error, not_finite, refuse_equal


def in_turn(scorer: Scorer) -> Scorer:
    """The scorer for any number of threads: one of them has the model at a time."""
    lock = threading.Lock()

    def forward(*asked: Any) -> Any:
        with lock:
            return scorer.forward(*asked)

    return replace(scorer, forward=forward)


class LocalReranker(BatchReranker):
    """Scores passages with a model on this machine. Whoever else uses its `scorer` takes turns with it."""

    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.name
        self.scorer = in_turn(scorer)

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        """The passages of all queries go through the model together, in its own batches of tokens."""
        encoded = [self.scorer.encode(query, passages) for query, passages in requests]
        try:
            values = iter(self.scorer.score([one for some in encoded for one in some]))
        except CcheckError as error:
            if len(requests) == 1:
                return [error]
            return [answer for request in requests for answer in self.many([request])]
        answers: list[Scores | CcheckError] = []
        for some in encoded:
            own = tuple(itertools.islice(values, len(some)))
            try:
                refuse_equal(self.name, (one.ids for one in some), own)
                answers.append(Scores(own, tuple(one.cut for one in some)))
            except CcheckError as error:
                answers.append(error)
        return answers


Row: TypeAlias = tuple[float, bool, bool]
"""A score, whether the passage was cut, and whether it is a logit."""


class RememberedReranker(BatchReranker):
    """Asks another reranker only for the pairs that the memory does not have.

    `identity` stands for everything that its scores depend on beside the texts: weights and options. `together`: they
    depend on the other passages too.
    """

    def __init__(self, reranker: Reranker, memory: Memory, identity: str, *, together: bool = False) -> None:
        self.name = reranker.name
        self._reranker, self._memory, self._identity, self._together = reranker, memory, identity, together

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        pairs = [(place, text) for place, (_, passages) in enumerate(requests) for text in passages]
        beside = [[memory_key(*passages)] if self._together else [] for _, passages in requests]
        keys = [memory_key("rerank", self._identity, requests[place][0], text, *beside[place]) for place, text in pairs]

        def score(missing: Sequence[int]) -> list[Row | CcheckError]:
            asked: dict[int, list[str]] = {}
            for place, text in (pairs[number] for number in missing):
                asked.setdefault(place, []).append(text)
            found = score_many(self._reranker, [(requests[place][0], texts) for place, texts in asked.items()])
            both = zip(found, asked.values(), strict=True)
            return [row for scores, texts in both for row in rows_of(scores, len(texts))]

        rows = iter(recall(self._memory, "rerank", keys, score, orjson.dumps, orjson.loads))
        return [joined(list(itertools.islice(rows, len(passages)))) for _, passages in requests]


def rows_of(scores: Scores | CcheckError, count: int) -> list[Row | CcheckError]:
    """A row for each of so many passages, or the error in its place."""
    if isinstance(scores, CcheckError):
        return [scores] * count
    return list(zip(scores.values, scores.cut, itertools.repeat(scores.logits), strict=False))


def joined(rows: Sequence[Row | CcheckError]) -> Scores | CcheckError:
    """The scores of one query, or the first error."""
    read = all_or_error(rows)
    if isinstance(read, CcheckError):
        return read
    # Some logits may happen to lie in 0..1, and then look like none.
    logits = not read or any(row[2] for row in read)
    return Scores(tuple(row[0] for row in read), tuple(row[1] for row in read), logits)


class EnsembleReranker(BatchReranker):
    """Rerankers that read the same passages: the sum of 1 / (k + rank) (Cormack, Clarke and Büttcher, SIGIR 2009).

    A passage counts as cut where one of them cut it. What one raises is raised.
    """

    def __init__(self, rerankers: Sequence[Reranker], k: int = 60) -> None:
        self._rerankers, self._fusion = tuple(rerankers), Fusion(method="rrf", k=k)
        self.notice = "; ".join(filter(None, (getattr(one, "notice", None) for one in rerankers))) or None
        self.name = f"rrf of {', '.join(reranker.name for reranker in rerankers)}"

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        """One model after the other, each for all queries."""
        by_model = [score_many(reranker, requests) for reranker in self._rerankers]
        return [self._joined(found) for found in zip(*by_model, strict=True)]

    def _joined(self, found: Sequence[Scores | CcheckError]) -> Scores | CcheckError:
        every = all_or_error(found)
        if isinstance(every, CcheckError):
            return every
        rankings = {
            str(number): sorted(enumerate(scores.values), key=lambda item: (-item[1], item[0]))
            for number, scores in enumerate(every)
        }
        fused = dict(fuse(rankings, dict.fromkeys(rankings, 1.0), self._fusion))
        cut = tuple(map(any, zip(*(scores.cut for scores in every), strict=True)))
        return Scores(tuple(fused[place] for place in range(len(cut))), cut, logits=False)


Score: TypeAlias = Callable[[str, Sequence[str]], Sequence[float]]
"""A score for each passage, in order; a higher one is a better match. It can be called in several threads."""


class OwnReranker:
    """A function as a `Reranker`. Whatever it raises is an error of the claim's reranking, never a rank."""

    def __init__(self, function: Score | Reranker) -> None:
        self.name, self.function = name_of(function), function

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        try:
            found = self.function(query, passages)
            values = tuple(map(float, found.values if isinstance(found, Scores) else found))
        except CcheckError:
            raise
        except Exception as error:
            raise InvalidData(f"the reranker {self.name} failed: {type(error).__name__}: {error}") from error
        if len(values) != len(passages):
            raise InvalidData(f"the reranker {self.name} gave {len(values)} scores for {len(passages)} passages")
        if not all(map(math.isfinite, values)):
            raise not_finite(self.name, values)
        if isinstance(found, Scores):
            return found
        return Scores(values, (False,) * len(values), logits=not all(0 <= value <= 1 for value in values))
