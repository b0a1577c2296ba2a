"""A store that is moved to another index type and back under constant queries and writes: what each query got.

    python benchmarks/elasticsearch_migrate.py --url http://127.0.0.1:9200

`ccheck index migrate` runs as a process of its own. It is killed with SIGKILL when half of the documents are in the new
index, and started again. `ccheck index alias --back` then returns to the old one. Meanwhile one thread asks for BM25
and kNN hits, and another one changes, adds and removes documents. No query may fail or come back with fewer hits than
it asked for, and at the end the store must have exactly the digests that the writer expects.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import click
import httpx
from elasticsearch_common import TESTS, entries, indexed, machine, random_layout, server

from ccheck.search.elastic import Connection, ElasticStore

sys.path[:0] = [str(TESTS), str(TESTS / "search")]
from elastic_busy import Busy  # noqa: E402

INDEX = "ccheck-benchmark-migrate"
DIMENSIONS = 64


@click.command()
@click.option("--url", help="Server to use.  [default: start one]")
@click.option("--documents", default=20_000, show_default=True)
@click.option("--index-type", default="bbq_hnsw", show_default=True)
@click.option("--pause", default=0.02, show_default=True, help="Seconds between two queries, and between two writes.")
def main(url: str | None, documents: int, index_type: str, pause: float) -> None:
    filled, layout = entries(documents, DIMENSIONS), random_layout(DIMENSIONS)
    new = entries(2_000, DIMENSIONS, seed=1)
    with server(url) as address, indexed(address, INDEX, filled, layout) as store:
        print(f"{machine(address)}; {documents:,} documents, {DIMENSIONS} dimensions", flush=True)
        migrate = ["migrate", "--index-type", index_type, "--json", "--quiet"]
        with Busy(store, layout, filled, lambda number: new[number % len(new)], k=10, pause=pause) as busy:
            said("killed", busy, lambda: killed(address, migrate, documents))
            said("continued", busy, lambda: finished(address, migrate))
            said("back", busy, lambda: finished(address, ["alias", "--back", "--json", "--quiet"]))
        print("\n".join(dict.fromkeys(busy.failures)) or "no query or write failed")
        exact(address, busy.digests)


def said(name: str, busy: Busy, act: Callable[[], str]) -> None:
    """Do it, and print what the queries got meanwhile."""
    before, busy.slowest, started = Counter(busy.counts), 0.0, time.perf_counter()
    outcome = act()
    seconds = time.perf_counter() - started
    got = {what: busy.counts[what] - before[what] for what in ("answered", "failed", "empty", "short", "written")}
    counted = ", ".join(f"{count:,} {what}" for what, count in got.items())
    print(f"{name}, {seconds:.0f} s: {outcome}; {counted}; the slowest query took {busy.slowest:.1f} s", flush=True)


def started(url: str, arguments: list[str]) -> subprocess.Popen[str]:
    code = "import sys; from ccheck.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "index", *arguments, "--store", f"{url}/{INDEX}"]
    environment = os.environ | {"CCHECK_RECIPE": "bm25"}  # no model made these vectors
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def killed(url: str, arguments: list[str], documents: int) -> str:
    process = started(url, arguments)
    while (there := held(f"{url}/{INDEX}-000002")) < documents // 2:
        if process.poll() is not None:
            raise SystemExit(f"the migration ended too early, with exit code {process.returncode}")
        time.sleep(0.05)
    process.kill()
    return f"{there:,} documents were copied, exit code {process.wait()}"


def finished(url: str, arguments: list[str]) -> str:
    process = started(url, arguments)
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}")
    one = json.loads(output)
    return f"{one['copied']:,} copied, {one['documents']:,} in {one['target']}, continued: {one['resumed']}"


def held(index: str) -> int:
    """Documents written so far, searchable or not."""
    answer = httpx.get(f"{index}/_stats/indexing", timeout=60)
    primaries = answer.json()["_all"]["primaries"] if answer.status_code == 200 else {}
    return int(primaries.get("indexing", {}).get("index_total", 0))  # its shards may not have started


def exact(url: str, expected: dict[str, str]) -> None:
    with ElasticStore(Connection(url), INDEX) as store:
        store.publish()
        assert store.count() == len(expected), (store.count(), len(expected))
        assert store.digests(list(expected)) == expected
        print(f"{store.count():,} documents in the end, with exactly the digests that were written last")


if __name__ == "__main__":
    main()
