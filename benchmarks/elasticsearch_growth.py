"""How time and bytes grow with the documents on a cluster of three Elasticsearch nodes, and what a lost node costs.

    python benchmarks/elasticsearch_growth.py [FOLDER] --documents 10000 --documents 100000

FOLDER is SciFact (default: scifact in $CCHECK_SHARED_DATA); documents and vectors are growth.py's stand-ins. All three
nodes, ccheck and the plain client share this machine, so times are of a crowded cluster: only growth and ratios say
something. The first size warms the servers up. A document has one copy on another node.

Two indices with the same mapping grow batch by batch: ccheck writes one, and the plain client then sends the same
bodies, from Python objects, to the other. Then 1, 8 and 32 threads ask claims for some seconds, ccheck and the plain
client in turns, which sends what ccheck sent. At the end, with 8 threads that ask through ccheck, the node that holds
the index is killed and started again: no claim may fail. Two copies of an index have graphs of their own, so where many
documents are alike, the other copy may find others: those claims are counted.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import codes
import common
import elasticsearch
from elasticsearch_common import machine, random_layout, servers_as_people_run_them
from elasticsearch_search import recorded
from growth import ABSTRACTS, DEPTH, batches

from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Bm25, Dense
from ccheck.core.types import Entry, Passage, Query
from ccheck.search import Search, answer
from ccheck.search.elastic import Connection, ElasticStore

ROWS = ()
"""The page has a table of its own for these."""
CALLERS = (1, 8, 32)
MEASURES = {
    "ingest": "documents written a second",
    "bytes": "bytes a document, with its copy",
    "merging": "merging, ms a document",
    **{f"p{share} {many}": f"p{share} of a claim, {many} callers, ms" for share in (50, 99) for many in CALLERS},
}
SHOWN = [name for name in MEASURES if name != "merging" and not name.startswith("p99")]
"""What the page has; all are kept."""
OURS, PLAIN = "ccheck-benchmark-ours", "ccheck-benchmark-plain"
Request = tuple[str, Any, dict[str, Any]]


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--documents", "counts", multiple=True, type=int, default=(10_000, 100_000))
@click.option("--claims", default=50, show_default=True)
@click.option("--seconds", default=10.0, show_default=True, help="How long each number of callers asks.")
@click.option("--beside", default=100_000, show_default=True, help="The plain client writes so many documents at most.")
def main(folder: Path | None, counts: tuple[int, ...], claims: int, seconds: float, beside: int) -> None:
    folder = folder or Path(os.environ["CCHECK_SHARED_DATA"]) / "scifact"
    servers_as_people_run_them()
    from elasticsearch_clusters import three_nodes

    vectors, passages = codes.embedded(folder, ABSTRACTS)
    abstracts = [(row["title"], row["text"].split(". ")) for row in common.rows(folder / "corpus.jsonl.gz")]
    texts = [row["text"] for row in common.rows(folder / "queries.jsonl")]
    asked = [Query(text, vector) for text, vector in zip(texts, vectors, strict=False)][:claims]
    taken: common.Taken = {"ccheck": {}, "plain": {}}
    with three_nodes() as cluster:
        where, *others = (node.url for node in cluster.nodes)
        client = elasticsearch.Elasticsearch([where, *others], request_timeout=120, retry_on_timeout=True)
        for count in counts:
            for index in (OURS, PLAIN):
                client.indices.delete(index=f"{index}-000001", ignore_unavailable=True)
            connection = Connection(where, hosts=tuple(others), request_timeout=120)
            with ElasticStore(connection, OURS) as store, ElasticStore(connection, PLAIN) as other:
                sides = {"ccheck": (OURS, store), "plain": (PLAIN, other)}
                if count > beside:
                    del sides["plain"]
                for _, one in sides.values():
                    one.prepare(random_layout(passages.shape[1]))
                written(store, client if "plain" in sides else None, batches(abstracts, passages, count), count, taken)
                for side, (index, one) in sides.items():
                    one.publish()
                    assert one.count() == count
                    sized(client, side, index, count, taken)
                for many in CALLERS:
                    for side, times in searched(store, client, asked, many, seconds).items():
                        for share in (50, 99):
                            cut = statistics.quantiles(times, n=100)[share - 1]
                            taken[side][f"{count} p{share} {many}"] = [1000 * cut]
                own = {name.partition(" ")[2]: value for name, value in taken["ccheck"].items()}
                print(f"{count:,} documents: {own}", flush=True)
                if count == counts[-1]:
                    lost(cluster, store, asked, 3 * seconds)
        common.told(taken, ROWS, machine(where), table=table(taken, counts))


def written(store: ElasticStore, client: Any | None, some: Iterator[Any], count: int, taken: common.Taken) -> None:
    ours = plain = 0.0
    for made, rows in some:
        found = [Entry(one, "0" * 32, {MAIN_VECTORS: (Passage(0, len(one.text), row),)})
                 for one, row in zip(made, rows, strict=True)]  # fmt: skip
        requests: list[Request] = []
        began = time.perf_counter()
        requests += recorded(store, lambda found=found: store.upsert(found))
        ours += time.perf_counter() - began
        bodies = [body for path, body, _ in requests if path.endswith("_bulk")]
        assert bodies
        if client is None:
            continue
        began = time.perf_counter()
        with ThreadPoolExecutor(8) as threads:
            for said in threads.map(lambda body: client.bulk(index=f"{PLAIN}-000001", operations=body), bodies):
                assert not said["errors"], said
        plain += time.perf_counter() - began
    for side, took in (("ccheck", ours), ("plain", plain)):
        if took:
            taken[side][f"{count} ingest"] = [count / took]


def sized(client: Any, side: str, index: str, count: int, taken: common.Taken) -> None:
    said = client.indices.stats(index=f"{index}-000001", metric="store,merge")["_all"]["total"]
    taken[side][f"{count} bytes"] = [said["store"]["size_in_bytes"] / count]
    taken[side][f"{count} merging"] = [said["merges"]["total_time_in_millis"] / count]


def search(store: ElasticStore, query: Query) -> list[str]:
    (ranking,) = answer(store, Search([query], {"bm25": Bm25(depth=DEPTH), "dense": Dense(depth=DEPTH)}, k=10))
    return [hit.document.id for hit in ranking.hits]


def searched(
    store: ElasticStore, client: Any, asked: Sequence[Query], callers: int, seconds: float
) -> dict[str, list[float]]:
    """The seconds of each claim, by side."""
    search(store, asked[0])  # from which it learns what the licence allows
    requests = [recorded(store, lambda query=query: search(store, query)) for query in asked]

    def plain(number: int) -> None:
        for path, body, wanted in requests[number]:
            kind = client.msearch if path.endswith("_msearch") else client.search
            kind(index=OURS, **({"searches": body} if path.endswith("_msearch") else body), **wanted)

    sides: dict[str, Callable[[int], Any]] = {"ccheck": lambda number: search(store, asked[number]), "plain": plain}
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(2):
        for side in random.sample(list(sides), len(sides)):
            found[side] += asking(sides[side], len(asked), callers, seconds / 2)
    return found


def asking(ask: Callable[[int], Any], claims: int, callers: int, seconds: float) -> list[float]:
    until, found = time.monotonic() + seconds, []

    def caller(first: int) -> None:
        for number in itertools.count(first):
            if time.monotonic() > until:
                return
            found.append(common.spent(lambda number=number: ask(number % claims)).wall)

    with ThreadPoolExecutor(callers) as threads:
        list(threads.map(caller, range(callers)))
    return found


def lost(cluster: Any, store: ElasticStore, asked: Sequence[Query], seconds: float) -> None:
    """A node is killed a third of the time after the start, and comes back after another third."""
    right = [search(store, query) for query in asked]
    node = cluster.primary(f"{OURS}-000001")
    changes = [threading.Timer(seconds / 3, node.kill), threading.Timer(2 * seconds / 3, node.launch)]
    for change in changes:
        change.start()

    shared: list[float] = []

    def same(number: int) -> None:
        found = search(store, asked[number])
        assert len(found) == len(right[number])
        shared.append(len(set(found) & set(right[number])) / len(found))

    times = asking(same, len(asked), 8, seconds)
    for change in changes:
        change.join()
    node.await_port()
    began = time.monotonic()
    cluster.await_health()
    print(
        f"a node killed and back, 8 callers: {len(times)} claims, none failed, {sum(one < 1 for one in shared)} found "
        f"other documents (on average {statistics.mean(shared):.3f} of the ten were the same); "
        f"p50 {1000 * statistics.median(times):.0f} ms, slowest {max(times):.1f} s; "
        f"all copies there {time.monotonic() - began:.0f} s after the node"
    )


def table(taken: common.Taken, counts: Sequence[int]) -> list[str]:
    """By measure: ccheck's value at each size, the exponent between the last two, and its ratio to the plain client."""
    lines = [
        f"| {'/'.join(f'{count:,}' for count in counts)} documents | ccheck | exponent | of the plain client |",
        "| --- | --- | --- | --- |",
    ]
    for name in SHOWN:
        ours, plain = ([taken[side].get(f"{count} {name}", [0])[0] for count in counts] for side in ("ccheck", "plain"))
        ratios = "/".join(f"{one / other:.2f}" if other else "–" for one, other in zip(ours, plain, strict=True))
        values = "/".join(f"{one:.2g}" if one < 10 else f"{one:,.0f}" for one in ours)
        steps = len(counts) > 1 and min(ours[-2:]) > 0
        grown = f"{math.log(ours[-1] / ours[-2]) / math.log(counts[-1] / counts[-2]):.2f}" if steps else "–"
        lines.append(f"| {MEASURES[name]} | {values} | {grown} | {ratios} |")
    return lines


if __name__ == "__main__":
    main()
