"""What a claim costs on Elasticsearch: requests, bytes and time, for each way to learn each retriever's ranks.

`explain`: one `rrf` search whose hits say their ranks in their explanation and their scores as named queries: what
ccheck sends where the licence has `rrf`. `named`: the same without the explanation, and therefore without the ranks of
documents that several retrievers found. `each`: every retriever's ranking in one `_msearch`, fused by ccheck, and a
second request that reads the best documents: what ccheck sends where the licence has no `rrf`. The sides take turns,
claim by claim. On the test node `rrf` is a stand-in (elasticsearch_host/README.md); its explanation costs what
Elasticsearch's own costs, since the server scores the documents again for both.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import click
import httpx
from common import in_turns
from elasticsearch_common import entries, indexed, machine, queries, random_layout, server

from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Query, Ranking
from ccheck.search import Search, answer
from ccheck.search.elastic import ElasticStore
from ccheck.search.elastic.queries import FUSINGS

INDEX = "ccheck-benchmark-traffic"
BOTH: Mapping[str, Retriever] = {"bm25": Bm25(), "dense": Dense()}
Sent = list[tuple[str, bytes, dict[str, Any]]]


@click.command()
@click.option("--url", help="Server with a licence for rrf.  [default: start one]")
@click.option("--documents", default=5_000, show_default=True)
@click.option("--claims", default=30, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--window", default=30, show_default=True, help="Documents that are read for a claim.")
def main(url: str | None, documents: int, claims: int, rounds: int, window: int) -> None:
    with (
        server(url) as address,
        indexed(address, INDEX, entries(documents, 384), random_layout(384)) as store,
        httpx.Client(base_url=address, timeout=600) as client,
    ):
        client.post(f"/{INDEX}/_forcemerge", params={"max_num_segments": 1}).raise_for_status()
        asked = [recorded(store, query, window) for query in queries(claims, 384)]
        print(machine(address), f"{documents:,} documents, {claims} claims, {window} documents read", sep="; ")
        seconds: dict[str, list[float]] = {side: [] for side in asked[0]}
        for turn in range(rounds + 1):
            for sides in asked:
                calls = tuple((lambda sent=sent: send(client, sent)) for sent in sides.values())
                for side, spent in zip(sides, in_turns(calls), strict=True):
                    seconds[side] += [spent.wall] if turn else []
        for side, found in seconds.items():
            sizes = [[send(client, sides[side]), sum(len(body) for _, body, _ in sides[side])] for sides in asked]
            answered, sent = (statistics.median(column) / 1000 for column in zip(*sizes, strict=True))
            print(
                f"{side}: {len(asked[0][side])} requests, {sent:.1f} kB sent, {answered:.1f} kB answered, "
                f"{1000 * statistics.median(found):.1f} ms"
            )


def recorded(store: ElasticStore, query: Query, window: int) -> dict[str, Sent]:
    """The requests of each way for one claim."""

    def way(native: bool, change: Callable[[bytes], bytes] = bytes) -> Sent:
        sent: Sent = []
        original = store.client.send

        def record(method: str, path: str, body: Any = None, params: Any = None) -> dict[str, Any]:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.append((path, change(data), dict(params or {})))
            return original(method, path, body, params)

        store.client.unfused = set() if native else set(FUSINGS)
        store.client.send = record  # type: ignore[method-assign]
        try:
            (ranking,) = answer(store, Search([query], BOTH, k=window))
        finally:
            store.client.send = original  # type: ignore[method-assign]
        assert isinstance(ranking, Ranking) and ranking.fused_by == ("server" if native else "ccheck")
        return sent

    def unexplained(body: bytes) -> bytes:
        # Names are matched again only if hits are explained or counted.
        return body.replace(b', "explain": true', b"").replace(
            b'"track_total_hits": false', b'"track_total_hits": true'
        )

    store.info(figures=False)
    return {"explain": way(True), "named": way(True, unexplained), "each": way(False)}


def send(client: httpx.Client, requests: Sent) -> int:
    """The bytes of the answers."""
    size = 0
    for path, body, params in requests:
        kind = "application/x-ndjson" if path.endswith("_msearch") else "application/json"
        found = client.post(path, content=body, params=params, headers={"content-type": kind})
        size += len(found.raise_for_status().content)
        assert b'"error"' not in found.content, found.text[:500]
    return size


if __name__ == "__main__":
    main()
