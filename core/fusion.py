"""Joining several retrievers' rankings into one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from .stages import Fusion
from .types import Document, Hit, Ranking, Unit

Key = TypeVar("Key", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)
Parent = TypeVar("Parent", bound=Hashable)
Scored = Sequence[tuple[Key, float]]
"""Keys with their scores, best first."""


def fuse(
    rankings: Mapping[Name, Scored[Key]], weights: Mapping[Name, float], fusion: Fusion
) -> list[tuple[Key, float]]:
    """One ranking out of several, best first; equal scores keep the order in which the keys first came up."""
    totals: dict[Key, float] = {}
    for name, ranking in rankings.items():
        # 1 / (k + rank): reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)
        shares = (1.0 / (fusion.k + rank) for rank in range(1, len(ranking) + 1))
        for (key, _), share in zip(ranking, shares if fusion.method == "rrf" else min_max(ranking), strict=True):
            totals[key] = totals.get(key, 0.0) + weights[name] * share
    return sorted(totals.items(), key=lambda item: -item[1])


def min_max(ranking: Scored[Key]) -> list[float]:
    """The scores scaled to 0..1 over this ranking; all 1 if they are equal."""
    scores = [score for _, score in ranking]
    if not scores:
        return []
    low, high = min(scores), max(scores)
    return [1.0] * len(scores) if high == low else [(score - low) / (high - low) for score in scores]


Projection: TypeAlias = Literal["max", "sum", "first"]


def projected(
    ranking: Scored[Key], parents: Callable[[Key], Iterable[Parent]], how: Projection
) -> list[tuple[Parent, float]]:
    """A ranking of parts as one of what they belong to, best first; equal scores keep the order of first mention.

    `parents` gives those of a part, in order. `max`: the score of the best part. `sum`: the sum of 1 / rank over
    the parts. `first`: 1 / rank of the first part.
    """
    scores: dict[Parent, float] = {}
    for rank, (key, score) in enumerate(ranking, 1):
        for parent in dict.fromkeys(parents(key)):
            share = score if how == "max" else 1.0 / rank
            if parent not in scores:
                scores[parent] = share
            elif how == "sum":
                scores[parent] += share
            elif how == "max":
                scores[parent] = max(scores[parent], share)
    return sorted(scores.items(), key=lambda item: -item[1])


Places: TypeAlias = Mapping[str, Mapping[Key, tuple[int, float]]]
"""The rank and score of keys in each retriever's ranking, by the retriever's name."""


def places_in(rankings: Mapping[str, Scored[Key]]) -> Places[Key]:
    """The places of all keys of these rankings."""
    return {
        name: {key: (rank, score) for rank, (key, score) in enumerate(ranking, 1)} for name, ranking in rankings.items()
    }


def ranking_of(
    top: Scored[Key],
    places: Places[Key],
    documents: Mapping[Key, Document],
    fusion: Fusion | None,
    units: Mapping[Key, Unit] | None = None,
) -> Ranking:
    """The hits of the best keys, with their places in each retriever's ranking; `fusion` where one joined them.

    `units` has the unit of each key, where units were ranked. A key without a document, which another process removed
    since it was found, is left out.
    """
    hits: list[Hit] = []
    for key, total in top:
        if key not in documents:
            continue
        found = {name: place[key] for name, place in places.items() if key in place}
        scores = {name: score for name, (_, score) in found.items()}
        if fusion is not None:
            scores[fusion.method] = total
        ranks = {name: rank for name, (rank, _) in found.items()}
        hits.append(Hit(len(hits) + 1, documents[key], total, scores, ranks, unit=(units or {}).get(key)))
    return Ranking(tuple(hits))
