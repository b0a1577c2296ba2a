"""Requests, searches and bytes for each claim that `ccheck query` checks on Elasticsearch, counted in the client.

    python benchmarks/elasticsearch_traffic.py --url http://127.0.0.1:9200

Counted are the bodies as they are without compression. Only public names are used, so that the script also measures
other versions of ccheck.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import click
import orjson
from elastic_transport import Transport
from elasticsearch_common import entries, indexed, machine, queries, random_layout, server

from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.search import Search, answer
from ccheck.search.elastic import Connection, ElasticStore

INDEX = "ccheck-benchmark-traffic"
DIMENSIONS = 384


class Counted:
    """What goes over the wire while it is in force."""

    def __init__(self) -> None:
        self.requests = self.searches = self.sent = self.received = 0
        self._perform = Transport.perform_request

    def __enter__(self) -> Counted:
        perform = self._perform

        def counted(transport: Transport, method: str, target: str, *, body: Any = None, **options: Any) -> Any:
            answer = perform(transport, method, target, body=body, **options)
            sent = body if isinstance(body, bytes) else orjson.dumps(body) if body is not None else b""
            self.requests += 1
            self.searches += sent.count(b"\n") // 2 if "_msearch" in target else "_search" in target
            self.sent += len(sent)
            self.received += len(orjson.dumps(answer.body)) if isinstance(answer.body, dict) else 0
            return answer

        Transport.perform_request = counted  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Transport.perform_request = self._perform  # type: ignore[method-assign]

    def per(self, claims: int) -> str:
        kilobytes = f"{self.sent / claims / 1000:,.1f} kB sent, {self.received / claims / 1000:,.1f} kB received"
        return f"{self.requests / claims:.2f} requests, {self.searches / claims:.2f} searches, {kilobytes}"


@click.command()
@click.option("--url", help="Server with a licence for rrf.  [default: start one]")
@click.option("--documents", default=5_000, show_default=True)
@click.option("--deep", default=5_000, show_default=True, help="Candidates for each retriever of the last batch.")
def main(url: str | None, documents: int, deep: int) -> None:
    with server(url) as address, indexed(address, INDEX, entries(documents, DIMENSIONS), random_layout(DIMENSIONS)):
        asked = queries(64, DIMENSIONS)
        print(machine(address), f"{documents:,} documents, {DIMENSIONS} dimensions", sep="; ")
        with ElasticStore(Connection(address, request_timeout=300), INDEX) as store:
            with Counted() as opening:
                try:
                    store.info(figures=False)
                except TypeError:  # older versions always count
                    store.info()
            print(f"before the first claim: {opening.per(1)}")
            for name, some, depth, k in (
                ("one claim", asked[:1], 100, 10),
                ("64 claims", asked, 100, 10),
                ("64 claims, the 30 best reranked", asked, 100, 30),
                (f"64 claims, {deep:,} candidates and hits", asked, deep, deep),
            ):
                retrievers: dict[str, Retriever] = {"bm25": Bm25(depth=depth), "dense": Dense(depth=depth)}
                tracemalloc.start()
                with Counted() as traffic:
                    answer(store, Search(some, retrievers, k=k))
                peak = tracemalloc.get_traced_memory()[1] / 1e6
                tracemalloc.stop()
                print(f"{name}, each: {traffic.per(len(some))}; peak of the call {peak:,.0f} MB")


if __name__ == "__main__":
    main()
