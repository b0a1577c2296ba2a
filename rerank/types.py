"""The types for reranking: rerankers, their scores, and the scorers of models on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from ..core.errors import CcheckError
from ..core.types import Usage


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of some passages for one query, in the order in which the passages were given.

    `values` are as the model gives them; a higher one is a better match. `cut` tells which passages did not fit the
    model, so that only a part was scored. `logits`: the values are unbounded, and their sigmoid is between 0 and 1;
    otherwise they are in 0..1 themselves. `usage`: that of the language model that gave them.
    """

    values: tuple[float, ...]
    cut: tuple[bool, ...]
    logits: bool = True
    usage: Usage = field(default_factory=Usage)

    @property
    def normalized(self) -> tuple[float, ...]:
        """Between 0 and 1: the sigmoid of logits, other values as they are."""
        return tuple(map(sigmoid, self.values)) if self.logits else self.values


class Reranker(Protocol):
    """Scores passages for a query. Results show its `name`."""

    name: str

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """One finite score for each passage, in the order given.

        Raises CcheckError; InvalidData where the scores make no sense (NaN, or all the same for different passages).
        """
        ...


T = TypeVar("T")
Request: TypeAlias = tuple[str, Sequence[str]]
"""A query and its passages."""


@runtime_checkable
class BatchReranker(Reranker, Protocol):
    """A reranker that scores several queries together at less cost than one by one."""

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        """The scores of each request, or its error."""
        ...


def only(answers: Sequence[T | CcheckError]) -> T:
    """The answer of a batch of one. Raises it if it is an error."""
    (answer,) = answers
    if isinstance(answer, CcheckError):
        raise answer
    return answer


@dataclass(frozen=True, slots=True)
class Encoded:
    """A passage with its query as a model's token ids: one sequence, or several windows, where the best one counts.

    The first `prefix` ids of each sequence are the query's; `cut` says that what was given did not fit.
    """

    sequences: tuple[tuple[int, ...], ...]
    cut: bool
    prefix: int = 0

    @property
    def tokens(self) -> int:
        return sum(map(len, self.sequences))


Pairs: TypeAlias = Callable[[str, Sequence[str]], list[Encoded]]
"""Tokenises a query with each of its passages. Safe in several threads at a time."""
Forward: TypeAlias = Callable[[Sequence[tuple[int, ...]], Sequence[int]], Iterable[tuple[int, float]]]
"""Scores sequences of ids, given with the length of each one's prefix: (place of the sequence, score), in any order."""


class Scorer(Protocol):
    """A reranking model on this machine. Tokenising and scoring are apart, so that a server can do them in different
    threads. `max_tokens`: the most ids of a pair that are read, a decoder's prompt not counted."""

    @property
    def name(self) -> str: ...

    @property
    def logits(self) -> bool: ...

    @property
    def max_tokens(self) -> int: ...

    def encode(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        """Tokenise: one for each passage. Safe in several threads at a time."""
        ...

    def score(self, encoded: Sequence[Encoded]) -> list[float]:
        """One value for each, whatever queries they come from; those of one query side by side are cheapest.

        A value does not depend on what is scored beside it, except for rounding. In one thread at a time. Raises
        InvalidData where a value is not finite.
        """
        ...


def sigmoid(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))
