"""Bytes and rates of an index in Elasticsearch: the figures behind the formula in docs/elasticsearch.md.

    python benchmarks/elasticsearch_size.py corpus.jsonl.gz --documents 10000 --documents 100000

The texts are those of the file (BEIR's fields), repeated with one changed word in ten so that the index has new terms
to keep. With `--words`, only so many words of each are kept: indices that are compared only by their vectors take less
time. Each document has one passage with a random unit vector: its bytes are those of a real one, but no ranking means
anything here. The index of each type grows from size to size. At each size, its bytes are read before and after it is
merged into one segment (`_disk_usage` and `_stats/dense_vector`). Each line of the output is JSON.

An interrupted run leaves its index. The same command with the same `--url` fills it up from there: the rate is that of
the documents that were written since (`written`), and sizes that the index is beyond are left out.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import common
import httpx
import numpy as np
from elasticsearch_common import drop, machine, server

from ccheck.core.layout import MAIN_VECTORS, Chunking, Embedding, Layout
from ccheck.core.types import Document, Entry, Passage
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.mappings import INDEX_TYPES, IndexOptions, create_body

INDEX = "ccheck-benchmark-size"
BATCH = 2_000
QUERIES = 50


@click.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.option("--url", help="Server to use.  [default: start one]")
@click.option("--documents", "sizes", type=int, multiple=True, default=(10_000,), show_default=True)
@click.option("--dims", default=384, show_default=True)
@click.option("--words", type=int, help="Words of each text.  [default: all]")
@click.option("--index-type", "types", type=click.Choice(INDEX_TYPES), multiple=True, default=("int8_hnsw", "bbq_hnsw"))
def main(
    corpus: Path, url: str | None, sizes: tuple[int, ...], dims: int, words: int | None, types: tuple[str, ...]
) -> None:
    texts = [(row["title"], " ".join(row["text"].split()[:words])) for row in common.rows(corpus)]
    with server(url) as address:
        print(json.dumps({"machine": machine(address)}), flush=True)
        for index_type in types:
            index = f"{INDEX}-{index_type.replace('_', '-')}"
            with opened(address, index, dims, index_type) as store:
                for size in sorted(sizes):
                    if (there := count(address, index)) <= size:
                        found = {"documents": size, "dims": dims, "index_type": index_type}
                        found |= grown(address, store, texts, there, size, dims) | merged(address, index, dims)
                        print(json.dumps(found), flush=True)
            drop(address, index)


@contextmanager
def opened(url: str, index: str, dims: int, index_type: Any) -> Iterator[ElasticStore]:
    """The index of that type, made unless an interrupted run left it."""
    layout = Layout.with_vectors(Embedding("random", dims, "0" * 64, 256), Chunking.whole(256))
    if not httpx.head(f"{url}/{index}", timeout=60).is_success:
        body = create_body(f"{index}-000001", index, layout, IndexOptions(index_type, 1))
        httpx.put(f"{url}/{index}-000001", json=body, timeout=60).raise_for_status()
    with ElasticStore(Connection(url, request_timeout=600), index) as store:
        store.prepare(layout)
        yield store


def grown(
    url: str, store: ElasticStore, texts: list[tuple[str, str]], there: int, size: int, dims: int
) -> dict[str, Any]:
    """The index filled up from `there` to `size` documents: rates, and bytes before the merge."""
    characters = written = 0
    writing = client = 0.0
    before = server_cpu(url)
    for start in range(there // BATCH * BATCH, size, BATCH):
        batch = entries(texts, start, min(size, start + BATCH), dims)
        characters += sum(len(one.document.content) for one in batch)
        written += len(batch)
        started, busy = time.perf_counter(), time.process_time()
        assert store.upsert(batch) == {}
        writing, client = writing + time.perf_counter() - started, client + time.process_time() - busy
    started = time.perf_counter()
    store.publish()
    writing += time.perf_counter() - started
    found: dict[str, Any] = {"written": written}
    if written:
        found["characters_per_document"] = round(characters / written)
        found["documents_per_second"] = round(written / writing)
        found["client_cpu_ms_per_document"] = round(1000 * client / written, 2)
        found["server_cpu_ms_per_document"] = round(1000 * (server_cpu(url) - before) / written, 2)
    return found | {"bytes_before_merge": stored(url, store.index)}


def merged(url: str, index: str, dims: int) -> dict[str, Any]:
    started, before = time.perf_counter(), server_cpu(url)
    httpx.post(f"{url}/{index}/_forcemerge", params={"max_num_segments": 1}, timeout=3600).raise_for_status()
    seconds = round(time.perf_counter() - started, 1)
    httpx.post(f"{url}/{index}/_refresh", timeout=600).raise_for_status()
    found: dict[str, Any] = {"merge_seconds": seconds, "merge_cpu_seconds": round(server_cpu(url) - before)}
    found |= {"bytes": stored(url, index)} | by_part(url, index)
    return found | {"vectors_off_heap": off_heap(url, index), "search_ms": asked(url, index, dims)}


def entries(texts: list[tuple[str, str]], start: int, end: int, dims: int) -> list[Entry]:
    """These documents. From the second time on, a text has one word in ten replaced by one of another."""
    rng, chance = np.random.default_rng(start), random.Random(start)
    found = []
    for number in range(start, end):
        title, text = texts[number % len(texts)]
        if number >= len(texts):
            words = text.split()
            for place in chance.sample(range(len(words)), len(words) // 10):
                words[place] = chance.choice(chance.choice(texts)[1].split() or [""])
            text = " ".join(words)
        vector = rng.normal(size=dims).astype(np.float32)
        passage = Passage(0, len(text), vector / np.linalg.norm(vector))
        document = Document(f"{number:08d}", title, text, {"year": 1950 + number % 75})
        found.append(Entry(document, f"{number:032x}", {MAIN_VECTORS: (passage,)}))
    return found


def server_cpu(url: str) -> float:
    """CPU seconds of all nodes since they started."""
    nodes = httpx.get(f"{url}/_nodes/stats/process", timeout=60).raise_for_status().json()["nodes"]
    return float(sum(one["process"]["cpu"]["total_in_millis"] for one in nodes.values())) / 1000


def count(url: str, index: str) -> int:
    httpx.post(f"{url}/{index}/_refresh", timeout=600).raise_for_status()
    return int(httpx.get(f"{url}/{index}/_count", timeout=60).raise_for_status().json()["count"])


def stored(url: str, index: str) -> int:
    httpx.post(f"{url}/{index}/_flush", timeout=600).raise_for_status()
    answer = httpx.get(f"{url}/{index}/_stats/store", timeout=60).raise_for_status().json()
    return int(answer["_all"]["primaries"]["store"]["size_in_bytes"])


def by_part(url: str, index: str) -> dict[str, int]:
    """Bytes of the vectors, of what is stored of documents, and of the rest."""
    answer = httpx.post(f"{url}/{index}/_disk_usage", params={"run_expensive_tasks": True}, timeout=3600)
    parts: Mapping[str, Any] = answer.raise_for_status().json()[f"{index}-000001"]["all_fields"]
    vectors, documents = int(parts["knn_vectors_in_bytes"]), int(parts["stored_fields_in_bytes"])
    return {
        "vector_bytes": vectors,
        "stored_bytes": documents,
        "other_bytes": int(parts["total_in_bytes"]) - vectors - documents,
    }


def off_heap(url: str, index: str) -> dict[str, int]:
    """What the server says it maps into memory of vectors, by the kind of file; empty before 9.1."""
    answer = httpx.get(f"{url}/{index}/_stats/dense_vector", timeout=60).raise_for_status().json()
    parts = answer["_all"]["primaries"]["dense_vector"].get("off_heap", {})
    return {name: value for name, value in parts.items() if name.endswith("_size_bytes") and value}


def asked(url: str, index: str, dims: int) -> float:
    """The median milliseconds of a kNN search for 100 documents, one at a time, everything in memory."""
    rng, taken = np.random.default_rng(1), []
    for _ in range(QUERIES):
        knn = {"field": "passages.vector", "query_vector": rng.normal(size=dims).tolist(), "k": 100}
        started = time.perf_counter()
        body = {"knn": knn | {"num_candidates": 200}, "size": 100, "_source": False}
        httpx.post(f"{url}/{index}/_search", json=body, timeout=60).raise_for_status()
        taken.append(time.perf_counter() - started)
    return round(sorted(taken)[QUERIES // 2] * 1000, 1)


if __name__ == "__main__":
    main()
