"""Putting a reranker's scores into a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.errors import CcheckError
from ..core.fusion import fuse, min_max
from ..core.stages import Fusion, LateStage, RerankerStage
from ..core.types import Hit
from .types import BatchReranker, Request, Reranker, Scores

_MINMAX = Fusion(method="minmax")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reranker stands. `name` is the stage's, under which `Hit.scores` has the raw score. `before` is what
    `Hit.ranks` calls the place that a document had before any reranker. `retrievers` have their weights."""

    name: str
    before: str
    retrievers: Mapping[str, float] = field(default_factory=dict)


def reranked(
    hits: Sequence[Hit], scores: Scores, stage: RerankerStage, place: Place, earlier: str = ""
) -> tuple[Hit, ...]:
    """The hits with those that were scored, the first ones, in the order of their scores; the others come after.

    `Hit.score` is the score in 0..1. With the stage's `alpha` the order and `Hit.score` are those of `interpolated`
    with the scores of the reranker that came before (`earlier`, its name or empty), else with those of the ranking, or
    if the stage says so with those of the retrievers. Equal ones stay as they are.
    """
    by: Sequence[float] = scores.values
    shown: Sequence[float]
    if not stage.alpha:
        shown = scores.normalized
    else:
        head = hits[: stage.depth]
        own = place.retrievers if isinstance(stage, LateStage) and stage.before == "retrievers" else {}
        by = shown = interpolated(_of_retrievers(head, own) or _before(head, earlier), scores.values, stage.alpha)
    read = [
        replace(
            hit,
            score=score,
            scores={**hit.scores, place.name: value},
            ranks={place.before: hit.rank} | dict(hit.ranks),
            cut=(*hit.cut, place.name) if cut else hit.cut,
        )
        for hit, value, score, cut in zip(hits, scores.values, shown, scores.cut, strict=False)
    ]
    read = [hit for _, hit in sorted(zip(by, read, strict=True), key=lambda pair: -pair[0])]
    # The documents that were not read have scores of another kind: none may be above the last that was read.
    lowest = read[-1].score if read else float("inf")
    below = [replace(hit, score=min(hit.score, lowest)) for hit in hits[len(read) :]]
    return tuple(replace(hit, rank=rank) for rank, hit in enumerate([*read, *below], 1))


def interpolated(before: Sequence[float], own: Sequence[float], alpha: float) -> list[float]:
    """alpha * before + (1 - alpha) * own, both scaled to 0..1 over these passages by their minimum and maximum.

    It is equation 5 of ClimateCheck's hybrid system (Kiepura and Lam, 2025), which calls the scores normalised and does
    not say how: scaled so, alpha is the share that it says, where sigmoids would be nearly equal for a model that is
    sure. Equal scores are all 1.
    """
    old, new = (min_max(list(enumerate(scores))) for scores in (before, own))
    return [alpha * one + (1 - alpha) * other for one, other in zip(old, new, strict=True)]


def _before(head: Sequence[Hit], earlier: str) -> list[float]:
    """The scores that made the order: as they came from the model where they alone did, since sigmoids are nearly equal
    where it is sure."""
    if all(earlier in hit.scores for hit in head):
        raw = [hit.scores[earlier] for hit in head]
        if raw == sorted(raw, reverse=True):
            return raw
    return [hit.score for hit in head]


def _of_retrievers(head: Sequence[Hit], weights: Mapping[str, float]) -> list[float]:
    """The weighted sum of the retrievers' scores, each scaled to 0..1 over the hits that it found; 0 for others.

    Nothing if no retriever's scores are known.
    """
    found = {
        name: [(place, hit.scores[name]) for place, hit in enumerate(head) if name in hit.scores] for name in weights
    }
    total = dict(fuse(found, weights, _MINMAX))
    return [total.get(place, 0.0) for place in range(len(head))] if total else []


def score_many(reranker: Reranker, requests: Sequence[Request]) -> list[Scores | CcheckError]:
    """The scores of each request, together where the reranker can; an error in place of one that failed."""
    if isinstance(reranker, BatchReranker):
        return reranker.many(requests)
    answers: list[Scores | CcheckError] = []
    for query, passages in requests:
        try:
            answers.append(reranker(query, passages))
        except CcheckError as error:
            answers.append(error)
    return answers
