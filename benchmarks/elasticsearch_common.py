"""Shared by the Elasticsearch benchmarks: a server, documents, and the format of figures."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from ccheck.layout import MAIN_VECTORS
from ccheck.types import Document, Entry, Passage

WORDS_IN_TEXT, VOCABULARY = 200, 30_000


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The URL of the given server, or of one started for this run."""
    if url is not None:
        yield url.rstrip("/")
        return
    tests = Path(__file__).parents[1] / "tests"
    sys.path[:0] = [str(tests), str(tests / "search")]
    from elasticsearch_nodes import start_node

    with start_node("trial") as node:
        yield node.url


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


def drop(url: str, index: str) -> None:
    httpx.delete(f"{url}/{index}-000001", timeout=60)


def spread(values: Sequence[float]) -> str:
    low, middle, high = (f"{value:.3f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} (median of {len(values)} rounds; {low} to {high})"


def machine(url: str) -> str:
    version = httpx.get(url, timeout=60).json()["version"]["number"]
    return f"Elasticsearch {version}, Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
