"""Reranking for several claims at a time."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CcheckError
from ..stages import RerankerStage
from ..types import Ranking, Usage
from .apply import rerank
from .types import Reranker


def rerank_many(
    queries: Sequence[str],
    rankings: Sequence[Ranking],
    reranker: Reranker,
    stage: RerankerStage,
    name: str,
    before: str,
    previous: Sequence[str],
) -> list[tuple[Ranking, Usage] | CcheckError]:
    """See `rerank`; an error in the place of a query that failed."""
    answers: list[tuple[Ranking, Usage] | CcheckError] = []
    for query, ranking, earlier in zip(queries, rankings, previous, strict=True):
        try:
            answers.append(rerank(query, ranking, reranker, stage, name, before, earlier))
        except CcheckError as error:
            answers.append(error)
    return answers
