"""`ccheck index size`: its estimate and the bytes of an index that was built."""

from __future__ import annotations

import json

import httpx
import numpy as np
import pytest
from cli_runs import ccheck
from filling import fill

from ccheck.core.layout import MAIN_VECTORS, Chunking, Embedding, Layout
from ccheck.core.types import Document, Entry, Passage
from ccheck.demo import CORPUS
from ccheck.search.elastic import Connection, ElasticStore, sizing
from ccheck.search.elastic.mappings import IndexOptions, IndexType, create_body

MEASURED: list[tuple[IndexType, int, int, int, int]] = [
    ("hnsw", 384, 10_000, 1_501, 32_240_882),
    ("int4_hnsw", 384, 10_000, 1_501, 34_339_765),
    ("int8_hnsw", 384, 10_000, 1_501, 36_289_846),
    ("int8_hnsw", 384, 100_000, 1_500, 358_335_793),
    ("int8_hnsw", 384, 400_000, 1_500, 1_429_639_572),
    ("bbq_hnsw", 384, 10_000, 1_501, 32_886_837),
    ("bbq_hnsw", 384, 100_000, 1_500, 324_186_801),
    ("bbq_hnsw", 384, 400_000, 1_500, 1_294_639_549),
    ("int8_hnsw", 64, 10_000, 170, 6_926_322),
    ("int8_hnsw", 64, 400_000, 169, 268_527_711),
    ("bbq_hnsw", 64, 10_000, 170, 6_366_629),
    ("bbq_hnsw", 64, 400_000, 169, 245_529_503),
]
"""The rows of benchmarks/README.md: dimensions, documents, characters of each, bytes of the index in one segment."""
GRAPHS = {10_000: 558_024, 100_000: 7_087_187, 400_000: 29_894_103}
"""Bytes of HNSW's neighbours of so many vectors."""

TOLERANCE = 0.2
"""Small indices have smaller graphs and other texts: what counts is that no part is missing or twice."""
DOCUMENTS, DIMS = 1_200, 96


@pytest.mark.parametrize(
    ("server", "index_type"),
    [("elasticsearch_url", "int8_hnsw"), ("elasticsearch_url", "bbq_hnsw"), ("elasticsearch_8_url", "int8_hnsw")],
)
def test_an_index_is_as_large_as_said(
    request: pytest.FixtureRequest, elasticsearch_index: str, server: str, index_type: IndexType
) -> None:
    elasticsearch_url = request.getfixturevalue(server)
    rng = np.random.default_rng(0)
    texts = [(one["title"], one["text"]) for one in map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines())]
    words = sorted({word for _, text in texts for word in text.split()})
    layout = Layout.with_vectors(Embedding("random", DIMS, "0" * 64, 256), Chunking.whole(256))
    body = create_body(elasticsearch_index, layout, IndexOptions(index_type, 1, 0))
    httpx.put(f"{elasticsearch_url}/{elasticsearch_index}-000001", json=body, timeout=60).raise_for_status()
    entries = []
    for number in range(DOCUMENTS):
        title, text = texts[number % len(texts)]
        text = " ".join(rng.choice(words, len(text.split())))
        vector = rng.normal(size=DIMS).astype(np.float32)
        passage = Passage(0, len(text), vector / np.linalg.norm(vector))
        entries.append(Entry(Document(str(number), title, text), f"{number:032x}", {MAIN_VECTORS: (passage,)}))
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        fill(store, layout, entries)
    url = f"{elasticsearch_url}/{elasticsearch_index}"
    httpx.post(f"{url}/_forcemerge", params={"max_num_segments": 1}, timeout=120).raise_for_status()
    httpx.post(f"{url}/_flush", timeout=60).raise_for_status()
    # Not `_stats/store`: the server refreshes that figure every ten seconds only.
    (index,) = httpx.get(f"{url}/_segments", timeout=60).json()["indices"].values()
    segments = [one for (shard,) in index["shards"].values() for one in shard["segments"].values()]
    built = sum(one["size_in_bytes"] for one in segments if one["search"])
    characters = sum(len(one.document.content) for one in entries) // DOCUMENTS
    # ELASTICSEARCH_URL, too, can name a server of version 8.
    old = httpx.get(elasticsearch_url, timeout=60).json()["version"]["number"].startswith("8.")
    said = sizing.size(DOCUMENTS, DIMS, index_type=index_type, characters=characters, replicas=0, vectors_in_source=old)
    assert said.primary == pytest.approx(built, rel=TOLERANCE)
    assert said.total == said.primary and said.shards == 1


@pytest.mark.parametrize(("index_type", "dims", "documents", "characters", "measured"), MEASURED)
def test_the_estimate_agrees_with_what_was_measured(
    index_type: IndexType, dims: int, documents: int, characters: int, measured: int
) -> None:
    said = sizing.size(documents, dims, index_type=index_type, characters=characters, replicas=0)
    assert said.primary == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("vectors", "measured"), GRAPHS.items())
def test_a_graph_grows_with_its_vectors_numbers(vectors: int, measured: int) -> None:
    assert vectors * sizing.graph_bytes(vectors) == pytest.approx(measured, rel=0.02)


def test_the_command() -> None:
    ran = ccheck("index", "size", "--documents", "1e8", "--index-type", "bbq_hnsw", "--replicas", 2, "--json")
    (one,) = ran.objects
    assert ran.code == 0 and one["documents"] == one["passages"] == 100_000_000
    assert one["page_cache"] == 3 * 100_000_000 * (384 // 8 + 14 + sizing.graph_bytes(100_000_000))
    assert one["gpu_hours"] is None and one["total"] == 3 * one["primary"]
    assert one["shards"] >= one["primary"] / sizing.SHARD_BYTES
    shown = ccheck("index", "size", "--documents", "2e7", "--gpu-rate", 1000)
    assert "5.6 hours" in shown.out and "Leave fuzziness off" in shown.err
    for wrong in ("1.5", "0", "many"):
        assert ccheck("index", "size", "--documents", wrong).code == 2
    assert ccheck("index", "size", "--documents", "1e6", "--dims", 16, "--index-type", "bbq_flat").code == 2
