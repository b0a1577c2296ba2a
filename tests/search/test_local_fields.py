"""What only the local store must do with the fields that recipes ask for: survive crashes, gain them beside readers."""

from __future__ import annotations

import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from filling import fill, write
from local_entries import ANALYSIS, FULL, LAYOUT, SECOND, bm25_count, dense_first, entry, found_everywhere, full_entry
from programs import killed_at, program
from searching import rank_all

from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Analysis, Bm25, Sparse
from ccheck.core.types import Query
from ccheck.search.local import LocalStore
from ccheck.search.local.files import DATABASE

FULL_WRITER = """
    from pathlib import Path
    from local_entries import FULL, LocalStore, full_entry
    from ccheck.search.local import store as local_store
    local_store.COMMIT_EVERY = 40
    store = LocalStore(Path({folder!r}))
    store.prepare(FULL)
    for first in range(0, 1_900, 20):
        store.upsert([full_entry(i) for i in range(first, first + 20)])
        store.upsert([full_entry(i) for i in range(max(0, first - 40), max(0, first - 20))])
        print(first + 20, flush=True)
"""


def test_kill_while_writing_all_kinds_of_fields(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    for wanted in (100, 200):
        promised = killed_at(program(FULL_WRITER, folder=str(folder)), wanted)
        with LocalStore(folder) as reader:
            assert bm25_count(reader) == reader.count() >= promised
            assert all(found_everywhere(reader, number) for number in (0, 1, promised // 2, promised - 1))
            info = reader.info()
            assert info is not None and (info.pending, info.passages) == (0, reader.count())
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
    from local_entries import FULL, LocalStore
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
        info = reader.info()
        assert info is not None and info.layout == (FULL if moment == "after the switch" else LAYOUT)
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
        layouts = [replace(FULL, analyses=(ANALYSIS, *(Analysis(keep=sign) for sign in "%$&"[:n]))) for n in range(4)]
        writer = threading.Thread(target=lambda: [store.prepare(layout) for layout in layouts])
        writer.start()
        searches = 0
        while writer.is_alive() or searches < 3:
            assert bm25_count(reader) == bm25_count(other) == 2_000
            searches += 1
        writer.join()
        (found,) = rank_all(reader, [Query("paper")], {"bm25": Bm25(analysis=Analysis(keep="&"), depth=10_000)})
        assert isinstance(found, dict)
        assert len(found["bm25"]) == 2_000


def test_documents_that_the_database_lost_leave_nothing_in_the_indices(tmp_path: Path) -> None:
    """SQLite may lose its last commits with the machine's power; what comes then has the same seqs."""
    folder = tmp_path / "store"
    with LocalStore(folder) as store:
        fill(store, FULL, [full_entry(i) for i in range(20)])
    before = (folder / DATABASE).read_bytes()
    with LocalStore(folder) as store:
        write(store, [full_entry(i, "lost") for i in range(100, 150)])
        assert bm25_count(store, "lost") == 50
    assert not (folder / f"{DATABASE}-wal").exists()
    (folder / DATABASE).write_bytes(before)
    with LocalStore(folder) as store:
        write(store, [full_entry(i) for i in range(200, 230)])
        assert bm25_count(store, "lost") == 0
        assert bm25_count(store) == store.count() == 50
        assert all(found_everywhere(store, number) for number in (3, 200, 229))
        (found,) = rank_all(store, [Query("", None, {"sparse": full_entry(120).sparse})], {"sparse": Sparse()})
        assert isinstance(found, dict)
        assert not {"d100", "d120"} & {id_ for id_, _ in found["sparse"]}


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
        info = store.info()
        assert info is not None and info.layout == LAYOUT
