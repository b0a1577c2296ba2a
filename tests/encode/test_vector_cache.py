"""The cache of embeddings."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from paths import FOLDERS
from tiny_embedder import TinyEmbedder

from ccheck.encode.cache import VectorCache, embedding_cache, encode_once


def embed(texts: list[str], embedder: TinyEmbedder, cache: VectorCache, *on_done) -> np.ndarray:
    vectors = encode_once(texts, embedder.encode_documents, cache, *on_done)
    return np.array(vectors, np.float32).reshape(len(texts), embedder.spec.dimensions)


def texts(count: int) -> list[str]:
    return [f"Text number {n}." for n in range(count)]


def test_each_text_is_embedded_once(tmp_path: Path) -> None:
    embedder = TinyEmbedder()
    wanted = [*texts(5), *texts(3), "another"]
    with embedding_cache(embedder.spec, tmp_path) as cache:
        vectors = embed(wanted, embedder, cache)
        assert sorted(embedder.embedded) == sorted(set(wanted))
        assert encode_once(texts(1), embedder.encode_documents, cache)[0].dtype == np.float32
        assert np.array_equal(vectors, np.stack([embedder.vector(text) for text in wanted]))
        assert np.array_equal(embed(wanted[::-1], embedder, cache), vectors[::-1])
    with embedding_cache(embedder.spec, tmp_path) as cache:
        done: list[tuple[int, int]] = []
        assert np.array_equal(embed(wanted, embedder, cache, lambda *now: done.append(now)), vectors)
        assert done == [(6, 6)]
        assert cache.notice is None
    assert embedder.calls == 1
    assert encode_once([], embedder.encode_documents, cache) == []


def test_other_weights_windows_and_sizes_have_their_own(tmp_path: Path) -> None:
    changes = {}, {"fingerprint": "e" * 64}, {"max_tokens": 16}, {"dimensions": 16}, {}
    for half, change in enumerate(changes):
        embedder = TinyEmbedder(**change)
        with embedding_cache(embedder.spec, tmp_path, half=half == 4) as cache:
            assert embed(texts(3), embedder, cache).shape == (3, embedder.spec.dimensions)
        assert embedder.calls == 1


WRITER = """
import sys, pathlib
from ccheck.encode.cache import embedding_cache, encode_once
from tiny_embedder import TinyEmbedder
embedder = TinyEmbedder(dimensions=64)
with embedding_cache(embedder.spec, pathlib.Path(sys.argv[1])) as cache:
    for n in range(0, 1_000_000, 50):
        encode_once([f"Text number {i}." for i in range(n, n + 50)], embedder.encode_documents, cache)
        print(n + 50, flush=True)
"""


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2])
def test_kill_loses_nothing_that_was_embedded(tmp_path: Path, seconds: float) -> None:
    command, env = [sys.executable, "-c", WRITER, tmp_path], os.environ | {"PYTHONPATH": os.pathsep.join(FOLDERS)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    told = [50, *(int(line) for line in process.stdout.read().split("\n")[:-1])]
    process.stdout.close()
    process.wait()
    embedder = TinyEmbedder(dimensions=64)
    with embedding_cache(embedder.spec, tmp_path) as cache:
        vectors = embed(texts(told[-1]), embedder, cache)
        assert cache.notice is None and embedder.calls == 0
        assert np.array_equal(vectors, np.stack([embedder.vector(text) for text in texts(told[-1])]))
    with closing(sqlite3.connect(next(tmp_path.rglob("*.sqlite")))) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
