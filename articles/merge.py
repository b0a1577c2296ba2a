"""Merging several rankings of one article's elements into one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

from ..core.fusion import Scored
from ..core.grounding_stages import FiguresStage

Key = TypeVar("Key", bound=Hashable)


def merged(rankings: Sequence[Scored[Key]], weights: Sequence[float], stage: FiguresStage) -> list[tuple[Key, float]]:
    """One ranking, best first, as `stage.merge` says (see `FiguresStage`). A single ranking stays as it is.

    Equal scores keep the order in which the keys first came up. Round robin's score is 1 / rank.
    """
    if len(rankings) == 1:
        return list(rankings[0])
    if stage.merge in ("round-robin", "top-k"):
        grows = stage.merge == "round-robin"
        keys = _in_turn([[key for key, _ in ranking] for ranking in rankings], 1 if grows else stage.k, grows)
        return [(key, 1 / rank) for rank, key in enumerate(keys, 1)]
    totals: dict[Key, float] = {}
    for place, (ranking, weight) in enumerate(zip(rankings, weights, strict=True)):
        best = max((score for _, score in ranking), default=0.0)
        for rank, (key, score) in enumerate(ranking, 1):
            if stage.merge == "rank-and-score":
                share = 1 / (rank * stage.s**place)
            else:
                share = weight * max(score, 0.0) / best if best > 0 else 0.0
            totals[key] = totals.get(key, 0.0) + share
    return sorted(totals.items(), key=lambda item: -item[1])


def _in_turn(rankings: Sequence[Sequence[Key]], portion: int, grows: bool) -> list[Key]:
    """Takes the new keys in each ranking's next `portion`, in passes. If `grows`, it is one larger with each pass."""
    keys: dict[Key, None] = {}
    start = 0
    while any(start < len(ranking) for ranking in rankings):
        for ranking in rankings:
            keys.update(dict.fromkeys(ranking[start : start + portion]))
        start += portion
        portion += grows
    return list(keys)
