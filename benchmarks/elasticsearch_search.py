"""The time of a search with ccheck over that of the plain client sending the same bodies. The goal is at most 1.2.

The sides take turns, claim by claim, in one run, and each goes first equally often. On the test node `rrf` is a
stand-in: elasticsearch_host/README.md. Both send the same requests: the script first records what ccheck sends, and the
plain client then sends it as `msearch` and `search` from plain Python objects.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import elasticsearch
from elasticsearch_common import entries, indexed, machine, queries, random_layout, server, spread

from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Query, Ranking
from ccheck.search import Search, answer
from ccheck.search.elastic import ElasticStore

INDEX = "ccheck-benchmark-search"
BOTH: dict[str, Retriever] = {"bm25": Bm25(), "dense": Dense()}


@click.command()
@click.option("--url", help="Server with a licence for rrf.  [default: start one]")
@click.option("--documents", default=5_000, show_default=True)
@click.option("--dimensions", default=384, show_default=True)
@click.option("--claims", default=60, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(url: str | None, documents: int, dimensions: int, claims: int, rounds: int) -> None:
    with (
        server(url) as address,
        indexed(address, INDEX, entries(documents, dimensions), random_layout(dimensions)) as store,
    ):
        client = elasticsearch.Elasticsearch(address, request_timeout=60)
        client.indices.forcemerge(index=f"{INDEX}-000001", max_num_segments=1)
        asked = queries(claims, dimensions)
        print(machine(address), f"{documents:,} documents, {dimensions} dimensions, {claims} claims", sep="; ")
        for name, details in (("each retriever's ranks, fused by ccheck", True), ("fused by the server's rrf", False)):
            print(f"{name}: {compare(store, client, asked, rounds, details)}")


def compare(
    store: ElasticStore, client: elasticsearch.Elasticsearch, asked: list[Query], rounds: int, details: bool
) -> str:
    """`details`: with each retriever's ranks and scores, as `Checker` asks for a verdict. Without, rrf fuses."""

    def ours(query: Query) -> None:
        (ranking,) = answer(store, Search([query], BOTH, k=10, details=details))
        assert isinstance(ranking, Ranking) and len(ranking.hits) == 10

    bodies = [recorded(store, lambda query=query: ours(query)) for query in asked]
    assert any('"rrf"' in json.dumps(body) for requests in bodies for _, body, _ in requests) is not details
    ratios, times, spent = [], [], []
    for turn in range(rounds + 1):
        seconds, cpu = [0.0, 0.0], [0.0, 0.0]
        for number, (query, requests) in enumerate(zip(asked, bodies, strict=True)):
            sides = (lambda query=query: ours(query), lambda r=requests: bare(client, r))
            # The second side finds the server's caches warm, so each side goes second equally often.
            for side in (0, 1) if (turn + number) % 2 else (1, 0):
                started, before = time.perf_counter(), time.process_time()
                sides[side]()
                seconds[side] += time.perf_counter() - started
                cpu[side] += time.process_time() - before
        ratios.append(seconds[0] / seconds[1])
        times.append([1000 * value / len(asked) for value in seconds])
        spent.append([1000 * value / len(asked) for value in cpu])
    own, plain = (statistics.median(column) for column in zip(*times[1:], strict=True))
    own_cpu, plain_cpu = (statistics.median(column) for column in zip(*spent[1:], strict=True))
    return (
        f"{spread(ratios[1:])}; {own:.2f} ms against {plain:.2f} ms; CPU time of the client's process: "
        f"{own_cpu:.2f} ms against {plain_cpu:.2f} ms"
    )


def recorded(store: ElasticStore, search: Callable[[], None]) -> list[tuple[str, Any, Any]]:
    """The requests that a search makes, as (path, body of Python objects, which part of the answer it wants)."""
    requests: list[tuple[str, Any, Any]] = []
    send = store.client.send

    def record(method: str, path: str, body: Any = None, params: Any = None) -> dict[str, Any]:
        lines = [json.loads(line) for line in body.splitlines()] if isinstance(body, bytes) else body
        requests.append((path, lines, (params or {}).get("filter_path")))
        return send(method, path, body, params)

    store.client.send = record  # type: ignore[method-assign]
    try:
        search()
    finally:
        store.client.send = send  # type: ignore[method-assign]
    return requests


def bare(client: elasticsearch.Elasticsearch, requests: list[tuple[str, Any, Any]]) -> None:
    for path, body, wanted in requests:
        if path.endswith("_msearch"):
            client.msearch(index=INDEX, searches=body, filter_path=wanted)
        elif path.endswith("_search"):
            client.search(index=INDEX, **body)
        else:
            raise AssertionError(f"the plain side has no {path}")


if __name__ == "__main__":
    main()
