"""Shared by the Elasticsearch benchmarks: a server, documents, an index of them, and the format of figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import common
import httpx
import numpy as np

from ccheck.core.layout import MAIN_VECTORS, Chunking, Embedding, Layout
from ccheck.core.types import Document, Entry, Passage, Query
from ccheck.search.elastic import Connection, ElasticStore

WORDS_IN_TEXT, VOCABULARY = 200, 30_000
AT_A_TIME = 2_000
TESTS = Path(__file__).parents[1] / "tests"


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The URL of the given server, or of one started for this run."""
    if url is not None:
        yield url.rstrip("/")
        return
    servers_as_people_run_them()
    from elasticsearch_nodes import start_node

    with start_node("trial") as node:
        yield node.url


def servers_as_people_run_them() -> None:
    """The tests' servers start faster without the second compiler, on which Lucene's arithmetic with vectors relies."""
    sys.path[:0] = [str(TESTS), str(TESTS / "search")]
    import elasticsearch_nodes

    elasticsearch_nodes.JAVA_OPTIONS, elasticsearch_nodes.HEAP = "", "1g"


def entries(count: int, dimensions: int = 0, seed: int = 0) -> list[Entry]:
    """Synthetic abstracts with words distributed as in real text, and random unit vectors on request."""
    random = np.random.default_rng(seed)
    words = np.array([f"{'abcdefghijklmnopqrstuvwxyz'[n % 26]}{n:x}ion" for n in range(VOCABULARY)])
    ranks = np.minimum(random.zipf(1.2, (count, WORDS_IN_TEXT)), VOCABULARY) - 1
    vectors = random.normal(size=(count, dimensions)).astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    found = []
    for number, row in enumerate(ranks):
        text = " ".join(words[row])
        document = Document(f"{seed}-{number}", " ".join(words[row[:10]]), text, {"year": 1950 + number % 75})
        found.append(
            Entry(
                document,
                f"{number:032x}",
                {MAIN_VECTORS: (Passage(0, len(text), vectors[number]),)} if dimensions else {},
            )
        )
    return found


def random_layout(dimensions: int) -> Layout:
    """The layout of a store with such entries."""
    return Layout.with_vectors(Embedding("random", dimensions, "0" * 64, 256), Chunking(256, 256, 0))


@contextmanager
def indexed(url: str, index: str, found: Sequence[Entry], layout: Layout) -> Iterator[ElasticStore]:
    """A new index with these entries, which is removed afterwards."""
    drop(url, index)
    with ElasticStore(Connection(url), index) as store:
        store.prepare(layout)
        for start in range(0, len(found), AT_A_TIME):
            assert store.upsert(found[start : start + AT_A_TIME]) == {}
        store.publish()
        yield store
    drop(url, index)


def queries(count: int, dimensions: int) -> list[Query]:
    """The first words of other abstracts, with their vectors."""
    found = entries(count, dimensions, seed=1)
    return [Query(" ".join(e.document.text.split()[:12]), e.passages[MAIN_VECTORS][0].vector) for e in found]


def drop(url: str, index: str) -> None:
    """Remove the index of a store, and the one that a migration made of it."""
    names = f"{index}-000001,{index}-000002"
    httpx.delete(f"{url}/{names}", params={"ignore_unavailable": True}, timeout=60)


def machine(url: str) -> str:
    version = httpx.get(url, timeout=60).json()["version"]["number"]
    return common.machine(f"Elasticsearch {version}")
