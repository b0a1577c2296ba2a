"""Documents a second into Elasticsearch, without embeddings, over bare `helpers.parallel_bulk`; to reach: at least 0.9.

Both write the same documents by four threads, taking turns, each time into a new index of the same mapping.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import click
import elasticsearch
from elasticsearch import helpers
from elasticsearch_common import drop, entries, machine, server, spread

from ccheck.search import Layout
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.types import Entry

INDEX = "ccheck-benchmark-ingest"


@click.command()
@click.option("--url", help="A server; one is started without this.")
@click.option("--documents", default=20_000, show_default=True)
@click.option("--batch", default=2_000, show_default=True, help="Documents of one upsert, as ingestion hands them on.")
@click.option("--rounds", default=5, show_default=True)
def main(url: str | None, documents: int, batch: int, rounds: int) -> None:
    found = entries(documents)
    with server(url) as address:
        print(f"{machine(address)}; {documents:,} documents, {batch:,} an upsert")
        ratios, rates = [], []
        for number in range(rounds + 1):
            sides = [lambda: ours(address, found, batch), lambda: bare(address, found)]
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


def ours(url: str, found: Sequence[Entry], batch: int) -> None:
    with ElasticStore(Connection(url), INDEX) as store:
        for first in range(0, len(found), batch):
            assert store.upsert(found[first : first + batch]) == {}


def bare(url: str, found: Sequence[Entry]) -> None:
    client = elasticsearch.Elasticsearch(url, request_timeout=60)
    deque(helpers.parallel_bulk(client, (action(entry) for entry in found), thread_count=4, chunk_size=500), maxlen=0)


def action(entry: Entry) -> dict[str, Any]:
    document = entry.document
    return {
        "_index": INDEX,
        "_id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": dict(document.metadata),
        "digest": entry.digest,
    }


if __name__ == "__main__":
    main()
