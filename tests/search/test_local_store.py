"""What only the local store must do: survive crashes, serve readers beside a writer, rebuild what is derived."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from filling import fill, write
from local_entries import DIMENSIONS, LAYOUT, bm25_count, dense_first, entry
from programs import program

from ccheck.core.errors import InvalidData, NotFound, ServerError
from ccheck.search.local import LocalStore
from ccheck.search.local.database import mark
from ccheck.search.local.files import DATABASE
from ccheck.search.local.vectors import VectorIndex

WRITER = """
    from pathlib import Path
    from ccheck.search.local import store as local_store
    from local_entries import LAYOUT, LocalStore, entry
    local_store.COMMIT_EVERY = 40
    store = LocalStore(Path({folder!r}))
    store.prepare(LAYOUT)
    for first in range(0, 100_000, 20):
        store.upsert([entry(i) for i in range(first, first + 20)])
        # What was there before is changed, so that the BM25 index has deletes to do.
        store.upsert([entry(i) for i in range(max(0, first - 40), max(0, first - 20))])
        print(first + 20, flush=True)
"""


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with LocalStore(folder) as store:
        fill(store, LAYOUT, [entry(i) for i in range(20)])
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


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as first, LocalStore(tmp_path / "store") as second:
        first.prepare(LAYOUT)
        with pytest.raises(ServerError, match="another process is writing"):
            second.prepare(LAYOUT)
        with pytest.raises(ServerError, match="another process is writing"):
            second.upsert([entry(1)])
        first.close()
        second.upsert([entry(1)])


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(InvalidData, match="not a ccheck store"):
        LocalStore(tmp_path).prepare(LAYOUT)
    with pytest.raises(NotFound):
        LocalStore(tmp_path).drop()
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_a_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store:
        store.prepare(LAYOUT)
    with sqlite3.connect(tmp_path / "store" / DATABASE) as database:
        database.execute("UPDATE meta SET value = '99', mark = ? WHERE key = 'format'", (mark("format", "99"),))
    database.close()
    with pytest.raises(InvalidData, match="format 99"):
        LocalStore(tmp_path / "store").count()


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files as POSIX systems do")
def test_a_full_disk_is_said_and_nothing_stored_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    code = """
        import resource, signal
        from pathlib import Path
        from ccheck.core.errors import Incomplete
        from local_entries import LAYOUT, LocalStore, entry
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


def test_rebuild_drops_the_vectors_of_what_is_gone(tmp_path: Path) -> None:
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


def test_dense_search_is_exact_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccheck.search.local.vectors.ROWS_AT_ONCE", 64)
    random = np.random.default_rng(0)
    rows = random.standard_normal((1000, DIMENSIONS)).astype(np.float32)
    owners = np.sort(random.integers(1, 300, 1000))
    owners[random.integers(0, 1000, 50)] = -1
    changes = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
    seqs = owners[changes].astype(np.int64)
    index = VectorIndex(rows, changes, seqs, seqs)
    queries = random.standard_normal((3, DIMENSIONS)).astype(np.float32)
    allowed = random.random(301) < 0.7
    for mask in (None, allowed):
        for query, found in zip(queries, index.search(queries, 20, mask), strict=True):
            best: dict[int, float] = {}
            for seq, score in zip(owners.tolist(), (rows @ query).tolist(), strict=True):
                if seq >= 0 and (mask is None or mask[seq]):
                    best[seq] = max(score, best.get(seq, -np.inf))
            top = sorted(best.items(), key=lambda item: -item[1])[:20]
            assert list(dict(found)) == [seq for seq, _ in top]
            assert list(dict(found).values()) == pytest.approx([score for _, score in top], abs=1e-5)


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
def test_a_store_that_may_only_be_read_is_searched(tmp_path: Path) -> None:
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
