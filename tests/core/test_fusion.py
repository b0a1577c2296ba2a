"""Fusion and runs, against values that were calculated manually."""

import pytest

from ccheck.core.fusion import fuse, min_max, places_in, projected, ranking_of
from ccheck.core.stages import Fusion
from ccheck.core.types import Document

BM25 = [("a", 9.0), ("b", 6.0), ("c", 3.0)]
DENSE = [("c", 0.9), ("a", 0.5), ("d", 0.4)]
EVEN = {"bm25": 1.0, "dense": 1.0}


@pytest.mark.parametrize(
    ("weights", "fusion", "expected"),
    [
        (EVEN, Fusion(k=60), {"a": 1 / 61 + 1 / 62, "c": 1 / 63 + 1 / 61, "b": 1 / 62, "d": 1 / 63}),
        ({"bm25": 1, "dense": 3}, Fusion(k=1), {"c": 1 / 4 + 3 / 2, "a": 1 / 2 + 3 / 3, "d": 3 / 4, "b": 1 / 3}),
        ({"bm25": 0.5, "dense": 0.5}, Fusion(method="minmax"), {"a": 0.5 + 0.5 * 0.2, "c": 0.5, "b": 0.25, "d": 0.0}),
    ],
)
def test_fused_scores(weights: dict[str, float], fusion: Fusion, expected: dict[str, float]) -> None:
    fused = fuse({"bm25": BM25, "dense": DENSE}, weights, fusion)
    assert dict(fused) == pytest.approx(expected)
    assert [key for key, _ in fused] == list(expected)


def test_equal_scores_keep_the_order_in_which_they_came() -> None:
    assert min_max([("a", 3.0), ("b", 3.0)]) == [1.0, 1.0]
    assert min_max([]) == []
    fused = fuse({"bm25": [("a", 1.0), ("b", 0.5)], "dense": [("b", 1.0), ("a", 0.5)]}, EVEN, Fusion())
    assert [key for key, _ in fused] == ["a", "b"]


def test_parts_of_several_things_and_of_none() -> None:
    belongs = {"p": ["x", "y", "x"], "q": [], "r": ["y"]}
    ranking = [("p", 3.0), ("q", 2.0), ("r", 1.0)]
    assert projected(ranking, belongs.__getitem__, "sum") == [("y", 1 + 1 / 3), ("x", 1.0)]
    assert projected(ranking, belongs.__getitem__, "max") == [("x", 3.0), ("y", 3.0)]
    assert projected([], belongs.__getitem__, "max") == []


def test_a_document_that_is_gone_leaves_no_gap_in_the_ranks() -> None:
    rankings = {"bm25": BM25, "dense": DENSE}
    fused = fuse(rankings, EVEN, Fusion(k=60))
    there = {key: Document(key, "", key) for key in "abd"}
    ranking = ranking_of(fused, places_in(rankings), there, Fusion(k=60))
    assert [(hit.rank, hit.document.id) for hit in ranking.hits] == [(1, "a"), (2, "b"), (3, "d")]
    # What the retrievers said of the others stays as it was.
    assert [dict(hit.ranks) for hit in ranking.hits] == [{"bm25": 1, "dense": 2}, {"bm25": 2}, {"dense": 3}]
    first = ranking.hits[0]
    assert first.score == first.scores["rrf"] == pytest.approx(1 / 61 + 1 / 62)
    assert (first.scores["bm25"], first.scores["dense"]) == (9.0, 0.5)
    assert "rrf" not in ranking_of(BM25, places_in({"bm25": BM25}), there, None).hits[0].scores
