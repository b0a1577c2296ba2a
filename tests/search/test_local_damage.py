"""What becomes of a damaged local store: right answers or an error. `benchmarks/damage.py` does it 500 times."""

import itertools
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from cli_runs import ccheck, works
from local_entries import bm25_count, dense_first, entry, flip_bit, full_entry, replace_bytes
from searching import answer_all, fill, rank_all, rank_one, write
from store_documents import FULL, LAYOUT, SECOND, unit
from store_units import ENTRIES, TEXTS, UNITS, VECTORS
from store_units import entry as units_entry

from ccheck.core.errors import CcheckError, InvalidData
from ccheck.core.stages import Bm25, Dense, Retriever, Sparse
from ccheck.core.types import Query
from ccheck.search.filters import parse_filter
from ccheck.search.local import LocalStore, bm25
from ccheck.search.local.database import Database
from ccheck.search.local.files import DATABASE, Damaged, Verified
from ccheck.search.local.vectors import Blocks, digest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
        store.upsert([entry(i) for i in range(60)])
        store.delete(["d50"])
        store.publish()
    return tmp_path / "store"


def execute(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as database, database:
        database.execute(statement)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_random_damages_are_never_silently_wrong() -> None:
    from damage import run

    counts = run(16, seed=3)
    assert {outcome for outcome, _ in counts} <= {"right", "said"}
    assert sum(counts.values()) == 16


STATEMENTS = {
    "another text": "UPDATE documents SET text = text || 'x' WHERE seq = 8",
    "another title": "UPDATE documents SET title = 'x' WHERE seq = 8",
    "another metadata": "UPDATE documents SET metadata = '{\"year\":1}' WHERE seq = 8",
    "another date": "UPDATE documents SET published = '2000-01-01' WHERE seq = 8",
    "another id": "UPDATE documents SET id = 'x' WHERE seq = 8",
    "another kind of value": "UPDATE documents SET text = x'00ff' WHERE seq = 8",
    "another number": "UPDATE documents SET seq = 1000 WHERE seq = 8",
    "a document less": "DELETE FROM documents WHERE seq = 8",
    "nothing gone": "DELETE FROM gone",
    "others gone": "UPDATE gone SET seqs = x'0800000000000000'",
    "vectors of others": "UPDATE vectors SET owners = zeroblob(length(owners))",
    "no vectors": "DELETE FROM vectors",
    "vectors elsewhere": "UPDATE vectors SET first = first + 1",
    "fewer documents": "UPDATE meta SET value = replace(value, '60', '59') WHERE key = 'counts'",
    "no counts": "DELETE FROM meta WHERE key = 'counts'",
    "another generation": "UPDATE meta SET value = value + 1 WHERE key = 'generation'",
    "another BM25 index": "UPDATE meta SET value = '{}' WHERE key = 'words'",
    "no tables": "DROP TABLE meta",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_rows_that_are_not_as_written_are_an_error(folder: Path, statement: str) -> None:
    execute(folder, statement)
    asked: list[Callable[[LocalStore], object]] = [
        lambda store: bm25_count(store) == 59,
        lambda store: dense_first(store, 7) == "d7",
        lambda store: store.get(["d7"])["d7"].text == "paper number7",
        lambda store: len(store.digests([f"d{i}" for i in range(60)])) == 59,
        lambda store: len(answer_all(store, [Query("paper")], {"b": Bm25()}, k=9, filters=[YEAR])) == 1,
    ]
    said = 0
    for ask in asked:
        with LocalStore(folder) as store:
            try:
                assert ask(store)
            except InvalidData as error:
                assert DATABASE in str(error)
                assert "ccheck index delete" in str(error)
                said += 1
    assert said
    with LocalStore(folder) as store:
        found = store.check()
    assert found
    assert not any(damage.derived for damage in found)


YEAR = parse_filter("year!=2000")


def test_vectors_that_are_not_as_written_are_an_error(folder: Path) -> None:
    (file,) = folder.glob("vectors-*")
    flip_bit(file)
    with LocalStore(folder) as store:
        with pytest.raises(InvalidData, match=r"vectors-.*does not match its checksum.*ccheck index delete"):
            dense_first(store, 7)
        assert bm25_count(store) == 59
        with pytest.raises(InvalidData, match="checksum"):
            store.rebuild()  # takes over no damage
    replace_bytes(file, b"\0" * 100)
    with LocalStore(folder) as store, pytest.raises(InvalidData, match="missing or cut short"):
        dense_first(store, 1)


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.info(),
        lambda store: store.get(["d1"]),
        lambda store: store.digests(["d1"]),
        lambda store: store.count(),
        lambda store: store.prepare(LAYOUT),
        lambda store: store.delete(["d1"]),
        lambda store: store.publish(),
        lambda store: store.mark_ingested(),
        lambda store: store.rebuild(),
        lambda store: dense_first(store, 1),
    ],
)
def test_a_broken_database_is_an_error_that_says_what_to_do(folder: Path, work: Callable[[LocalStore], object]) -> None:
    (folder / DATABASE).write_bytes(b"not a database" * 300)
    with LocalStore(folder) as store, pytest.raises(InvalidData, match="ccheck index delete"):
        work(store)
    with LocalStore(folder) as store:
        assert [damage.where.name for damage in store.check()] == [DATABASE]


