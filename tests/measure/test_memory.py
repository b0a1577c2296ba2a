"""The cache on disk, and the memory of evaluations on it."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys

import pytest

from ccheck.core.cache import Cache, memory_key, recall
from ccheck.lab.measure.session import DiskMemory

MIB = 1 << 20


def numbered(count: int, size: int = 1000) -> dict[bytes, bytes]:
    return {number.to_bytes(4): bytes([number % 256]) * size for number in range(count)}


def test_what_was_put_is_there_in_another_process(tmp_path):
    cache = Cache(tmp_path / "a" / "b.sqlite", MIB, "the cache")
    cache.put(numbered(3, 5))
    assert cache.get(list(numbered(4))) == numbered(3, 5) and cache.get([]) == {}
    read = (
        "import sys; from pathlib import Path; from ccheck.core.cache import Cache; "
        "print(Cache(Path(sys.argv[1]), 1 << 20, 'x').get([(1).to_bytes(4)]))"
    )
    said = subprocess.run([sys.executable, "-c", read, cache.path], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str({(1).to_bytes(4): b"\x01" * 5})
    cache.put({(1).to_bytes(4): b"other"})
    assert cache.get([(1).to_bytes(4)]) == {(1).to_bytes(4): b"other"}
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600 and cache.notice is None
    assert stat.S_IMODE(cache.path.parent.stat().st_mode) == 0o700
    cache.close()
    assert cache.get([(1).to_bytes(4)]) == {} and cache.put({b"k": b"v"}) is None


def test_the_oldest_go_first(tmp_path):
    cache = Cache(tmp_path / "x.sqlite", 200_000, "the cache")
    for key, value in numbered(500).items():
        cache.put({key: value})
    kept = sorted(int.from_bytes(key) for key in cache.get(list(numbered(500))))
    assert 100 < len(kept) < 200 and kept == list(range(500 - len(kept), 500))
    cache.put({b"large": b"x" * MIB})  # more than it may hold: nothing is left of it, and it ends
    assert len(cache.get(list(numbered(500)))) == 0 and cache.notice is None
    cache.put({b"k": b"v"})
    assert cache.get([b"k"]) == {b"k": b"v"}
    cache.close()


def test_without_bytes_nothing_is_left(tmp_path):
    cache = Cache(tmp_path / "x" / "x.sqlite", 0, "the cache")
    cache.put(numbered(3))
    assert len(cache.get(list(numbered(3)))) == 3 and cache.notice is None
    cache.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", ["no database", "a folder", "no folder"])
def test_a_file_that_cant_be_used_is_said_and_the_run_goes_on(tmp_path, broken):
    path = tmp_path / "cache" / "x.sqlite"
    if broken == "no folder":
        (tmp_path / "cache").write_text("a file")
    else:
        path.parent.mkdir()
        path.mkdir() if broken == "a folder" else path.write_bytes(b"no database" * 1000)
    cache = Cache(path, MIB, "the cache of tests")
    assert cache.notice.startswith(f"the cache of tests {path} can't be used (")
    cache.put(numbered(3))
    assert cache.get(list(numbered(3))) == numbered(3)
    cache.close()


def test_a_file_that_breaks_on_the_way_is_said(tmp_path):
    cache = Cache(tmp_path / "x.sqlite", MIB, "the cache")
    other = sqlite3.connect(tmp_path / "x.sqlite")
    with other:
        other.execute("DROP TABLE entries")
    other.close()
    cache.put(numbered(2))
    assert "no such table" in cache.notice and cache.get(list(numbered(2))) == numbered(2)
    cache.close()


def test_the_memory_recalls_by_kind_and_key(tmp_path):
    asked: list[list[int]] = []

    def compute(places: list[int]) -> list[str]:
        asked.append(places)
        return [f"value {place}" for place in places]

    keys = [memory_key("k", number) for number in range(4)]
    with DiskMemory(tmp_path / "m.sqlite", MIB) as memory:
        for some in (keys[:2], keys, keys):
            made = recall(memory, "ranking", some, compute, str.encode, bytes.decode)
            assert made == [f"value {place}" for place in range(len(some))]
        assert asked == [[0, 1], [2, 3]]
        assert memory.get("rerank", keys) == {}
        assert memory.hits == {"ranking": 6, "rerank": 0}
    with DiskMemory(tmp_path / "m.sqlite", MIB) as memory:
        memory.put("ranking", {keys[0]: b"new"})
        assert memory.get("ranking", keys[:2]) == {keys[0]: b"new", keys[1]: b"value 1"}
