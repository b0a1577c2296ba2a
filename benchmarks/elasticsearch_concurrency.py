"""What CCHECK_ELASTICSEARCH_CONCURRENCY does to claims and documents per second, and to somebody else's searches.

    python benchmarks/elasticsearch_concurrency.py --url http://127.0.0.1:9200

The settings take turns in each round. Claims are searched 64 at a time, by BM25 and kNN. Documents are written without
vectors into a new index. Meanwhile another client searches once every 50 ms: its median time is what others notice.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

import click
import elasticsearch
from elasticsearch_common import drop, entries, indexed, machine, queries, random_layout, server

from ccheck.core.layout import Layout
from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.search import Search, answer
from ccheck.search.elastic import Connection, ElasticStore

INDEX, WRITTEN = "ccheck-benchmark-concurrency", "ccheck-benchmark-concurrency-written"
BOTH: dict[str, Retriever] = {"bm25": Bm25(), "dense": Dense()}
AT_A_TIME, BATCH, PAUSE = 64, 2_000, 0.05


@click.command()
@click.option("--url", help="Server to use.  [default: start one]")
@click.option("--documents", default=5_000, show_default=True)
@click.option("--dimensions", default=384, show_default=True)
@click.option("--claims", default=256, show_default=True)
@click.option("--writes", default=8_000, show_default=True, help="Documents that each setting writes in a round.")
@click.option("--rounds", default=5, show_default=True)
def main(url: str | None, documents: int, dimensions: int, claims: int, writes: int, rounds: int) -> None:
    with server(url) as address, indexed(address, INDEX, entries(documents, dimensions), random_layout(dimensions)):
        asked = queries(claims, dimensions)
        written = entries(writes)
        print(machine(address), f"{documents:,} documents, {dimensions} dimensions, {claims} claims", sep="; ")

        def ask(store: ElasticStore) -> int:
            for start in range(0, len(asked), AT_A_TIME):
                answer(store, Search(asked[start : start + AT_A_TIME], BOTH, k=10))
            return len(asked)

        def write(store: ElasticStore) -> int:
            for start in range(0, len(written), BATCH):
                store.upsert(written[start : start + BATCH])
            return len(written)

        for name, index, act in (("claims", INDEX, ask), ("documents", WRITTEN, write)):
            compared(name, address, index, act, rounds)


def compared(name: str, url: str, index: str, act: Callable[[ElasticStore], int], rounds: int) -> None:
    settings = (1, 2, 4, 8, 16)
    rates: dict[int, list[float]] = {one: [] for one in settings}
    waits: dict[int, list[float]] = {one: [] for one in settings}
    for turn in range(rounds + 1):
        for concurrency in settings if turn % 2 else settings[::-1]:
            with ElasticStore(Connection(url, concurrency=concurrency), index) as store:
                if index == WRITTEN:
                    drop(url, index)
                    store.prepare(Layout())
                else:
                    store.info()
                with Other(url) as other:
                    started = time.perf_counter()
                    done = act(store)
                    seconds = time.perf_counter() - started
            if turn:
                rates[concurrency].append(done / seconds)
                waits[concurrency] += other.times
    drop(url, WRITTEN)
    for concurrency in settings:
        rate, wait = statistics.median(rates[concurrency]), 1000 * statistics.median(waits[concurrency])
        ratios = [mine / theirs for mine, theirs in zip(rates[concurrency], rates[8], strict=True)]
        print(
            f"{name}, {concurrency} at a time: {rate:,.0f} per second, {statistics.median(ratios):.2f} of what 8 do "
            f"({min(ratios):.2f} to {max(ratios):.2f}); another client's search takes {wait:.0f} ms",
            flush=True,
        )


class Other:
    """Another client that searches now and then, until it is left."""

    def __init__(self, url: str) -> None:
        self._client, self._stop = elasticsearch.Elasticsearch(url, request_timeout=60), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times: list[float] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            started = time.perf_counter()
            self._client.search(index=INDEX, query={"match": {"content": "a0ion b1ion"}}, size=10, source=False)
            self.times.append(time.perf_counter() - started)
            self._stop.wait(PAUSE)

    def __enter__(self) -> Other:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()


if __name__ == "__main__":
    main()
