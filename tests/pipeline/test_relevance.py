"""The probability that something in the collection bears on a claim."""

from __future__ import annotations

import dataclasses

from ccheck.core.stages import Bm25, Dense
from ccheck.core.types import Document, Hit
from ccheck.pipeline import relevance

RETRIEVERS = {"bm25": Bm25(), "dense": Dense()}
CLAIM = "Sea level rose by twenty centimetres during the last century."
WEIGHTS = f"{relevance.CALIBRATED}00"


def hits(*found: tuple[str, float, float]) -> list[Hit]:
    """Hits of (text, BM25 score, cosine), best first."""
    return [
        Hit(
            rank,
            Document(str(rank), "", text),
            1 / rank,
            {"bm25": bm25, "dense": cosine},
            {"bm25": rank, "dense": rank},
        )
        for rank, (text, bm25, cosine) in enumerate(found, 1)
    ]


NEAR = hits(("Global sea level rose twenty centimetres in the last century.", 30.0, 0.85), ("Seas.", 8.0, 0.4))
FAR = hits(("Mice lack the receptor.", 2.0, 0.08), ("Cells divide in the last phase.", 1.9, 0.07))


def test_what_says_the_same_is_relevant_and_what_shares_a_word_is_not():
    assert relevance.relevance(CLAIM, NEAR, RETRIEVERS, WEIGHTS) > 0.6
    assert relevance.relevance(CLAIM, FAR, RETRIEVERS, WEIGHTS) < 0.1
    assert relevance.relevance(CLAIM, [], RETRIEVERS, WEIGHTS) == 0.0


def test_cosines_of_other_models_do_not_count():
    nearer = [dataclasses.replace(hit, scores={**hit.scores, "dense": 0.99}) for hit in FAR]
    assert relevance.relevance(CLAIM, nearer, RETRIEVERS, WEIGHTS) > 0.3
    other = relevance.relevance(CLAIM, nearer, RETRIEVERS, "another")
    assert other == relevance.relevance(CLAIM, FAR, RETRIEVERS, "another") < 0.3


def test_nothing_depends_on_the_height_of_bm25_scores():
    """They grow with the collection."""
    higher = [dataclasses.replace(hit, scores={**hit.scores, "bm25": 3 * hit.scores["bm25"]}) for hit in NEAR]
    one, other = (relevance.relevance(CLAIM, some, RETRIEVERS, WEIGHTS) for some in (NEAR, higher))
    assert abs(one - other) < 1e-9
