"""The types for reranking: rerankers, their scores, and the scorers of models on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from ..core.errors import CcheckError, InvalidData, ServerError
from ..core.types import Usage


class WrongKey(ServerError):
    """A reranker's server refuses the key, or knows no such model, and would for every query."""


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


class BatchReranker:
    """A reranker that scores several queries together at less cost than one by one."""

    name: str

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """See `Reranker`."""
        (answer,) = self.many([(query, passages)])
        if isinstance(answer, CcheckError):
            raise answer
        return answer

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        """The scores of each request, or its error."""
        raise NotImplementedError


def all_or_error(found: Iterable[T | CcheckError]) -> list[T] | CcheckError:
    """The values, or the first error among them."""
    values: list[T] = []
    for one in found:
        if isinstance(one, CcheckError):
            return one
        values.append(one)
    return values


@dataclass(frozen=True, slots=True)
class Encoded:
    """A passage with its query as a model's token ids.

    The first `prefix` ids are the query's; `cut` says that what was given did not fit.
    """

    ids: tuple[int, ...]
    cut: bool
    prefix: int = 0


Pairs: TypeAlias = Callable[[str, Sequence[str]], list[Encoded]]
"""Tokenises a query with each of its passages. Safe in several threads at a time."""
Forward: TypeAlias = Callable[[Sequence[tuple[int, ...]], Sequence[int]], Iterable[tuple[int, float]]]
"""Scores sequences of ids, given with the length of each one's prefix: (place of the sequence, score), in any order."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """A reranking model on this machine: how pairs become ids, and the forward pass whose values are logits.

    Tokenising and scoring are apart, so that a server can do them in different threads. `max_tokens`: the most ids of a
    pair that are read, a decoder's prompt not counted. `at_once`: how many threads may score at a time.
    """

    name: str
    encode: Pairs
    forward: Forward
    max_tokens: int
    at_once: int = 1

    def score(self, encoded: Sequence[Encoded]) -> list[float]:
        """One value for each, whatever queries they come from; those of one query side by side are cheapest.

        A value does not depend on what is scored beside it, except for rounding; equal ids are scored once. In one
        thread at a time, or `at_once`. Raises InvalidData where a value is not finite.
        """
        places: dict[tuple[tuple[int, ...], int], int] = {}
        for one in encoded:
            places.setdefault((one.ids, one.prefix), len(places))
        scored = dict(self.forward([ids for ids, _ in places], [prefix for _, prefix in places]))
        values = [scored[places[one.ids, one.prefix]] for one in encoded]
        if not all(map(math.isfinite, values)):
            raise not_finite(self.name, values)
        return values


def not_finite(name: str, values: Sequence[float]) -> InvalidData:
    """The error for scores of which one is NaN or infinite: an invalid score is never a rank."""
    wrong = sum(not math.isfinite(value) for value in values)
    return InvalidData(
        f"the reranker {name} gave {wrong} of {len(values)} passages a score that is not finite: its weights are "
        "broken, or too large for the precision (try float32)"
    )


def refuse_equal(name: str, read: Iterable[Hashable], values: Sequence[float]) -> None:
    """Raises InvalidData if passages that differ for the model (as it `read` them) all have the same score."""
    if len(set(values)) == 1 and len(set(read)) > 1:
        raise InvalidData(
            f"the reranker {name} scored every passage the same ({values[0]:g}, {len(values)} passages): the "
            "model is loaded wrongly or ignores the passages"
        )


def sigmoid(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))
