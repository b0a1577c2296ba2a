"""Putting a reranker's scores into a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..stages import ListwiseReranker, RerankerStage
from ..types import Document, Hit, Ranking, Usage
from .types import Reranker, Scores


def passage_of(document: Document) -> str:
    """What a reranker reads of a document: its title and text."""
    return f"{document.title} {document.text}" if document.title else document.text


def rerank(
    query: str, ranking: Ranking, reranker: Reranker, stage: RerankerStage, name: str, before: str, previous: str = ""
) -> tuple[Ranking, Usage]:
    """The ranking with its first `stage.depth` documents in the order of the reranker's scores; the others come after.

    `name` is the stage's, under which `Hit.scores` has the raw score; `Hit.score` is the one in 0..1. `before` is what
    `Hit.ranks` calls the place that a document had before any reranker. A language model's order is fused with the
    scores of the stage `previous`, else with those of the ranking. Raises what the reranker raises.
    """
    head = ranking.hits[: stage.depth]
    scores = reranker(query, [passage_of(hit.document) for hit in head])
    if isinstance(stage, ListwiseReranker):
        from .listwise import fuse_scores

        # As they came from the model: sigmoids are nearly equal where it is sure.
        known = all(previous in hit.scores for hit in head)
        fused = fuse_scores([hit.scores[previous] if known else hit.score for hit in head], scores.values, stage.alpha)
        scores = replace(scores, values=tuple(fused))
    return reordered(ranking, scores, name, before), scores.usage


def reordered(ranking: Ranking, scores: Scores, name: str, before: str) -> Ranking:
    """The ranking by scores of its first documents. Equal scores keep their order."""
    head = [
        replace(
            hit,
            score=normalized,
            scores={**hit.scores, name: value},
            ranks={before: hit.rank, **hit.ranks} if before not in hit.ranks else hit.ranks,
            cut=(*hit.cut, name) if cut else hit.cut,
        )
        for hit, value, normalized, cut in zip(ranking.hits, scores.values, scores.normalized, scores.cut, strict=False)
    ]
    head.sort(key=lambda hit: -hit.scores[name])
    return Ranking(tuple(replace(hit, rank=rank) for rank, hit in enumerate([*head, *_below(head, ranking)], 1)))


def _below(head: Sequence[Hit], ranking: Ranking) -> list[Hit]:
    """The documents that were not read. Their scores are of another kind; none may be above the last that was read."""
    lowest = head[-1].score if head else float("inf")
    return [replace(hit, score=min(hit.score, lowest)) for hit in ranking.hits[len(head) :]]
