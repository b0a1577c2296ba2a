"""The time of a search with ccheck over that of the plain client sending the same bodies. The goal is at most 1.2.

The sides take turns, claim by claim, in one run, and each goes first equally often. On the test node `rrf` is a
stand-in: elasticsearch_host/README.md. Both send the same requests: the script first records what ccheck sends, and the
plain client then sends it as `msearch` and `search` from plain Python objects.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

import click
import elasticsearch
from common import in_turns, spread
from elasticsearch_common import entries, indexed, machine, queries, random_layout, server

from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Query, Ranking
from ccheck.search import Search, answer
from ccheck.search.elastic import ElasticStore
from ccheck.search.elastic.queries import FUSINGS

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
        for name, native in (("each retriever's ranking, fused by ccheck", False), ("fused by the server's rrf", True)):
            store.client.unfused = set() if native else set(FUSINGS)
            print(f"{name}: {compare(store, client, asked, rounds)}")


def compare(store: ElasticStore, client: elasticsearch.Elasticsearch, asked: list[Query], rounds: int) -> str:
    """With each retriever's ranks and scores, as `Checker` asks for a verdict."""

    def ours(query: Query) -> None:
        (ranking,) = answer(store, Search([query], BOTH, k=10))
        assert isinstance(ranking, Ranking) and len(ranking.hits) == 10

    bodies = [recorded(store, lambda query=query: ours(query)) for query in asked]
    fused = any('"rrf"' in json.dumps(body) for requests in bodies for _, body, _ in requests)
    assert fused is not bool(store.client.unfused)
    ratios, wall, cpu = [], [], []
    for _ in range(rounds + 1):
        found = [
            in_turns((lambda q=query: ours(q), lambda r=requests: bare(client, r)))
            for query, requests in zip(asked, bodies, strict=True)
        ]
        own, plain = (sum(side.wall for side in sides) for sides in zip(*found, strict=True))
        ratios.append(own / plain)
        wall.append((own, plain))
        cpu.append([sum(side.cpu for side in sides) for sides in zip(*found, strict=True)])
    ms, cpu_ms = (
        [1000 * statistics.median(side) / len(asked) for side in zip(*x[1:], strict=True)] for x in (wall, cpu)
    )
    return (
        f"{spread(ratios[1:])}; {ms[0]:.2f} ms against {ms[1]:.2f} ms; CPU time of the client's process: "
        f"{cpu_ms[0]:.2f} ms against {cpu_ms[1]:.2f} ms"
    )


def recorded(store: ElasticStore, search: Callable[[], None]) -> list[tuple[str, Any, dict[str, Any]]]:
    """The requests that a search makes, as (path, body of Python objects, which part of the answer it wants)."""
    requests: list[tuple[str, Any, dict[str, Any]]] = []
    send = store.client.send

    def record(method: str, path: str, body: Any = None, params: Any = None) -> dict[str, Any]:
        lines = [json.loads(line) for line in body.splitlines()] if isinstance(body, bytes) else body
        wanted = {name: (params or {}).get(name) for name in ("filter_path", "include_named_queries_score")}
        requests.append((path, lines, wanted))
        return send(method, path, body, params)

    store.client.send = record  # type: ignore[method-assign]
    try:
        search()
    finally:
        store.client.send = send  # type: ignore[method-assign]
    return requests


def bare(client: elasticsearch.Elasticsearch, requests: list[tuple[str, Any, dict[str, Any]]]) -> None:
    for path, body, wanted in requests:
        if path.endswith("_msearch"):
            client.msearch(index=INDEX, searches=body, **wanted)
        elif path.endswith("_search"):
            client.search(index=INDEX, **body)
        else:
            raise AssertionError(f"the plain side has no {path}")


if __name__ == "__main__":
    main()
