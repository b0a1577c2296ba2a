"""Ingest into Elasticsearch without embeddings, in documents per second, against plain `helpers.parallel_bulk`.

The goal is a ratio of at least 0.9. Both sides read the same JSON Lines and write with four threads. They take turns,
each time into a new index with the same mapping, until every document is searchable. One comparison times the whole of
`ccheck ingest`, which also cleans each record, computes its digest and looks for duplicate ids. The other times only
the store's part.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import elasticsearch
from common import spread
from elasticsearch import helpers
from elasticsearch_common import drop, entries, machine, server

from ccheck.core.layout import Layout
from ccheck.core.types import Entry
from ccheck.ingest import ingest
from ccheck.ingest.run import BATCH_DOCUMENTS
from ccheck.search.elastic import Connection, ElasticStore

INDEX = "ccheck-benchmark-ingest"


@click.command()
@click.option("--url", help="Server to use.  [default: start one]")
@click.option("--documents", default=40_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(url: str | None, documents: int, rounds: int) -> None:
    found = entries(documents)
    with server(url) as address, tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "corpus.jsonl"
        with file.open("w", encoding="utf-8") as lines:
            for entry in found:
                lines.write(json.dumps(record(entry)) + "\n")
        print(f"{machine(address)}; {documents:,} documents, {file.stat().st_size / 1e6:.0f} MB")
        compare(
            "ccheck ingest FILE",
            lambda: whole(address, file),
            lambda: bare_file(address, file),
            address,
            documents,
            rounds,
        )
        compare(
            "the store alone", lambda: store(address, found), lambda: bare(address, found), address, documents, rounds
        )


def compare(
    name: str, ours: Callable[[], None], theirs: Callable[[], None], url: str, documents: int, rounds: int
) -> None:
    ratios, rates = [], []
    for number in range(rounds + 1):
        rate = [0.0, 0.0]
        for side in (0, 1) if number % 2 else (1, 0):
            rate[side] = timed(url, (ours, theirs)[side], documents)
        ratios.append(rate[0] / rate[1])
        rates.append(rate)
    best = [max(column) for column in zip(*rates[1:], strict=True)]
    print(f"{name} over parallel_bulk: {spread(ratios[1:])}; best {best[0]:,.0f} and {best[1]:,.0f} documents/s")


def timed(url: str, run: Callable[[], None], documents: int) -> float:
    """Documents per second into a new index that was created beforehand."""
    drop(url, INDEX)
    with ElasticStore(Connection(url), INDEX) as store:
        store.prepare(Layout())
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        store.publish()
        assert store.count() == documents
        store.drop()
    return documents / seconds


def whole(url: str, file: Path) -> None:
    with ElasticStore(Connection(url), INDEX) as opened:
        assert ingest(file, opened).rejected == 0


def store(url: str, found: Sequence[Entry]) -> None:
    with ElasticStore(Connection(url), INDEX) as opened:
        for first in range(0, len(found), BATCH_DOCUMENTS):
            assert opened.upsert(found[first : first + BATCH_DOCUMENTS]) == {}
        opened.publish()


def bare_file(url: str, file: Path) -> None:
    with file.open(encoding="utf-8") as lines:
        bulk(url, (json.loads(line) for line in lines))


def bare(url: str, found: Sequence[Entry]) -> None:
    bulk(url, map(record, found))


def bulk(url: str, records: Iterable[dict[str, Any]]) -> None:
    client = elasticsearch.Elasticsearch(url, request_timeout=60)
    deque(helpers.parallel_bulk(client, map(action, records), thread_count=4, chunk_size=500), maxlen=0)
    client.indices.refresh(index=INDEX)


def record(entry: Entry) -> dict[str, Any]:
    document = entry.document
    return {"_id": document.id, "title": document.title, "text": document.text, **document.metadata}


def action(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "_index": INDEX,
        "_id": record["_id"],
        "title": record["title"],
        "text": record["text"],
        "metadata": {"year": record["year"]},
    }


if __name__ == "__main__":
    main()
