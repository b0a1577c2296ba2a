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
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import click
import httpx
from elasticsearch_common import entries, machine, server

from ccheck.layout import MAIN_VECTORS, Chunking, Embedding, Layout
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.stages import Bm25, Dense, Fusion, Retriever
from ccheck.types import Entry, Query, Ranking

INDEX = "ccheck-benchmark-migrate"
DIMENSIONS, K, BATCH = 64, 10, 2_000
LAYOUT = Layout.with_vectors(Embedding("random", DIMENSIONS, "0" * 64, 256), Chunking(256, 256, 0))
RETRIEVERS: dict[str, Retriever] = {"bm25": Bm25(depth=100), "dense": Dense(depth=100)}


class Busy:
    """Queries and writes from two threads, each with a connection of its own, until it is left."""

    def __init__(self, url: str, filled: list[Entry], pause: float) -> None:
        self._url, self._pause, self._stop = url, pause, threading.Event()
        self._filled = filled
        self._new = entries(2_000, DIMENSIONS, seed=1)
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        self.failures: list[str] = []
        self.digests = {one.document.id: one.digest for one in filled}
        self._threads = [threading.Thread(target=self._run, args=[one]) for one in (self._ask, self._write)]

    def __enter__(self) -> Busy:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, act: Callable[[ElasticStore, int], None]) -> None:
        with ElasticStore(Connection(self._url), INDEX) as store:
            store.info()
            store.prepare(LAYOUT)
            number = 0
            while not self._stop.is_set():
                try:
                    act(store, number)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
                    self.counts["failed"] += 1
                    self.failures.append(repr(error)[:300])
                number += 1
                self._stop.wait(self._pause)

    def _ask(self, store: ElasticStore, number: int) -> None:
        asked = self._filled[number * 37 % len(self._filled)]
        query = Query(asked.document.title, asked.passages[MAIN_VECTORS][0].vector)
        started = time.perf_counter()
        (answer,) = store.search([query], RETRIEVERS, Fusion(), k=K)
        self.slowest = max(self.slowest, time.perf_counter() - started)
        if not isinstance(answer, Ranking):
            raise answer
        self.counts["answered" if len(answer.hits) == K else "empty" if not answer.hits else "short"] += 1

    def _write(self, store: ElasticStore, number: int) -> None:
        changed = replace(self._filled[number % len(self._filled)], digest=f"changed {number}")
        added = self._new[number % len(self._new)]
        assert store.upsert([changed, added]) == {}
        self.digests |= {one.document.id: one.digest for one in (changed, added)}
        removed = self._filled[number * 7 % len(self._filled)].document.id
        store.delete([removed])
        self.digests.pop(removed, None)
        self.counts["written"] += 3


@click.command()
@click.option("--url", help="Server to use.  [default: start one]")
@click.option("--documents", default=20_000, show_default=True)
@click.option("--index-type", default="bbq_hnsw", show_default=True)
@click.option("--pause", default=0.02, show_default=True, help="Seconds between two queries, and between two writes.")
def main(url: str | None, documents: int, index_type: str, pause: float) -> None:
    with server(url) as address:
        httpx.delete(f"{address}/{INDEX}-000001,{INDEX}-000002", params={"ignore_unavailable": True}, timeout=60)
        filled = entries(documents, DIMENSIONS)
        with ElasticStore(Connection(address), INDEX) as store:
            store.prepare(LAYOUT)
            for start in range(0, documents, BATCH):
                assert store.upsert(filled[start : start + BATCH]) == {}
            store.publish()
        print(f"{machine(address)}; {documents:,} documents, {DIMENSIONS} dimensions", flush=True)
        migrate = ["migrate", "--index-type", index_type, "--json", "--quiet"]
        with Busy(address, filled, pause) as busy:
            said("killed", busy, lambda: killed(address, migrate, documents))
            said("continued", busy, lambda: finished(address, migrate))
            said("back", busy, lambda: finished(address, ["alias", "--back", "--json", "--quiet"]))
        print("\n".join(dict.fromkeys(busy.failures)) or "no query or write failed")
        exact(address, busy.digests)
        httpx.delete(f"{address}/{INDEX}-000001,{INDEX}-000002", timeout=60)


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
