"""The local store's own indices against what they stand for, computed plainly."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ccheck.search.local.bm25 import MAX_EXPANSIONS, Dictionary, allowed_edits
from ccheck.search.local.vectors import SparseIndex

VOCABULARY = 300


def alignment(a: str, b: str) -> int:
    """The edits between two words by the textbook's table, swaps of neighbours among them."""
    table = [[max(i, j) if 0 in (i, j) else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            different = a[i - 1] != b[j - 1]
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + different)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i][j] = min(table[i][j], table[i - 2][j - 2] + 1)
    return table[-1][-1]


def test_the_terms_near_one_are_all_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccheck.search.local.bm25.MAX_EXPANSIONS", 10_000)
    draw = random.Random(1)

    def word() -> str:
        return "".join(draw.choice("abé𝒳1") for _ in range(draw.randint(1, 7)))

    words = sorted({word() for _ in range(1_000)} | {"x" * 300})
    dictionary = Dictionary([(one, 1) for one in words], len(words))
    for asked in [word() for _ in range(40)]:
        for edits in (1, 2):
            distances = {one: alignment(asked, one) for one in words if len(one) < 300}
            expected = {
                one: 1 - distance / min(len(one), len(asked)) if distance else 1.0
                for one, distance in distances.items()
                if distance <= edits
            }
            found = dict(dictionary.expand(asked, edits))
            assert found == pytest.approx({one: boost for one, boost in expected.items() if boost > 0})


def test_frequent_terms_lend_their_weight() -> None:
    dictionary = Dictionary([("zebra", 90), ("zebro", 1), ("giraffe", 5)], 100)
    found = dict(dictionary.expand("zebro", 1))
    rare, common = (np.log(1 + (100 - n + 0.5) / (n + 0.5)) for n in (1, 90))
    assert found == {"zebro": pytest.approx(common / rare), "zebra": pytest.approx(1 - 1 / 5)}


def test_the_nearest_terms_come_first_then_by_their_bytes() -> None:
    words = [f"word{a}{b}" for a in "zyx𝒳é" for b in "abcdefghijklmnop"]
    found = [term for term, _ in Dictionary([(one, 1) for one in [*words, "words"]], 81).expand("word", 2)]
    assert found == ["words", *sorted(words, key=str.encode)][:MAX_EXPANSIONS]


def test_an_empty_dictionary_and_odd_terms() -> None:
    assert Dictionary([], 0).expand("word", 2) == []
    dictionary = Dictionary([("word", 200)], 100)  # documents that are gone still count for a term
    assert dictionary.expand("word", 1) == [("word", 1.0)]
    assert dictionary.expand("x" * 40_000, 2) == [("x" * 40_000, 1.0)]
    assert [allowed_edits("x" * n, "auto") for n in (1, 2, 3, 5, 6)] == [0, 0, 1, 1, 2]
    assert [allowed_edits("x", fuzziness) for fuzziness in (0, 1, 2)] == [0, 1, 2]


# -- sparse vectors


def draw_matrix(rows: int, seed: int = 0) -> np.ndarray:
    """Weights of `rows` documents by their seq; the first has none, since there is no seq 0."""
    generator = np.random.default_rng(seed)
    matrix = np.where(generator.random((rows, VOCABULARY)) < 0.05, generator.gamma(2.0, 0.5, (rows, VOCABULARY)), 0)
    matrix[0] = 0
    return matrix.astype(np.float32)


def expected(matrix: np.ndarray, query: np.ndarray, depth: int) -> list[tuple[int, float]]:
    scores = matrix @ query
    best = sorted((seq for seq in range(len(matrix)) if scores[seq] > 0), key=lambda seq: (-scores[seq], seq))
    return [(seq, pytest.approx(scores[seq], rel=1e-5)) for seq in best[:depth]]


def index_of(matrix: np.ndarray) -> SparseIndex:
    """The rows of a matrix by their number, as the store has them."""
    seqs, tokens = np.nonzero(matrix)
    starts = np.flatnonzero(np.r_[True, seqs[1:] != seqs[:-1]])
    rows = np.stack([tokens, matrix[seqs, tokens]], axis=1).astype(np.float32)
    return SparseIndex(rows, starts, seqs[starts], seqs[starts])


def test_sparse_search_is_exact_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccheck.search.local.vectors.ROWS_AT_ONCE", 256)
    matrix = draw_matrix(520)
    matrix[100:140] = 0  # documents without a vector
    queries = draw_matrix(6, seed=1)[1:]
    index = index_of(matrix)
    for allowed in (np.ones(520, np.bool_), np.arange(520) % 3 > 0, np.arange(520) % 50 == 0):
        for depth in (1, 13, 1000):
            found = index.search(queries, depth, allowed)
            assert found == [expected(matrix * allowed[:, None], query, depth) for query in queries]


def test_equal_scores_are_in_the_order_of_ingest() -> None:
    matrix = np.zeros((50, VOCABULARY), np.float32)
    matrix[1:, 3] = 1.0
    matrix[40, 3] = 2.0
    (found,) = index_of(matrix).search(matrix[1:2], 5)
    assert [seq for seq, _ in found] == [40, 1, 2, 3, 4]
