"""A local store after kills, power losses, full disks and strangers in its folder: whole, or an error that says so."""

import os
import shutil
import signal
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from local_entries import WRITER, bm25_count, dense_first, entry, found_everywhere, full_entry
from programs import killed_at, program
from searching import fill, info_of, rank_one, write
from store_documents import FULL, LAYOUT, SECOND

from ccheck.core.errors import Incomplete, InvalidData, NotFound, ServerError, UsageError
from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Analysis, Bm25
from ccheck.core.types import Query
from ccheck.search.local import LocalStore
from ccheck.search.local import store as local_store
from ccheck.search.local.files import DATABASE, UNBORN

CREATOR = """
    import os, signal, sys
    from pathlib import Path
    import filelock, tantivy
    from local_entries import LocalStore
    from store_documents import LAYOUT

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
    barrier = threading.Barrier(6)

    def create(_: int) -> str:
        with LocalStore(tmp_path / "store") as store:
            barrier.wait()
            try:
                store.prepare(LAYOUT)
            except ServerError as error:
                return str(error)
            return "made"

    with ThreadPoolExecutor(6) as pool:
        outcomes = set(pool.map(create, range(6)))
    assert "made" in outcomes and all("another process is writing" in one for one in outcomes - {"made"})
    with LocalStore(tmp_path / "store") as store:
        assert store.count() == 0


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files as POSIX systems do")
def test_a_disk_that_is_full_at_creation(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    code = """
        import resource, signal
        from pathlib import Path
        from ccheck.core.errors import CcheckError
        from local_entries import LocalStore
        from store_documents import LAYOUT
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


@pytest.mark.parametrize("how", ["for a reader", "for a writer", "with its log"])
def test_indices_that_are_ahead_of_the_database(tmp_path: Path, how: str) -> None:
    """An older database beside newer indices: 800 of 3,000 documents could not be found, and nothing said so."""
    folder, older, log = tmp_path / "store", tmp_path / "older", f"{DATABASE}-wal"
    with LocalStore(folder) as store:
        fill(store, FULL, [full_entry(i) for i in range(60)])
        if how == "with its log":  # what that has is not in the database yet
            shutil.copytree(folder, older)
    if how != "with its log":
        shutil.copytree(folder, older)
    with LocalStore(folder) as store:
        store.upsert([full_entry(i, "changed") for i in range(20, 40)])
        write(store, [full_entry(i, "new") for i in range(100, 110)])
    for name in (DATABASE, log) if how == "with its log" else (DATABASE,):
        assert (older / name).stat().st_size
        shutil.copy2(older / name, folder / name)
    with LocalStore(folder) as writer, LocalStore(folder) as reader:
        writer._acquire()  # so the reader can't make the index anew
        with pytest.raises(InvalidData, match="ccheck index rebuild --store"):
            bm25_count(reader)
    with LocalStore(folder) as store:
        if how == "for a writer":
            store.prepare(FULL)
        assert bm25_count(store) == store.count() == 60
        assert bm25_count(store, "changed") == bm25_count(store, "new") == 0
        assert all(found_everywhere(store, number) for number in range(60))
        assert info_of(store).pending == 0
    with LocalStore(folder) as store:  # the same ingest again
        store.upsert([full_entry(i, "changed") for i in range(20, 40)])
        write(store, [full_entry(i, "other") for i in range(200, 210)])
        assert bm25_count(store, "changed") == 20
        assert bm25_count(store, "new") == 0
        assert bm25_count(store, "other") == 10
        assert all(found_everywhere(store, number) for number in (0, 19, 20, 39, 59, 200, 209))
        assert store.check() == []


