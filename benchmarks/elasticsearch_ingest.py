"""Documents a second from a file into Elasticsearch, without embeddings, over bare `helpers.parallel_bulk`.

To reach: at least 0.9. Both read the same JSON Lines and write by four threads, taking turns, each time into a new
index of the same mapping, until all can be searched. ccheck also cleans each record, makes its digest, and looks for
ids that come twice.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import elasticsearch
from elasticsearch import helpers
from elasticsearch_common import drop, entries, machine, server, spread

from ccheck.ingest import IngestOptions, ingest
from ccheck.search import Layout
from ccheck.search.elastic import Connection, ElasticStore

INDEX = "ccheck-benchmark-ingest"


@click.command()
@click.option("--url", help="A server; one is started without this.")
@click.option("--documents", default=40_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(url: str | None, documents: int, rounds: int) -> None:
    with server(url) as address, tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "corpus.jsonl"
        with file.open("w", encoding="utf-8") as lines:
            for entry in entries(documents):
                document = entry.document
                row = {"_id": document.id, "title": document.title, "text": document.text, **document.metadata}
                lines.write(json.dumps(row) + "\n")
        print(f"{machine(address)}; {documents:,} documents, {file.stat().st_size / 1e6:.0f} MB")
        ratios, rates = [], []
        for number in range(rounds + 1):
            sides = [lambda: ours(address, file), lambda: bare(address, file)]
            rate = [0.0, 0.0]
            for side in (0, 1) if number % 2 else (1, 0):
                rate[side] = timed(address, sides[side], documents)
            ratios.append(rate[0] / rate[1])
            rates.append(rate)
        ours_best, bare_best = (max(column) for column in zip(*rates[1:], strict=True))
        print(
            f"ccheck over parallel_bulk: {spread(ratios[1:])}; best {ours_best:,.0f} and {bare_best:,.0f} documents/s"
        )


def timed(url: str, run: Callable[[], None], documents: int) -> float:
    """Documents a second into a new index, made beforehand."""
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


def ours(url: str, file: Path) -> None:
    with ElasticStore(Connection(url), INDEX) as store:
        assert ingest(file, store, options=IngestOptions(force=True)).rejected == 0


def bare(url: str, file: Path) -> None:
    client = elasticsearch.Elasticsearch(url, request_timeout=60)
    with file.open(encoding="utf-8") as lines:
        actions = (action(json.loads(line)) for line in lines)
        deque(helpers.parallel_bulk(client, actions, thread_count=4, chunk_size=500), maxlen=0)
    client.indices.refresh(index=INDEX)


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
