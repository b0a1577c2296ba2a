"""Joining several retrievers' rankings into one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from .stages import Fusion
from .types import Document, Hit, Ranking

Key = TypeVar("Key", bound=Hashable)
Scored = Sequence[tuple[Key, float]]
"""Keys with their scores, best first."""


def fuse(rankings: Mapping[str, Scored[Key]], weights: Mapping[str, float], fusion: Fusion) -> list[tuple[Key, float]]:
    """One ranking out of several, best first; equal scores keep the order in which the keys first came up."""
    totals: dict[Key, float] = {}
    for name, ranking in rankings.items():
        shares = reciprocal_ranks(ranking, fusion.k) if fusion.method == "rrf" else min_max(ranking)
        for (key, _), share in zip(ranking, shares, strict=True):
            totals[key] = totals.get(key, 0.0) + weights[name] * share
    return sorted(totals.items(), key=lambda item: -item[1])


def reciprocal_ranks(ranking: Scored[Key], k: int) -> list[float]:
    """1 / (k + rank), ranks from 1: reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""
    return [1.0 / (k + rank) for rank in range(1, len(ranking) + 1)]


def min_max(ranking: Scored[Key]) -> list[float]:
    """The scores scaled to 0..1 over this ranking; all 1 where they are equal."""
    scores = [score for _, score in ranking]
    if not scores:
        return []
    low, high = min(scores), max(scores)
    return [1.0] * len(scores) if high == low else [(score - low) / (high - low) for score in scores]


def ranking_of(
    top: Scored[Key], rankings: Mapping[str, Scored[Key]], documents: Mapping[Key, Document], fusion: Fusion | None
) -> Ranking:
    """The hits of the best keys, with their place in each retriever's ranking; `fusion` where one joined them.

    A key without a document, which another process removed since it was found, is left out.
    """
    places = {
        name: {key: (rank, score) for rank, (key, score) in enumerate(ranking, 1)} for name, ranking in rankings.items()
    }
    hits: list[Hit] = []
    for key, total in top:
        if key not in documents:
            continue
        scores = {name: places[name][key][1] for name in places if key in places[name]}
        ranks = {name: places[name][key][0] for name in places if key in places[name]}
        if fusion is not None:
            scores[fusion.method] = total
        hits.append(Hit(len(hits) + 1, documents[key], total, scores, ranks))
    return Ranking(tuple(hits))