def test_every_commit_is_synced(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
        assert store._writer is not None
        assert store._writer._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._writer._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


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
        links[index / f"{'0123456789abcdef' * 2}.idx"] = mine / "sub" / "meta.json"
        for link, target in links.items():
            link.symlink_to(target)
        assert set(store.drop()) == {*own, *links}
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


def test_kill_while_writing_all_kinds_of_fields(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    for wanted in (100, 200):
        promised = killed_at(program(WRITER, folder=str(folder)), wanted)
        with LocalStore(folder) as reader:
            assert bm25_count(reader) == reader.count() >= promised
            assert all(found_everywhere(reader, number) for number in (0, 1, promised // 2, promised - 1))
            info = info_of(reader)
            assert (info.pending, info.passages) == (0, reader.count())
    with LocalStore(folder) as store:
        store.upsert([full_entry(1_950)])
        store.delete(["d0"])
        store.publish()
        assert found_everywhere(store, 1_950)
        assert not found_everywhere(store, 0)
        store.rebuild()
        assert found_everywhere(store, 1_950)
        assert found_everywhere(store, 100)


GAINER = """
    import os, signal
    from pathlib import Path
    from local_entries import LocalStore
    from store_documents import FULL
    from ccheck.search.local import bm25, database, upkeep
    def die(*args, **options):
        os.kill(os.getpid(), signal.SIGKILL)
    moment = {moment!r}
    if moment == "while building":
        bm25.TextFields.document_row = die
    elif moment == "before the switch":
        database.Database.set_layout = die
    else:
        sweep = upkeep.sweep
        upkeep.sweep = lambda folder, named: die() if len(list(folder.glob("bm25-*"))) > 1 else sweep(folder, named)
    LocalStore(Path({folder!r})).prepare(FULL)
"""


@pytest.mark.parametrize("moment", ["while building", "before the switch", "after the switch"])
def test_kill_while_a_store_gains_fields(tmp_path: Path, moment: str) -> None:
    folder = tmp_path / "store"
    with LocalStore(folder) as store:
        fill(store, LAYOUT, [entry(i) for i in range(50)])
    command = program(GAINER, folder=str(folder), moment=moment)
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr
    with LocalStore(folder) as reader:
        assert bm25_count(reader) == 50
        assert dense_first(reader, 7) == "d7"
        assert info_of(reader).layout == (FULL if moment == "after the switch" else LAYOUT)
    with LocalStore(folder) as store:
        store.delete(["d49"])
        fill(store, FULL, [full_entry(3), full_entry(60)])
        assert bm25_count(store) == 50
        assert found_everywhere(store, 3)
        assert found_everywhere(store, 60)
        store.prepare(FULL)
        store.rebuild()
        assert len(list(folder.glob("bm25*"))) == 1


def test_readers_while_a_store_gains_fields(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with LocalStore(folder) as store, LocalStore(folder) as reader, LocalStore(folder) as other:
        fill(store, LAYOUT, [entry(i) for i in range(2_000)])
        assert bm25_count(reader) == 2_000
        more = [Analysis(keep=sign) for sign in "%$&"]
        layouts = [replace(FULL, analyses=(*FULL.analyses, *more[:count])) for count in range(4)]
        writer = threading.Thread(target=lambda: [store.prepare(layout) for layout in layouts])
        writer.start()
        searches = 0
        while writer.is_alive() or searches < 3:
            assert bm25_count(reader) == bm25_count(other) == 2_000
            searches += 1
        writer.join()
        found = rank_one(reader, Query("paper"), {"bm25": Bm25(analysis=Analysis(keep="&"), depth=10_000)})
        assert len(found["bm25"]) == 2_000


def test_entries_that_do_not_fit_the_layout_are_refused_whole(tmp_path: Path) -> None:
    full = full_entry(1)
    bad = {
        "not prepared for vectors .* of 4": replace(full, passages={MAIN_VECTORS: full.passages[SECOND]}),
        "not prepared for vectors .* of 16": replace(full, passages={SECOND: full.passages[MAIN_VECTORS]}),
        "not prepared": replace(full, passages={"passages_12345678": full.passages[MAIN_VECTORS]}),
    }
    with LocalStore(tmp_path / "store") as store:
        store.prepare(FULL)
        for problem, one in bad.items():
            with pytest.raises(InvalidData, match=problem):
                store.upsert([full_entry(2), one])
        assert store.count() == 0
        write(store, [full])
        assert found_everywhere(store, 1)
    with LocalStore(tmp_path / "plain") as store:
        store.prepare(LAYOUT)
        with pytest.raises(InvalidData, match="not prepared"):
            store.upsert([replace(full, passages=entry(1).passages)])


def test_a_layout_whose_model_is_not_to_be_had_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
        with pytest.raises(NotFound, match="no/such-model"):
            store.prepare(replace(LAYOUT, analyses=(Analysis(subwords="no/such-model"),)))
        assert info_of(store).layout == LAYOUT
