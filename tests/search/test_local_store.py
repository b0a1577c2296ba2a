"""What only the local store must do: survive crashes, serve readers beside a writer, rebuild what is derived."""

import errno
import os
import shutil
import sqlite3
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_entries import WRITER, bm25_count, dense_first, entry, full_entry
from programs import program
from searching import fill, info_of, rank_one, write
from store_documents import DIMENSIONS, FULL, LAYOUT

from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Bm25, Dense
from ccheck.core.types import Entry, Query
from ccheck.search.filters import parse_filter
from ccheck.search.local import LocalStore, bm25, snapshot, upkeep
from ccheck.search.local import store as local_store
from ccheck.search.local.database import mark
from ccheck.search.local.files import DATABASE
from ccheck.search.local.vectors import Blocks, VectorIndex


def test_readers_beside_a_writer(tmp_path):
    folder = tmp_path / "store"
    with LocalStore(folder) as store:
        fill(store, FULL, [full_entry(i) for i in range(20)])
    process = subprocess.Popen(program(WRITER, folder=str(folder)), stdout=subprocess.DEVNULL)
    try:
        with LocalStore(folder) as reader:
            searches, most, deadline = 0, 0, time.monotonic() + 60
            while (searches < 100 or most <= 20) and time.monotonic() < deadline:
                most = max(most, bm25_count(reader))
                assert dense_first(reader, 7) == "d7"
                searches += 1
            assert most > 20
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_store_that_is_deleted_before_a_writer_has_the_lock_is_not_there(tmp_path, monkeypatch):
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [entry(1)])
        store.release()
        take = store._acquire
        monkeypatch.setattr(store, "_acquire", lambda: (LocalStore(tmp_path / "store").drop(), take()))
        with pytest.raises(NotFound, match="there is no store"):
            store.upsert([entry(2)])


def test_texts_of_other_classes_are_texts(tmp_path):
    """As pandas and numpy have them."""
    made = entry(1)
    document = replace(made.document, id=np.str_("d1"), title=np.str_("Tea"), text=np.str_("paper number1"))
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [replace(made, document=document)])
        assert store.get(["d1"]) == {"d1": document}


