"""Putting a reranker's scores into a ranking."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import CcheckError
from ..stages import ListwiseReranker, RerankerStage
from ..types import Document, Hit, Ranking, Usage
from .types import AnyReranker, BatchReranker, HitReranker, Request, Reranker, Scores, only


def passage_of(document: Document) -> str:
    """What a reranker reads of a document: its title and text."""
    return f"{document.title} {document.text}" if document.title else document.text


def rerank(
    query: str,
    ranking: Ranking,
    reranker: AnyReranker,
    stage: RerankerStage,
    name: str,
    before: str,
    previous: str = "",
) -> tuple[Ranking, Usage]:
    """See `rerank_many`. Raises what the reranker raises."""
    return only(rerank_many([query], [ranking], reranker, stage, name, before, [previous]))


def rerank_many(
    queries: Sequence[str],
    rankings: Sequence[Ranking],
    reranker: AnyReranker,
    stage: RerankerStage,
    name: str,
    before: str,
    previous: Sequence[str],
) -> list[tuple[Ranking, Usage] | CcheckError]:
    """Rankings with their first `stage.depth` documents in the order of the reranker's scores; the others come after.

    `name` is the stage's, under which `Hit.scores` has the raw score; `Hit.score` is the one in 0..1. `before` is what
    `Hit.ranks` calls the place that a document had before any reranker. A language model's order is fused with the
    scores of the stage that came before (`previous`), else with those of the ranking. An error in the place of a query
    for which the reranker failed.
    """
    heads = [ranking.hits[: stage.depth] for ranking in rankings]
    answers: list[tuple[Ranking, Usage] | CcheckError] = []
    for head, ranking, earlier, scores in zip(
        heads, rankings, previous, _scored(reranker, queries, heads), strict=True
    ):
        if isinstance(scores, CcheckError):
            answers.append(scores)
            continue
        if isinstance(stage, ListwiseReranker):
            from .listwise import fuse_scores

            # As they came from the model: sigmoids are nearly equal where it is sure.
            known = all(earlier in hit.scores for hit in head)
            fused = fuse_scores(
                [hit.scores[earlier] if known else hit.score for hit in head], scores.values, stage.alpha
            )
            scores = replace(scores, values=tuple(fused))
        answers.append((reordered(ranking, scores, name, before), scores.usage))
    return answers


def _scored(
    reranker: AnyReranker, queries: Sequence[str], heads: Sequence[Sequence[Hit]]
) -> list[Scores | CcheckError]:
    if isinstance(reranker, HitReranker):
        asked = zip(queries, heads, strict=True)
        return [_caught(functools.partial(reranker.score_hits, query, head)) for query, head in asked]
    requests = [(query, [passage_of(hit.document) for hit in head]) for query, head in zip(queries, heads, strict=True)]
    return score_many(reranker, requests)


def score_many(reranker: Reranker, requests: Sequence[Request]) -> list[Scores | CcheckError]:
    """The scores of each request, together where the reranker can; an error in the place of one that failed."""
    if isinstance(reranker, BatchReranker):
        return reranker.many(requests)
    return [_caught(functools.partial(reranker, query, passages)) for query, passages in requests]


def _caught(score: Callable[[], Scores]) -> Scores | CcheckError:
    try:
        return score()
    except CcheckError as error:
        return error


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
