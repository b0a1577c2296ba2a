"""The local store's own indices against what they stand for, computed plainly."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_entries import entry, flip_bit, replace_bytes
from numpy.typing import NDArray
from searching import fill, rank_all, write
from store_documents import LAYOUT

from ccheck.core.errors import InvalidData
from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Dense
from ccheck.core.types import Passage, Query
from ccheck.search.filters import parse_filter
from ccheck.search.local import LocalStore, vectors
from ccheck.search.local.bm25 import Dictionary, allowed_edits
from ccheck.search.local.files import remove_store
from ccheck.search.local.vectors import VectorIndex

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


def test_an_empty_dictionary_and_odd_terms() -> None:
    assert Dictionary([], 0).expand("word", 2) == []
    dictionary = Dictionary([("word", 200)], 100)  # documents that are gone still count for a term
    assert dictionary.expand("word", 1) == [("word", 1.0)]
    assert dictionary.expand("x" * 40_000, 2) == [("x" * 40_000, 1.0)]
    assert [allowed_edits("x" * n, "auto") for n in (1, 2, 3, 5, 6)] == [0, 0, 1, 1, 2]
    assert [allowed_edits("x", fuzziness) for fuzziness in (0, 1, 2)] == [0, 1, 2]


COUNT, CHUNK = 600, 64


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 600 vectors, 576 have codes: nine chunks."""
    monkeypatch.setattr(vectors, "CHUNK", CHUNK)
    monkeypatch.setattr(vectors, "LEAST_ROWS", COUNT // 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [entry(number) for number in range(COUNT)])
    return tmp_path / "store"


def codes_of(folder: Path) -> Path:
    (file,) = folder.glob("*.codes")
    return file


def rankings(store: LocalStore, depth: int) -> list[list[tuple[str, float]]]:
    queries = [Query("", entry(number).passages[MAIN_VECTORS][0].vector) for number in range(0, COUNT, 7)]
    found = rank_all(store, queries, {"dense": Dense(depth=depth)})
    # The product of other shapes adds in another order.
    return [[(document, round(score, 5)) for document, score in one["dense"]] for one in found]


def first(store: LocalStore, number: int, *filters: str) -> str:
    """The first document for the vector of this one."""
    query = Query("", entry(number).passages[MAIN_VECTORS][0].vector)
    (found,) = rank_all(store, [query], {"dense": Dense(depth=1)}, filters=[parse_filter(one) for one in filters])
    return str(found["dense"][0][0])


def exact(monkeypatch: pytest.MonkeyPatch, folder: Path, depth: int) -> object:
    """The rankings without codes."""
    with monkeypatch.context() as patched, LocalStore(folder) as store:
        patched.setattr("ccheck.search.local.vectors.open_codes", lambda *_: None)
        return rankings(store, depth)


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many segments were read by each search."""
    read: list[int] = []
    ranked = VectorIndex._ranked

    def counting(self: VectorIndex, *arguments: NDArray[np.generic]) -> object:
        read.append(len(arguments[-1]))
        return ranked(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(VectorIndex, "_ranked", counting)
    return read


def test_few_vectors_are_read_and_the_same_are_found(folder, monkeypatch, rows_read):
    expected = exact(monkeypatch, folder, 1)
    rows_read.clear()
    with LocalStore(folder) as store:
        assert rankings(store, 1) == expected
    assert rows_read and max(rows_read) <= vectors.READ + COUNT % CHUNK


def test_removed_documents_take_no_place(folder: Path) -> None:
    alike = [replace(entry(number), passages=entry(0).passages) for number in range(COUNT, 2 * COUNT)]
    with LocalStore(folder) as store:
        write(store, alike)
        store.delete([one.document.id for one in alike])
        store.publish()
        assert first(store, 0) == "d0"
        assert first(store, 0, "_id!=d0") in {f"d{number}" for number in range(1, COUNT)}
        store.delete(["d0"])
        assert first(store, 0) in {f"d{number}" for number in range(1, COUNT)}


def test_a_document_has_the_score_of_its_best_passage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(number: int) -> Passage:
        return entry(number).passages[MAIN_VECTORS][0]

    several = [
        replace(entry(number, "other"), passages={MAIN_VECTORS: (twice(number), twice(number + COUNT))})
        for number in range(COUNT)
    ]
    with LocalStore(folder) as store:
        write(store, several)
        found = rankings(store, 1)
    assert found == exact(monkeypatch, folder, 1)
    assert all(score == pytest.approx(1, abs=1e-5) for ((_, score),) in found)


@pytest.mark.parametrize("place", [3, 200, -4], ids=["centre", "bits", "checksum"])
def test_damaged_codes_are_not_used_and_made_anew(folder: Path, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, good = exact(monkeypatch, folder, 1), codes_of(folder).read_bytes()
    flip_bit(codes_of(folder), place)
    with LocalStore(folder) as store:
        assert rankings(store, 1) == expected
        (damage,) = store.check()
        assert damage.derived and damage.where == codes_of(folder)
        store.publish()
        assert store.check() == []
    assert codes_of(folder).read_bytes() == good


def test_codes_of_other_vectors_are_not_used(folder: Path, tmp_path: Path) -> None:
    """As after the database was restored from an older copy: rows were written again, codes were not."""
    with LocalStore(tmp_path / "other") as store:
        fill(store, LAYOUT, [entry(number) for number in range(COUNT, 2 * COUNT)])
    replace_bytes(codes_of(folder), codes_of(tmp_path / "other").read_bytes())
    with LocalStore(folder) as store:
        assert [first(store, number) for number in range(20)] == [f"d{number}" for number in range(20)]
        assert store.check()


def test_a_vector_that_is_not_as_it_was_coded_is_an_error(folder: Path) -> None:
    (file,) = folder.glob("vectors-*.f32")
    flip_bit(file, 7 * 16 * 4)  # of d7
    with LocalStore(folder) as store, pytest.raises(InvalidData, match="does not match its checksum"):
        first(store, 7)


def test_codes_go_with_their_store(folder: Path) -> None:
    with LocalStore(folder) as store:
        old = codes_of(folder)
        store.delete(["d1"])
        store.rebuild()
    assert codes_of(folder) != old
    assert remove_store(folder) == [] and not folder.exists()