def test_a_folder_of_something_else_is_not_dropped(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(NotFound):
        LocalStore(tmp_path).drop()
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_a_store_of_a_later_format_is_refused(tmp_path):
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
    with sqlite3.connect(tmp_path / "store" / DATABASE) as database:
        database.execute("UPDATE meta SET value = '99', mark = ? WHERE key = 'format'", (mark("format", "99"),))
    database.close()
    with pytest.raises(InvalidData, match="format 99"):
        LocalStore(tmp_path / "store").count()


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files as POSIX systems do")
def test_a_full_disk_is_said_and_nothing_stored_is_lost(tmp_path):
    folder = tmp_path / "store"
    code = """
        import resource, signal
        from pathlib import Path
        from ccheck.core.errors import Incomplete
        from local_entries import LocalStore, entry
        from store_documents import LAYOUT
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = LocalStore(Path({folder!r}))
        store.prepare(LAYOUT)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        done = 0
        try:
            while done < 100_000:
                store.upsert([entry(i) for i in range(done, done + 100)])
                done += 100
        except Incomplete as error:
            print(done, error)
    """
    answer = subprocess.run(program(code, folder=str(folder)), capture_output=True, text=True, check=True).stdout
    done = int(answer.split()[0])
    assert 0 < done < 100_000
    assert "safe" in answer
    with LocalStore(folder) as store:
        assert store.count() == done
        write(store, [entry(i) for i in range(done, done + 100)])
        assert bm25_count(store) == store.count() == done + 100
        assert dense_first(store, done + 50) == f"d{done + 50}"


def test_rebuild_drops_the_vectors_of_what_is_gone(tmp_path):
    with LocalStore(tmp_path / "store") as store, LocalStore(tmp_path / "store") as reader:
        store.prepare(LAYOUT)
        store.upsert([entry(i) for i in range(100)])
        store.upsert([entry(i, "revised") for i in range(40)])
        store.delete(["d50"])
        store.publish()
        assert dense_first(reader, 3) == "d3"
        store.rebuild()
        files = list((tmp_path / "store").glob("vectors*.f32"))
        assert [file.stat().st_size for file in files] == [99 * DIMENSIONS * 4]
        for number in (0, 39, 40, 99):
            assert dense_first(reader, number) == f"d{number}"
        assert bm25_count(reader, "revised") == 40
        write(store, [entry(200)])
        assert dense_first(reader, 200) == "d200"


READER = """
    import os
    from pathlib import Path
    from local_entries import LocalStore, bm25_count, dense_first, entry
    if os.getuid() == 0:  # who may write anywhere
        with LocalStore(Path({folder!r})) as store:
            bm25_count(store), dense_first(store, 7)  # import what nobody else may be able to read
        os.setuid(65534)
    with LocalStore(Path({folder!r})) as store:
        print(bm25_count(store), dense_first(store, 7))
        try:
            store.upsert([entry(1)])
        except Exception as error:
            print(error)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_a_store_that_may_only_be_read_is_searched(tmp_path):
    import tempfile

    # Not below tmp_path, which nobody else may enter.
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "store"
        with LocalStore(folder) as store:
            fill(store, LAYOUT, [entry(i) for i in range(50)])
        everything = [Path(scratch), folder, *folder.rglob("*")]
        for path in everything:
            path.chmod(0o555 if path.is_dir() else 0o444)
        answer = subprocess.run(program(READER, folder=str(folder)), capture_output=True, text=True)
        for path in everything:
            path.chmod(0o755)
    assert answer.stdout.splitlines()[0] == "50 d7", answer.stderr
    assert "permissions" in answer.stdout
    mounted = local_store.reported(lambda store: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only file system")))
    with pytest.raises(NotFound, match=rf"Read-only file system.* mount of {tmp_path}, or choose another store"):
        mounted(LocalStore(tmp_path))


# -- what is found while it changes, and how equal scores are ordered


def with_year(number: int, year: int, word: str = "paper") -> Entry:
    made = entry(number, word)
    return replace(made, document=replace(made.document, metadata={"year": year}), digest=f"{word} {year}")


def words_of(store: LocalStore, text: str, retriever: Bm25 | None = None, *filters: str) -> list[str]:
    retrievers = {"bm25": retriever or Bm25(depth=1_000)}
    found = rank_one(store, Query(text), retrievers, filters=[parse_filter(one) for one in filters])
    return [id_ for id_, _ in found["bm25"]]


def test_ids_that_are_kept_are_those_of_one_generation(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "MANY_IDS", 25)
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [entry(i) for i in range(40)])
        first, again = ([dense_first(store, i) for i in range(40)] for _ in range(2))
        assert first == again == [f"d{i}" for i in range(40)]
        store.delete(["d7"])
        write(store, [entry(i) for i in range(40, 43)])
        found = rank_one(store, Query("paper"), {"bm25": Bm25()})["bm25"]
        assert {id_ for id_, _ in found} == {f"d{i}" for i in range(43)} - {"d7"} and dense_first(store, 42) == "d42"


def test_a_filter_that_meets_a_change_is_asked_again(tmp_path, monkeypatch):
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
def test_removed_documents_are_not_found_before_the_index_follows(tmp_path, monkeypatch, published):
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
            found = rank_one(one, Query("", entry(3).passages[MAIN_VECTORS][0].vector), {"dense": Dense(depth=100)})
            assert sorted(id_ for id_, _ in found["dense"]) == [f"d{i}" for i in range(10) if i != 3]
        info = info_of(reader)
        assert (info.documents, info.passages, info.pending) == (9, 9, 0 if published else 1)


def test_who_reads_next_finds_what_a_killed_writer_left_undone(tmp_path, monkeypatch):
    monkeypatch.setattr(local_store, "COMMIT_SECONDS", 1e9)
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
        store.upsert([entry(i) for i in range(10)])
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
    with LocalStore(tmp_path / "killed") as reader:
        assert len(words_of(reader, "paper")) == 10


@pytest.mark.parametrize("few", [0, 1_000])
def test_filtered_words_are_the_ranking_without_the_others(tmp_path, monkeypatch, few):
    """With the documents looked up by number, and with the ranking read until enough passed."""
    monkeypatch.setattr(bm25, "_FEW", few)
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [with_year(i, 2000 + i % 7, "paper " * (1 + i % 5)) for i in range(200)])
        whole = words_of(store, "paper")
        assert len(whole) == 200
        passing = [id_ for id_ in whole if int(id_[1:]) % 7 == 3]
        for depth in (1, 5, 28, 29, 500):
            assert words_of(store, "paper", Bm25(depth=depth), "year=2003") == passing[:depth]


def test_equal_scores_of_words_are_in_the_order_of_ingest(tmp_path, monkeypatch):
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


def test_equal_cosines_are_in_the_order_of_ingest(monkeypatch):
    monkeypatch.setattr("ccheck.search.local.vectors.ROWS_AT_ONCE", 8)
    rows = np.array([[0.5, 0, 0, 0]] * 40, np.float32)
    rows[[3, 17, 39], 0] = 1.0
    rows[[5, 18], 0] = 0.75
    unchecked = Blocks(Path("x"), rows, np.zeros(1, np.int64), np.zeros(0, "V8"), np.zeros(0, np.bool_))
    index = VectorIndex(rows, np.arange(40), np.arange(1, 41), np.arange(1, 41), unchecked)
    query = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [-1, 0, 0, 0]], np.float32)
    first, second, third = index.search(query, 7)
    assert first == [(4, 1.0), (18, 1.0), (40, 1.0), (6, 0.75), (19, 0.75), (1, 0.5), (2, 0.5)]
    assert [seq for seq, _ in second] == [1, 2, 3, 4, 5, 6, 7]
    assert [seq for seq, _ in third] == [1, 2, 3, 5, 7, 8, 9]
    # Also where those equal ones are in one run, and some of them may not be found.
    allowed = np.arange(41) % 2 == 1
    monkeypatch.setattr("ccheck.search.local.vectors.ROWS_AT_ONCE", 1 << 20)
    assert [seq for seq, _ in index.search(query[:1], 4, allowed)[0]] == [19, 1, 3, 5]
    (everything,) = index.search(query[:1], 40)
    first = [4, 18, 40, 6, 19]
    assert [seq for seq, _ in everything] == [*first, *(seq for seq in range(1, 41) if seq not in first)]


def test_what_a_killed_commit_left_is_removed(tmp_path):
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
