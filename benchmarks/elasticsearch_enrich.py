"""Enriching an index that others use, against plain `helpers.parallel_bulk` updates with the same ready vectors.

The goal is a ratio of at least 0.85. Both sides add a vector to the same documents of an index that ccheck did not
make; no model runs, the vectors are there beforehand. ccheck also reads the documents, which the other side knows
already. `in place` updates the same documents as `parallel_bulk` does. `companion` writes an index of its own.

With `--kill`, one more run: a program that enriches is killed with SIGKILL in the middle, started again and undone.
Then every document, the mapping and the settings are compared with what they were before.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import common
import elasticsearch
import httpx
import numpy as np
import orjson
from elasticsearch import helpers
from elasticsearch_common import machine, server

from ccheck.core import pump
from ccheck.core.layout import Chunking, Embedding
from ccheck.core.settings import Settings
from ccheck.ingest.encoders import DenseEncoder, Encoders, default_chunking
from ccheck.pipeline import enrich as enriching
from ccheck.pipeline.enrich import Enricher
from ccheck.search.elastic import Connection, JoinedStore
from ccheck.search.elastic.companion import Companion
from ccheck.search.elastic.enrich import Beside, InPlace, open_source

INDEX = "ccheck-benchmark-enrich"
WINDOW = 256


class Ready:
    """Vectors by the number at the end of a text."""

    half = False

    def __init__(self, documents: int, dimensions: int) -> None:
        self.spec = Embedding("ready", dimensions, "0" * 64, WINDOW)
        vectors = np.random.default_rng(0).normal(size=(documents, dimensions)).astype(np.float32)
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        return self.vectors[[int(text.rpartition(" ")[2]) for text in texts]]


@click.command()
@click.option("--url", help="Server to use.  [default: start one]")
@click.option("--corpus", type=Path, help="JSON Lines with titles, to vary.  [default: made-up titles]")
@click.option("--documents", default=20_000, show_default=True)
@click.option("--dimensions", default=32, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--kill", is_flag=True, help="Kill an enrichment in the middle instead of measuring.")
@click.option("--child", hidden=True, is_flag=True)
def main(
    url: str | None, corpus: Path | None, documents: int, dimensions: int, rounds: int, kill: bool, child: bool
) -> None:
    if child:
        assert url is not None
        pump.REMEMBERED_AFTER = 1.0
        print(json.dumps(counts(enrich(url, Ready(documents, dimensions), in_place=False))))
        return
    with server(url) as address:
        print(f"{machine(address)}; {documents:,} documents, {dimensions} dimensions")
        if kill:
            killed(address, corpus, documents, dimensions)
        else:
            measured(address, corpus, documents, dimensions, rounds)
        drop(address)


def measured(url: str, corpus: Path | None, documents: int, dimensions: int, rounds: int) -> None:
    ready = Ready(documents, dimensions)
    sides: dict[str, Callable[[], Any]] = {
        "parallel_bulk": lambda: bare(url, ready, documents),
        "in place": lambda: enrich(url, ready, in_place=True),
        "companion": lambda: enrich(url, ready, in_place=False),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in list(sides) if number % 2 else reversed(sides):
            fill(url, corpus, documents)
            started = time.perf_counter()
            sides[name]()
            rates[name].append(documents / (time.perf_counter() - started))
            print(f"  round {number}: {name} {rates[name][-1]:,.0f} documents/s", file=sys.stderr)
    for name in ("in place", "companion"):
        ratios = [ours / theirs for ours, theirs in zip(rates[name], rates["parallel_bulk"], strict=True)][1:]
        print(f"{name} over parallel_bulk updates: {common.spread(ratios)}")


def killed(url: str, corpus: Path | None, documents: int, dimensions: int) -> None:
    fill(url, corpus, documents)
    before = state(url)
    arguments = ["--child", "--url", url, "--documents", str(documents), "--dimensions", str(dimensions)]
    child = subprocess.Popen([sys.executable, __file__, *arguments])
    companion = f"{url}/ccheck-companion-{INDEX}"
    while (there := held(companion)) < documents // 2 and child.poll() is None:
        time.sleep(0.2)
    child.kill()
    child.wait()
    print(f"killed with {there:,} of {documents:,} documents in the companion; exit code {child.returncode}")
    done = json.loads(subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True).stdout)
    print(f"started again: {done}; {held(companion):,} documents in the companion")
    assert held(companion) == documents
    assert state(url) == before
    with JoinedStore(Connection(url), INDEX) as store:
        Companion(store).drop()
    assert httpx.get(companion).status_code == 404
    assert state(url) == before
    print("undone; every _source, _seq_no and _version, the mapping, the settings and the aliases are as before")


def enrich(url: str, ready: Ready, *, in_place: bool) -> enriching.EnrichReport:
    with JoinedStore(Connection(url), INDEX) as store:
        source = open_source(store)
        chunking = Chunking.whole(WINDOW) if in_place else default_chunking(ready.spec)
        target = InPlace(source) if in_place else Beside(source, Companion(store))
        report = Enricher(target, Encoders((DenseEncoder(ready, chunking),)), Settings(cache_bytes=0)).run()
        assert not report.failed and not report.changed
        return report


def counts(report: enriching.EnrichReport) -> dict[str, int]:
    return {"read": report.read, "made": report.made, "unchanged": report.unchanged, "failed": report.failed}


def bare(url: str, ready: Ready, documents: int) -> None:
    client = elasticsearch.Elasticsearch(url, request_timeout=60)
    vector = {"type": "dense_vector", "dims": ready.spec.dimensions, "index_options": {"type": "int8_hnsw"}}
    client.indices.put_mapping(index=INDEX, properties={"vector": vector | {"similarity": "cosine"}})
    actions = (
        {"_op_type": "update", "_index": INDEX, "_id": str(number), "doc": {"vector": ready.vectors[number].tolist()}}
        for number in range(documents)
    )
    deque(helpers.parallel_bulk(client, actions, thread_count=4, chunk_size=500), maxlen=0)
    client.indices.refresh(index=INDEX)


def fill(url: str, corpus: Path | None, documents: int) -> None:
    """An index that ccheck did not make, with titles that are varied by a number."""
    drop(url)
    titles = ["Sea level has risen since 1900", "Glaciers melt", "Methane in the air"]
    if corpus is not None:
        titles = [row["title"] for row in common.rows(corpus)]
    client = elasticsearch.Elasticsearch(url, request_timeout=60)
    properties = {"abstract": {"type": "text"}, "year": {"type": "integer"}}
    client.indices.create(index=INDEX, mappings={"properties": properties}, settings={"number_of_replicas": 0})
    actions = (
        {
            "_index": INDEX,
            "_id": str(number),
            "abstract": f"{titles[number % len(titles)]} {number}",
            "year": 1900 + number % 100,
            "tags": ["a", f"b{number % 7}"],
        }
        for number in range(documents)
    )
    deque(helpers.parallel_bulk(client, actions, thread_count=4, chunk_size=1000), maxlen=0)
    client.indices.refresh(index=INDEX)


def state(url: str) -> tuple[str, Any]:
    """A hash over all documents with their numbers, and the index's description."""
    client = elasticsearch.Elasticsearch(url, request_timeout=60)
    held = hashlib.sha256()
    found = {hit["_id"]: hit for hit in scanned(client)}
    for id_ in sorted(found):
        hit = found[id_]
        held.update(orjson.dumps([id_, hit["_seq_no"], hit["_primary_term"], hit["_version"], hit["_source"]]))
    return held.hexdigest(), client.indices.get(index=INDEX).body


def scanned(client: elasticsearch.Elasticsearch) -> Iterator[dict[str, Any]]:
    query = {"query": {"match_all": {}}, "seq_no_primary_term": True, "version": True}
    yield from helpers.scan(client, index=INDEX, query=query, size=2000)


def held(index: str) -> int:
    answer = httpx.get(f"{index}/_count", timeout=60)
    return int(answer.json()["count"]) if answer.status_code == 200 else 0


def drop(url: str) -> None:
    for index in (INDEX, f"ccheck-companion-{INDEX}-000001"):
        httpx.delete(f"{url}/{index}", timeout=60)


if __name__ == "__main__":
    main()
