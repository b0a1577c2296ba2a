"""What the local store finds while it changes, and how equal scores are ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filling import fill, write
from local_entries import LAYOUT, bm25_count, dense_first, entry
from searching import rank_all

from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Bm25, Dense
from ccheck.core.types import Entry, Query
from ccheck.search.filters import parse_filter
from ccheck.search.local import LocalStore, bm25, upkeep
from ccheck.search.local import store as local_store
from ccheck.search.local.vectors import VectorIndex


def with_year(number: int, year: int, word: str = "paper") -> Entry:
    made = entry(number, word)
    return replace(made, document=replace(made.document, metadata={"year": year}), digest=f"{word} {year}")


def words_of(store: LocalStore, text: str, retriever: Bm25 | None = None, *filters: str) -> list[str]:
    retrievers = {"bm25": retriever or Bm25(depth=1_000)}
    (found,) = rank_all(store, [Query(text)], retrievers, filters=[parse_filter(one) for one in filters])
    assert isinstance(found, dict)
    return [id_ for id_, _ in found["bm25"]]


def test_filters_are_of_the_documents_as_they_are(tmp_path: Path) -> None:
    """Not of an earlier generation, of which the answer is remembered."""
    with LocalStore(tmp_path / "store") as store, LocalStore(tmp_path / "store") as reader:
        fill(store, LAYOUT, [with_year(i, 2000 + i) for i in range(10)])
        for _ in range(2):
            assert sorted(words_of(reader, "paper", None, "year>=2005")) == [f"d{i}" for i in range(5, 10)]
        write(store, [with_year(1, 2020), with_year(9, 1990)])
        assert sorted(words_of(reader, "paper", None, "year>=2005")) == ["d1", "d5", "d6", "d7", "d8"]
        assert words_of(reader, "paper", None, "year>=2005", "year<2006") == ["d5"]
        store.delete(["d5"])
        assert words_of(reader, "paper", None, "year>=2005", "year<2006") == []


def test_a_filter_that_meets_a_change_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalStore(tmp_path / "store") as store, LocalStore(tmp_path / "store") as reader:
        fill(store, LAYOUT, [with_year(i, 2000 + i) for i in range(10)])
        current = LocalStore._current
        changes = iter([3])

        def then_changed(self: LocalStore, retrievers: object) -> object:
            found = current(self, retrievers)  # type: ignore[arg-type]
            if self is reader and next(changes, None):
                write(store, [with_year(1, 2020)])
            return found

        monkeypatch.setattr(LocalStore, "_current", then_changed)
        assert sorted(words_of(reader, "paper", None, "year>=2009")) == ["d1", "d9"]


@pytest.mark.parametrize("published", [False, True])
def test_removed_documents_are_not_found_before_the_index_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    monkeypatch.setattr(local_store, "COMMIT_SECONDS", 1e9)
    with LocalStore(tmp_path / "store") as store, LocalStore(tmp_path / "store") as reader:
        fill(store, LAYOUT, [entry(i) for i in range(10)])
        store.delete(["d3"])
        store.upsert([entry(5, "changed")])
        if published:
            store.publish()
        for one in (store, reader):
            assert sorted(words_of(one, "paper")) == [f"d{i}" for i in range(10) if i not in (3, 5)]
            assert words_of(one, "number3") == []
            assert len(words_of(one, "changed")) == published
            assert dense_first(one, 5) == "d5"
            (found,) = rank_all(
                one, [Query("", entry(3).passages[MAIN_VECTORS][0].vector)], {"dense": Dense(depth=100)}
            )
            assert isinstance(found, dict)
            assert sorted(id_ for id_, _ in found["dense"]) == [f"d{i}" for i in range(10) if i != 3]
        info = reader.info()
        assert info is not None
        assert (info.documents, info.passages, info.pending) == (9, 9, 0 if published else 1)


@pytest.mark.parametrize("few", [0, 1_000])
def test_filtered_words_are_the_ranking_without_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """With the documents looked up by number, and with the ranking read until enough passed."""
    monkeypatch.setattr(bm25, "_FEW", few)
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [with_year(i, 2000 + i % 7, "paper " * (1 + i % 5)) for i in range(200)])
        whole = words_of(store, "paper")
        assert len(whole) == 200
        passing = [id_ for id_ in whole if int(id_[1:]) % 7 == 3]
        for depth in (1, 5, 28, 29, 500):
            assert words_of(store, "paper", Bm25(depth=depth), "year=2003") == passing[:depth]


def test_equal_scores_of_words_are_in_the_order_of_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever segments tantivy has them in, and also where the ranking ends."""
    monkeypatch.setattr(local_store, "COMMIT_EVERY", 1)
    monkeypatch.setattr(upkeep, "settle", lambda *_: None)
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
        for first, count in ((0, 3), (3, 20), (23, 1), (24, 9)):
            store.upsert([entry(i, "same") for i in range(first, first + count)])
        store.upsert([entry(4, "same"), entry(0, "same")])
        order = [f"d{i}" for i in (*range(1, 4), *range(5, 33), 4, 0)]
        assert words_of(store, "same") == order
        for depth in (1, 2, 7, 30):
            assert words_of(store, "same", Bm25(depth=depth)) == order[:depth]
        assert words_of(store, "same number20", Bm25(depth=3)) == ["d20", "d1", "d2"]


def test_equal_cosines_are_in_the_order_of_ingest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccheck.search.local.vectors.ROWS_AT_ONCE", 8)
    rows = np.zeros((40, 4), np.float32)
    rows[:, 0] = 0.5
    rows[[3, 17, 39], 0] = 1.0
    rows[[5, 18], 0] = 0.75
    index = VectorIndex(rows, np.arange(40), np.arange(1, 41), np.arange(1, 41))
    query = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [-1, 0, 0, 0]], np.float32)
    first, second, third = index.search(query, 7)
    assert first == [(4, 1.0), (18, 1.0), (40, 1.0), (6, 0.75), (19, 0.75), (1, 0.5), (2, 0.5)]
    assert [seq for seq, _ in second] == [1, 2, 3, 4, 5, 6, 7]
    assert [seq for seq, _ in third] == [1, 2, 3, 5, 7, 8, 9]
    # Also where those equal ones are in one run, and some of them may not be found.
    allowed = np.arange(41) % 2 == 1
    monkeypatch.setattr("ccheck.search.local.vectors.ROWS_AT_ONCE", 1 << 20)
    assert [seq for seq, _ in index.search(query[:1], 4, allowed)[0]] == [19, 1, 3, 5]
    everything: Sequence[tuple[int, float]]
    (everything,) = index.search(query[:1], 40)
    assert [seq for seq, _ in everything] == [
        4,
        18,
        40,
        6,
        19,
        *(i for i in range(1, 41) if i not in (4, 18, 40, 6, 19)),
    ]


def test_what_a_killed_commit_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with LocalStore(folder) as store:
        fill(store, LAYOUT, [entry(i) for i in range(10)])
    (folder / "bm25-0000abcd").mkdir()
    (folder / "bm25-0000abcd" / "meta.json").write_text("half")
    (folder / "vectors-0000abcd.f32").write_bytes(b"half")
    with LocalStore(folder) as store:
        write(store, [entry(11)])
        assert bm25_count(store) == 11
    assert len(list(folder.glob("bm25-*"))) == len(list(folder.glob("vectors-*"))) == 1