def test_a_page_that_only_sqlites_own_check_reads_is_damage(folder: Path) -> None:
    """The rows and their checksums are whole: a page that nothing reads is not."""
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        database.execute("CREATE TABLE unread (value)")
        database.executemany("INSERT INTO unread VALUES (?)", [("x" * 500,)] * 100)
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'unread'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (folder / DATABASE).open("r+b") as stream:
        stream.seek((page - 1) * size + 3)
        stream.write(b"\xff\xff")
    with LocalStore(folder) as store:
        (found, *_) = store.check()
        assert "is broken" in str(found)


@pytest.mark.parametrize("how", ["flipped", "cut short", "removed"])
@pytest.mark.parametrize("suffix", [".fieldnorm", ".idx", ".term", ".fast", ".json"])
def test_an_index_of_words_that_is_not_as_written_is_made_anew(folder: Path, suffix: str, how: str) -> None:
    def scores(store: LocalStore) -> object:
        return rank_all(store, [Query("paper number7")], {"bm25": Bm25(depth=100)})

    with LocalStore(folder) as store:
        expected = scores(store)
    for file in folder.glob(f"bm25-*/*{suffix}"):
        if how == "flipped":
            flip_bit(file)
        elif how == "cut short":
            replace_bytes(file, file.read_bytes()[: file.stat().st_size // 2])
        else:
            file.unlink()
    with LocalStore(folder) as store:
        (found,) = store.check()
        assert found.derived
        assert found.commands("s") == ["ccheck index rebuild --store s"]
    with LocalStore(folder) as store:
        assert scores(store) == expected
        assert store.check() == []


@pytest.mark.parametrize(
    ("field", "retriever", "query"),
    [
        ("sparse", Sparse(), Query("", None, {"one": full_entry(7).sparse})),
        (SECOND, Dense(field=SECOND), Query("", full_entry(7).passages[SECOND][0].vector)),
        ("units sentences", Dense(units="sentences"), Query("", unit(1))),
    ],
)
def test_other_vectors_that_are_not_as_written_are_an_error(tmp_path, field, retriever, query):
    with LocalStore(tmp_path / "store") as store:
        fill(store, *((UNITS, ENTRIES) if field.startswith("units") else (FULL, [full_entry(i) for i in range(50)])))
    database = Database(tmp_path / "store" / DATABASE)
    file = tmp_path / "store" / database.vector_files()[field].file
    database.close()
    flip_bit(file)
    with LocalStore(tmp_path / "store") as store:
        assert [damage.where for damage in store.check()] == [file]
        with pytest.raises(InvalidData, match=r"vectors-.*does not match its checksum.*ccheck index delete"):
            rank_all(store, [query], {"one": retriever})


def test_a_writer_takes_over_no_damage(folder: Path) -> None:
    """Neither into the next BM25 index nor without a word: it is made anew."""
    for file in folder.glob("bm25-*/*.idx"):
        flip_bit(file)
    with LocalStore(folder) as store:
        write(store, [entry(100)])
        assert bm25_count(store) == 60
        assert store.check() == []


def test_a_panic_of_tantivy_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    def fail(*_: object) -> None:
        raise panic("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(bm25.Bm25View, "search", fail)
    with LocalStore(folder) as store, pytest.raises(InvalidData, match="ccheck index rebuild"):
        bm25_count(store)


def test_a_broken_index_that_passes_for_whole_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tantivy itself on broken files: whatever it raises is Damaged."""
    monkeypatch.setattr(Verified, "check_files", lambda *_: None)
    for file in folder.glob("bm25-*/*"):
        if file.suffix != ".lock":
            replace_bytes(file, file.read_bytes()[: file.stat().st_size // 2])
    with LocalStore(folder) as store:
        store._acquire()
        with LocalStore(folder) as reader, pytest.raises(CcheckError, match="BM25 index"):
            bm25_count(reader)


def test_each_block_is_compared_once_and_only_where_it_is_read() -> None:
    data = np.arange(1000, dtype=np.uint8)
    digests = np.frombuffer(b"".join(digest(data[first : first + 300]) for first in range(0, 1000, 300)), "V8")
    edges = np.array([0, 300, 600, 900, 1000])
    for begin in range(0, 1000, 50):
        for end in range(begin, 1001, 50):
            seen = np.zeros(4, np.bool_)
            Blocks(Path("x"), data, edges, digests, seen).check([begin], [end])
            expected = [begin < last and first < end and begin < end for first, last in itertools.pairwise(edges)]
            assert seen.tolist() == expected, (begin, end)
    broken = data.copy()
    broken[299] ^= 1
    for begin, end, wrong in ((0, 1, True), (299, 300, True), (300, 1000, False), (0, 0, False)):
        blocks = Blocks(Path("x"), broken, edges, digests, np.zeros(4, np.bool_))
        if wrong:
            with pytest.raises(Damaged, match="bytes 0 to 300"):
                blocks.check([900, begin], [900, end])
        else:
            blocks.check([900, begin], [900, end])
    seen = np.ones(4, np.bool_)
    Blocks(Path("x"), broken, edges, digests, seen).check([0], [1000])


def test_index_check_says_what_is_damaged_and_what_to_run(folder: Path) -> None:
    store = f"local:{folder}"
    fine = ccheck("index", "check", "--store", store)
    assert (fine.code, fine.out) == (0, "")
    assert "has no damage" in fine.err
    for file in folder.glob("bm25-*/*.idx"):
        flip_bit(file)
    damaged = ccheck("index", "check", "--store", store)
    assert damaged.code == 5
    assert ".idx" in damaged.out
    assert "ccheck index rebuild" in damaged.err
    told = ccheck("index", "check", "--store", store, "--json")
    assert told.code == 5
    (line,) = [json.loads(one) for one in told.out.splitlines()]
    assert line["damaged"] is True
    assert [one["run"] for one in line["problems"]] == [[f"ccheck index rebuild --store local:{folder}"]]
    assert ccheck("index", "rebuild", "--store", store).code == 0
    assert ccheck("index", "check", "--store", store).code == 0
    (file,) = folder.glob("vectors-*")
    file.unlink()
    missing = ccheck("index", "check", "--store", store)
    assert missing.code == 5
    assert "missing" in missing.out
    assert "ccheck index delete" in missing.err
    flip_bit(folder / DATABASE, 20)
    (folder / "notes.txt").write_text("mine")
    removed = works("index", "delete", "--yes", "--store", store)
    assert "notes.txt" in removed.err
    assert [one.name for one in folder.iterdir()] == ["notes.txt"]


@pytest.fixture
def units_folder(tmp_path: Path) -> Path:
    with LocalStore(tmp_path / "store") as store:
        store.prepare(UNITS)
        store.upsert(ENTRIES)
        store.upsert([units_entry("sea", TEXTS["sea"], VECTORS["sea"], digest="2")])
        store.delete(["flu"])
        store.publish()
    return tmp_path / "store"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET units = replace(units, 'sentences', 'paragraph') WHERE id = 'sea'",
        "UPDATE documents SET units = '{}' WHERE id = 'sea'",
        "UPDATE documents SET units = (SELECT units FROM documents WHERE id = 'ice') WHERE id = 'sea'",
    ],
)
def test_units_that_are_not_as_written_are_an_error(units_folder: Path, statement: str) -> None:
    execute(units_folder, statement)
    asked: list[Callable[[LocalStore], object]] = [
        lambda store: store.get_units("sentences", ["sea#0"]),
        lambda store: answer_all(store, [Query("gauges")], {"one": Bm25(units="sentences")}, k=1),
        lambda store: store.rebuild(),
    ]
    for ask in asked:
        with (
            LocalStore(units_folder) as store,
            pytest.raises(InvalidData, match=r"the text of the document.*ccheck index"),
        ):
            ask(store)
    with LocalStore(units_folder) as store:
        (damage,) = store.check()
        assert "the text of the document" in str(damage)


def test_a_reader_beside_a_writer_finds_no_units_of_documents_that_are_gone(units_folder: Path) -> None:
    retrievers: dict[str, Retriever] = {"words": Bm25(units="sentences"), "dense": Dense(units="sentences", depth=2)}
    with LocalStore(units_folder) as writer, LocalStore(units_folder) as reader:
        for words, vectors in (({"ice#0", "sea#1"}, {"ice#1", "sea#0"}), ({"ice#0"}, {"ice#1", "tea#1#1"})):
            found = rank_one(reader, Query("gauges greenland", unit(1, 0.1)), retrievers)
            assert (set(dict(found["words"])), set(dict(found["dense"]))) == (words, vectors)
            writer.delete(["sea"])
