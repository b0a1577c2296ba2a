"""A local store after kills, power losses, full disks and strangers in its folder: whole, or an error that says so."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from filling import fill, write
from local_entries import FULL, LAYOUT, bm25_count, dense_first, entry, found_everywhere, full_entry
from programs import program
from searching import rank_all

from ccheck.core.errors import CcheckError, Incomplete, InvalidData, NotFound, ServerError, UsageError
from ccheck.core.stages import Bm25
from ccheck.core.types import Query
from ccheck.search.local import LocalStore, upkeep
from ccheck.search.local import store as local_store
from ccheck.search.local.bm25 import removed_in
from ccheck.search.local.files import DATABASE, DOCUMENTS, UNBORN

# -- creation

CREATOR = """
    import os, signal, sys
    from pathlib import Path
    import filelock, tantivy
    from local_entries import LAYOUT, LocalStore

    def create(folder, at):
        steps = 0
        def step(event, args):
            nonlocal steps
            if event in ("open", "os.mkdir", "os.rename", "os.chmod", "sqlite3.connect") and folder in str(args[0]):
                steps += 1
                if steps == at:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(step)
        LocalStore(Path(folder)).prepare(LAYOUT)

    for at in range(1, 100):
        child = os.fork()
        if child == 0:
            create(os.path.join({folder!r}, f"store{{at}}"), at)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(ended)
        if ended == 0:
            break
