"""The local store's own indices against what they stand for, computed plainly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_entries import replace_bytes

from ccheck.core.errors import InvalidData
from ccheck.core.types import SparseVector
from ccheck.search.local import sparse
from ccheck.search.local.files import Damaged, Verified
from ccheck.search.local.fuzzy import MAX_EXPANSIONS, Dictionary, allowed_edits

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
    monkeypatch.setattr("ccheck.search.local.fuzzy.MAX_EXPANSIONS", 10_000)
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


def batches_of(matrix: np.ndarray, first: int = 0) -> list[sparse.Batch]:
    """The rows of a matrix as the database has them: five documents in each row of its table, from that row on."""
    found = []
    for number in range(first, -(-len(matrix) // 5)):
        some = [(seq, vector(matrix[seq])) for seq in range(5 * number, min(5 * number + 5, len(matrix)))]
        batch = sparse.Batch.of(some)
        if batch is not None:
            found.append(replace(batch, number=number))
    return found


def vector(row: np.ndarray) -> SparseVector:
    ids = np.flatnonzero(row)
    return SparseVector(ids.astype(np.int32), row[ids].astype(np.float32))


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


def caught_up(folder: Path, matrix: np.ndarray, named: list[sparse.Named]) -> list[sparse.Named]:
    """The segments of these documents, when `named` are there."""
    return sparse.catch_up(folder, VOCABULARY, named, lambda number: batches_of(matrix, number), Verified())


def open_index(folder: Path, matrix: np.ndarray, named: list[sparse.Named]) -> sparse.SparseIndex:
    chain = [sparse.open_segment(folder, one, VOCABULARY, Verified()) for one in named]
    rest = batches_of(matrix, named[-1].upto if named else 0)
    return sparse.SparseIndex.open(chain, VOCABULARY, matrix.any(axis=1), rest)


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "SEGMENT_FROM", 10)
    monkeypatch.setattr(sparse, "SEGMENT_DOCUMENTS", 25)
    monkeypatch.setattr(sparse, "FAN", 3)
    monkeypatch.setattr(sparse, "POSTINGS_COPIED", 64)


def test_sparse_search_is_exact_over_segments_that_merge(small_segments: None, tmp_path: Path) -> None:
    matrix = draw_matrix(520)
    matrix[100:140] = 0  # documents without a vector
    queries = draw_matrix(6, seed=1)[1:]
    counts = []
    named: list[sparse.Named] = []
    for length in (5, 60, 61, 75, 200, 333, 520):
        stored = matrix[:length]
        named = caught_up(tmp_path, stored, named)
        sparse.sweep(tmp_path, named)
        index = open_index(tmp_path, stored, named)
        counts.append(len(index.parts))
        gone = stored.copy()
        gone[7:20] = 0
        allowed = gone.any(axis=1)
        for query in queries:
            for depth in (1, 13, 1000):
                assert index.search(vector(query), depth) == expected(stored, query, depth)
                assert index.search(vector(query), depth, allowed) == expected(gone, query, depth)
    assert max(counts) < 10
    assert {file.name for file in (tmp_path / "sparse").iterdir()} == {one.file for one in named}


def test_equal_scores_are_in_the_order_of_ingest(tmp_path: Path) -> None:
    matrix = np.zeros((50, VOCABULARY), np.float32)
    matrix[1:, 3] = 1.0
    matrix[40, 3] = 2.0
    found = open_index(tmp_path, matrix, []).search(vector(matrix[1]), 5)
    assert [seq for seq, _ in found] == [40, 1, 2, 3, 4]


@pytest.mark.parametrize("damage", ["cut short", "garbage", "empty", "missing", "one bit", "swapped", "vocabulary"])
def test_segments_that_are_not_as_written_are_noticed(small_segments: None, tmp_path: Path, damage: str) -> None:
    matrix = draw_matrix(520)
    named = caught_up(tmp_path, matrix, [])
    assert len(named) > 1
    file = tmp_path / "sparse" / named[0].file
    data = bytearray(file.read_bytes())
    if damage == "cut short":
        del data[-4:]
    elif damage == "garbage":
        data = bytearray(b"\1" * len(data))
    elif damage == "empty":
        data.clear()
    elif damage == "one bit":
        data[-len(data) // 3] ^= 1
    elif damage == "swapped":
        data = bytearray((tmp_path / "sparse" / named[1].file).read_bytes())
    elif damage == "vocabulary":
        with pytest.raises(Damaged, match="not the segment"):
            sparse.open_segment(tmp_path, named[0], VOCABULARY + 1, Verified())
        return
    replace_bytes(file, data)
    if damage == "missing":
        file.unlink()
    with pytest.raises(Damaged, match=r"\.lists") as error:
        open_index(tmp_path, matrix, named).search(vector(matrix.max(axis=0)), 10)
    assert error.value.derived


def test_merging_takes_over_no_damage(small_segments: None, tmp_path: Path) -> None:
    matrix = draw_matrix(520)
    named = caught_up(tmp_path, matrix[:60], [])
    file = tmp_path / "sparse" / named[-1].file
    data = bytearray(file.read_bytes())
    data[-200] ^= 1
    replace_bytes(file, data)
    with pytest.raises(Damaged, match="does not match its checksum"):
        caught_up(tmp_path, matrix, named)


def test_few_segments_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes_after(additions: Iterator[int]) -> list[int]:
        sizes: list[int] = []
        for addition in additions:
            sizes.append(addition)
            start = sparse._mergeable(sizes)
            if start is not None:
                sizes[start:] = [sum(sizes[start:])]
        return sizes

    draw = random.Random(2)
    assert len(sizes_after(iter([1] * 5_000))) < 40
    assert len(sizes_after(draw.randint(1, 1000) for _ in range(5_000))) < 40


@pytest.mark.parametrize(
    ("ids", "weights", "problem"),
    [
        ([5, 3], [1, 1], "ascending"),
        ([3, 3], [1, 1], "ascending"),
        ([-1, 3], [1, 1], "vocabulary of 300 tokens"),
        ([3, 300], [1, 1], "vocabulary of 300 tokens"),
        ([3], [0], "greater than 0"),
        ([3], [float("nan")], "greater than 0"),
        ([3], [-1], "greater than 0"),
        ([3, 4], [1], "token ids of shape"),
    ],
)
def test_vectors_that_are_none_are_refused(ids: list[int], weights: list[float], problem: str) -> None:
    bad = SparseVector(np.array(ids, np.int32), np.array(weights, np.float32))
    with pytest.raises(InvalidData, match=problem):
        sparse.check(bad, VOCABULARY, "the claim")
