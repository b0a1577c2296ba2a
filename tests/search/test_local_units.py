"""Units in a local store: what survives crashes, damage and rebuilding, and what a scope costs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from filling import write
from searching import answer_all, rank_all
from store_documents import unit
from store_units import ENTRIES, TEXTS, UNITS, VECTORS, entry

from ccheck.core.errors import CcheckError, InvalidData
from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Query
from ccheck.search import Filter
from ccheck.search.local import LocalStore
from ccheck.search.local.database import Database
from ccheck.search.local.files import DATABASE

RETRIEVERS: dict[str, Retriever] = {
    "sentences": Bm25(units="sentences"),
    "vectors": Dense(units="sentences", depth=2),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with LocalStore(tmp_path / "store") as store:
        store.prepare(UNITS)
        store.upsert(ENTRIES)
        store.upsert([entry("sea", TEXTS["sea"], VECTORS["sea"], digest="2")])
        store.delete(["flu"])
        store.publish()
    return tmp_path / "store"


def found(store: LocalStore) -> dict[str, list[str]]:
    (rankings,) = rank_all(store, [Query("gauges greenland", unit(1, 0.1))], RETRIEVERS)
    assert not isinstance(rankings, CcheckError)
    return {name: sorted(key for key, _ in ranking) for name, ranking in rankings.items()}


EXPECTED = {"sentences": ["ice#0", "sea#1"], "vectors": ["ice#1", "sea#0"]}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET units = replace(units, 'sentences', 'paragraph') WHERE id = 'sea'",
        "UPDATE documents SET units = '{}' WHERE id = 'sea'",
        "UPDATE documents SET units = (SELECT units FROM documents WHERE id = 'ice') WHERE id = 'sea'",
    ],
)
def test_units_that_are_not_as_written_are_an_error(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / DATABASE)
    connection.execute(statement)
    connection.commit()
    connection.close()
    asked: list[Callable[[LocalStore], object]] = [
        lambda store: store.get_units("sentences", ["sea#0"]),
        lambda store: answer_all(store, [Query("gauges")], {"one": Bm25(units="sentences")}, k=1),
        lambda store: store.rebuild(),
    ]
    for ask in asked:
        with LocalStore(folder) as store, pytest.raises(InvalidData, match=r"the text of the document.*ccheck index"):
            ask(store)
    with LocalStore(folder) as store:
        (damage,) = store.check()
        assert "the text of the document" in str(damage)


def test_a_reader_beside_a_writer_finds_no_units_of_documents_that_are_gone(folder: Path) -> None:
    with LocalStore(folder) as writer, LocalStore(folder) as reader:
        assert found(reader) == EXPECTED
        writer.delete(["sea"])
        assert found(reader) == {"sentences": ["ice#0"], "vectors": ["ice#1", "tea#1#1"]}


def test_a_scope_is_evaluated_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Filter, ...]] = []
    passing = Database.passing

    def noted(self: Database, filters: tuple[Filter, ...]) -> list[int]:
        asked.append(filters)
        return passing(self, filters)

    monkeypatch.setattr(Database, "passing", noted)
    monkeypatch.setattr("ccheck.search.local.snapshot.KEPT", 3)
    one, other, late = Filter("_id", "=", "sea"), Filter("_id", "=", "ice"), Filter("year", ">=", "2015")
    queries = [Query("sea", unit(1), filters=scope) for scope in ((one,), (other,), (one,), (), (other,), (late, late))]
    with LocalStore(folder) as store:
        rank_all(store, queries, RETRIEVERS)
        rank_all(store, queries, RETRIEVERS)
        assert asked == [(one,), (other,), (late,)]
        rank_all(store, queries, RETRIEVERS, filters=[late])
        assert asked[3:] == [(late, one), (late, other)]
        rank_all(store, queries[:1], RETRIEVERS)
        assert asked[5:] == [(one,)]  # which was forgotten for the others


def test_a_narrow_scope_finds_what_a_wide_one_does(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    count = 300
    with LocalStore(tmp_path / "store") as store:
        store.prepare(UNITS)
        vectors = random.standard_normal((count, 3, 8)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
        write(store, [entry(f"d{n}", ("A sea.", "An ice.", "A tea."), list(vectors[n])) for n in range(count)])
        asked = unit(*random.standard_normal(8).tolist())
        for retriever in (Dense(depth=9000), Dense(units="sentences", depth=9000)):
            (whole,) = rank_all(store, [Query("", asked)], {"one": retriever})
            assert isinstance(whole, dict)
            for wanted in (1, 5, 200):
                ids = {f"d{n}" for n in random.choice(count, wanted, replace=False)}
                scope = tuple(Filter("_id", "!=", f"d{n}") for n in range(count) if f"d{n}" not in ids)
                (narrow,) = rank_all(store, [Query("", asked, filters=scope)], {"one": retriever})
                assert isinstance(narrow, dict)
                expected = [(key, score) for key, score in whole["one"] if key.split("#")[0] in ids]
                assert [key for key, _ in narrow["one"]] == [key for key, _ in expected]
                assert [score for _, score in narrow["one"]] == pytest.approx(
                    [score for _, score in expected], abs=1e-6
                )