"""


@pytest.mark.skipif(os.name != "posix", reason="kills as POSIX systems do")
def test_kill_while_a_store_is_created(tmp_path: Path) -> None:
    """At each touch of the folder: what is left is not a store, and the next creation turns it into one."""
    process = subprocess.run(program(CREATOR, folder=str(tmp_path)), capture_output=True, text=True)
    ended = [int(line) for line in process.stdout.split()]
    assert len(ended) > 5 and ended == [-signal.SIGKILL] * (len(ended) - 1) + [0], process.stderr
    for at in range(1, len(ended) + 1):
        folder = tmp_path / f"store{at}"
        with LocalStore(folder) as reader:
            info = reader.info()
            assert info is None or info.documents == 0
            if info is None:
                with pytest.raises(NotFound, match="ccheck ingest"):
                    reader.count()
        with LocalStore(folder) as store:
            fill(store, LAYOUT, [entry(1)])
            assert bm25_count(store) == 1
        assert not list(folder.glob(f"{UNBORN}*"))


def test_two_creations_at_once(tmp_path: Path) -> None:
    outcomes: list[str] = []
    barrier = threading.Barrier(6)

    def create() -> None:
        with LocalStore(tmp_path / "store") as store:
            barrier.wait()
            try:
                store.prepare(LAYOUT)
            except ServerError as error:
                outcomes.append(str(error))
            else:
                outcomes.append("made")

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "made" in outcomes
    assert all(one == "made" or "another process is writing" in one for one in outcomes)
    with LocalStore(tmp_path / "store") as store:
        assert store.count() == 0


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files as POSIX systems do")
def test_a_disk_that_is_full_at_creation(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    code = """
        import resource, signal
        from pathlib import Path
        from ccheck.core.errors import CcheckError
        from local_entries import LAYOUT, LocalStore
        import tantivy, filelock
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for limit in (0, 100, 500, 5_000, 20_000, 40_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, 2**40))
            store = LocalStore(Path({folder!r}))
            try:
                store.prepare(LAYOUT)
            except CcheckError as error:
                print(type(error).__name__)
            store.close()
    """
    answer = subprocess.run(program(code, folder=str(folder)), capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert set(answer.stdout.split()) == {"Incomplete"}
    with LocalStore(folder) as store:
        store.prepare(LAYOUT)
        assert store.count() == 0


def test_a_store_without_its_database_is_no_empty_one(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [entry(1)])
    (tmp_path / "store" / DATABASE).unlink()
    with LocalStore(tmp_path / "store") as store:
        for use in (store.info, store.count, lambda: store.prepare(LAYOUT)):
            with pytest.raises(InvalidData, match="without its database"):
                use()
    assert list((tmp_path / "store").glob("vectors-*"))


# -- loss of power


@pytest.mark.parametrize("opened_by", ["a reader", "a writer"])
def test_indices_that_are_ahead_of_the_database(tmp_path: Path, opened_by: str) -> None:
    """An older database beside newer indices: 800 of 3,000 documents could not be found, and nothing said so."""
    folder, older = tmp_path / "store", tmp_path / "older"
    with LocalStore(folder) as store:
        fill(store, FULL, [full_entry(i) for i in range(60)])
    shutil.copytree(folder, older)
    with LocalStore(folder) as store:
        store.upsert([full_entry(i, "changed") for i in range(20, 40)])
        write(store, [full_entry(i, "new") for i in range(100, 110)])
    shutil.copy2(older / DATABASE, folder / DATABASE)
    with LocalStore(folder) as store:
        if opened_by == "a writer":
            store.prepare(FULL)
        assert bm25_count(store) == store.count() == 60
        assert bm25_count(store, "changed") == bm25_count(store, "new") == 0
        assert all(found_everywhere(store, number) for number in range(60))
        info = store.info()
        assert info is not None
        assert info.pending == 0
    with LocalStore(folder) as store:  # the same ingest again
        store.upsert([full_entry(i, "changed") for i in range(20, 40)])
        write(store, [full_entry(i, "other") for i in range(200, 210)])
        assert bm25_count(store, "changed") == 20
        assert bm25_count(store, "new") == 0
        assert bm25_count(store, "other") == 10
        assert all(found_everywhere(store, number) for number in (0, 19, 20, 39, 59, 200, 209))
        assert store.check() == []


def test_a_database_that_is_copied_with_its_log(tmp_path: Path) -> None:
    folder, older = tmp_path / "store", tmp_path / "older"
    with LocalStore(folder) as store:
        fill(store, LAYOUT, [entry(i) for i in range(50)])
        store.upsert([entry(i, "revised") for i in range(10)])
        shutil.copytree(folder, older)  # with a log that is not in the database yet
        write(store, [entry(i, "later") for i in range(10, 30)])
    assert (older / f"{DATABASE}-wal").stat().st_size
    for name in (DATABASE, f"{DATABASE}-wal"):
        shutil.copy2(older / name, folder / name)
    with LocalStore(folder) as store:
        assert bm25_count(store) == 40
        assert bm25_count(store, "revised") == 10
        assert bm25_count(store, "later") == 0
        assert [dense_first(store, number) for number in (0, 20, 49)] == ["d0", "d20", "d49"]


def test_an_index_that_is_ahead_is_not_read_where_it_cant_be_made_anew(tmp_path: Path) -> None:
    folder, older = tmp_path / "store", tmp_path / "older"
    with LocalStore(folder) as store:
        fill(store, LAYOUT, [entry(i) for i in range(50)])
        shutil.copytree(folder, older)
        write(store, [entry(i, "later") for i in range(10, 30)])
    for name in (DATABASE, f"{DATABASE}-wal"):
        shutil.copy2(older / name, folder / name)
    with LocalStore(folder) as writer, LocalStore(folder) as reader:
        writer._acquire()
        with pytest.raises(InvalidData, match="ccheck index rebuild --store"):
            bm25_count(reader)
    with LocalStore(folder) as reader:
        assert bm25_count(reader) == 50


def test_every_commit_is_synced(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
        assert store._writer is not None
        assert store._writer._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._writer._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# -- strangers in the folder


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_folder_that_goes_while_documents_come_in(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "store"
    with LocalStore(folder) as store, LocalStore(folder) as reader:
        fill(store, LAYOUT, [entry(1)])
        assert bm25_count(reader) == 1
        shutil.rmtree(folder)
        if how == "replaced":
            with LocalStore(folder) as other:
                fill(other, LAYOUT, [entry(i) for i in range(10, 15)])
        for write in (lambda: store.upsert([entry(2)]), store.publish, lambda: store.mark_ingested()):
            with pytest.raises(Incomplete, match="removed or replaced"):
                write()
        if how == "replaced":
            assert reader.count() == bm25_count(reader) == 5
        else:
            with pytest.raises(NotFound):
                reader.count()


def test_a_folder_that_goes_within_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
        store.upsert([entry(1)])
        monkeypatch.setattr(local_store.upkeep, "settle", lambda *_: shutil.rmtree(tmp_path / "store"))
        with pytest.raises(Incomplete, match="removed or replaced"):
            store.publish()


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o377])
def test_a_store_is_its_owners_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with LocalStore(tmp_path / "store") as store:
            store.prepare(FULL)
            for word in ("one", "two"):
                write(store, [full_entry(i, word) for i in range(20)])
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]}
    assert len(modes) > 15
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    locks = {path for path in modes if path.suffix == ".lock" and path.parent.name.startswith("bm25")}  # tantivy's
    assert {mode for path, mode in modes.items() if path.is_file() and path not in locks} == {0o600}


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_a_store_that_its_owner_shares_stays_shared(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [entry(1)])
        for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        write(store, [entry(1, "again")])
    made = [path for path in (tmp_path / "store").rglob("*") if path.suffix != ".lock"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o644}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o755}


def test_drop_removes_only_what_ccheck_made(tmp_path: Path) -> None:
    folder, mine = tmp_path / "store", tmp_path / "mine"
    (mine / "sub").mkdir(parents=True)
    (mine / "vectors-00000000.f32").write_text("mine")
    (mine / "sub" / "meta.json").write_text("mine")
    with LocalStore(folder) as store:
        fill(store, FULL, [full_entry(i) for i in range(20)])
        (index,) = folder.glob("bm25-*")
        own = [folder / "notes.txt", folder / "vectors.f32", folder / "bm25", folder / "sparse"]
        own += [index / "notes.txt", folder / f"{DATABASE}.backup", folder / "vectors-passages.f32"]
        for path in own:
            path.write_text("mine")
        links = {folder / "bm25-00000000": mine / "sub", folder / "vectors-00000000.f32": mine, index / "0": mine}
        for link, target in links.items():
            link.symlink_to(target)
        store.drop()
    assert {path for path in folder.rglob("*") if path.is_symlink() or path.is_file()} == {*own, *links}
    assert (mine / "sub" / "meta.json").read_text() == (mine / "vectors-00000000.f32").read_text() == "mine"


def test_drop_follows_no_link(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "real") as store:
        store.prepare(LAYOUT)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with LocalStore(tmp_path / "link") as store, pytest.raises(UsageError, match="symbolic link"):
        store.drop()
    with LocalStore(tmp_path / "real") as store:
        assert store.count() == 0
        store.drop()
    assert not (tmp_path / "real").exists()


# -- scores


def test_scores_after_updates_are_those_of_a_fresh_store(tmp_path: Path) -> None:
    """Removed documents counted in the statistics until their segments merged."""

    def scores(store: LocalStore) -> list[list[tuple[str, float]]]:
        queries = [Query(words) for words in ("paper", "revised number7", "number50 number51 later paper")]
        found = rank_all(store, queries, {"bm25": Bm25(depth=1_000), "fuzzy": Bm25(depth=1_000, fuzziness="auto")})
        assert not any(isinstance(one, CcheckError) for one in found)
        return [sorted(ranking) for one in found if isinstance(one, dict) for ranking in one.values()]

    last = {i: entry(i, "paper") for i in range(300)}
    with LocalStore(tmp_path / "updated") as updated:
        fill(updated, LAYOUT, list(last.values()))
        for first, word in ((0, "revised"), (40, "later words of another length")):
            changed = {i: entry(i, word) for i in range(first, first + 60)}
            updated.upsert(list(changed.values()))
            last |= changed
        updated.delete([f"d{i}" for i in range(200, 250)])
        updated.publish()
        with LocalStore(tmp_path / "fresh") as fresh:
            fill(fresh, LAYOUT, [one for i, one in last.items() if not 200 <= i < 250])
            assert scores(updated) == scores(fresh)


def test_a_few_removed_documents_of_a_large_store_wait_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "ALWAYS_SETTLED", 99)
    monkeypatch.setattr(upkeep, "SETTLED_FROM", 0.03)
    with LocalStore(tmp_path / "store") as store:
        fill(store, LAYOUT, [entry(i) for i in range(102)])
        for number, waits in ((0, True), (1, True), (2, False)):
            store.delete([f"d{number}"])
            store.publish()
            assert store._writer is not None
            removed = removed_in(tmp_path / "store" / store._writer.words[DOCUMENTS].folder)[0]
            assert removed == (number + 1 if waits else 0)
        monkeypatch.setattr(upkeep, "ALWAYS_SETTLED", 98)
        store.delete(["d3"])
        store.publish()
        assert removed_in(tmp_path / "store" / store._writer.words[DOCUMENTS].folder)[0] == 0
