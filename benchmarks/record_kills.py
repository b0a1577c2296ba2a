"""Kill processes that check claims: is every check that they said was kept in the record, and none twice?

    python benchmarks/record_kills.py [--store URL] [--checks 1000] [--threads 32] [--processes 4] [--seed 1]

Several processes check claims against one store, each with many threads, and say the id of each check after the record
has it. The script kills (SIGKILL) one of them at a random moment and starts another, until so many checks were said to
be kept. Then the record must have each of these once, with its claim and the answer that the process told. Beside a
local store, which is the default, SQLite must find the file whole. The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import selectors
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import ccheck
from ccheck import Checker
from ccheck.core.adjust import Changes, resolved
from ccheck.core.settings import resolve
from ccheck.service import Check, Service, open_service
from ccheck.service.record import FileRecord, Wanted

PAPERS = [
    {"_id": f"p{number}", "text": f"Paper {number} finds that tea number {number} is warm."} for number in range(50)
]
LONGEST_S = 1.0


def digest(check: Check) -> str:
    """Of a check's claim and answer, which but for its times are the same whenever it is asked."""
    told = [check.claim, {name: value for name, value in check.result.items() if name != "timings_ms"}]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def work(store: str, name: str, threads: int) -> None:
    """Check claims until killed, and say each check that was kept."""
    settings = resolve({"store": store, "recipe": "bm25"}).settings
    recipe = resolved(settings, Changes(rerank="none", verdict="none"))
    with Checker(settings, recipe=recipe) as checker, Service(checker) as service:

        def check(number: int) -> None:
            # Every other claim is one that other processes check too, at the same time.
            claim = f"Tea number {number} is warm." if number % 2 else f"Tea of {name} number {number} is warm."
            made = service.check(claim, k=3, fresh=number % 3 == 0)
            if made.kept:
                sys.stdout.write(f"{made.id} {digest(made)} {json.dumps(claim)}\n")
                sys.stdout.flush()

        service.checker.plan()  # what loads once is no part of the time until a kill
        print("ready", flush=True)
        with ThreadPoolExecutor(threads) as pool:
            for first in range(threads):
                pool.submit(lambda first=first: [check(number) for number in range(first, 1_000_000, threads)])


def kept(store: str, checks: int, threads: int, processes: int, seed: int) -> tuple[dict[str, list[str]], int]:
    """What the processes said was kept, as `digest claim` by id, and how many of them were killed."""
    draw, said, kills = random.Random(seed), dict[str, list[str]](), 0
    running: dict[subprocess.Popen[str], float] = {}
    with selectors.DefaultSelector() as ready:
        while len(said) < checks:
            while len(running) < processes:
                arguments = [sys.executable, __file__, "--work", store, "--name", f"n{kills}-{len(running)}"]
                made = subprocess.Popen([*arguments, "--threads", str(threads)], stdout=subprocess.PIPE, text=True)
                assert made.stdout is not None and made.stdout.readline() == "ready\n"
                ready.register(made.stdout, selectors.EVENT_READ, made)
                running[made] = time.monotonic() + draw.uniform(0.05, LONGEST_S)
            for key, _ in ready.select(0.05):
                line = key.fileobj.readline()  # type: ignore[union-attr]
                add(said, line)
            for one in [one for one, end in running.items() if time.monotonic() > end]:
                assert one.stdout is not None
                one.send_signal(signal.SIGKILL)
                ready.unregister(one.stdout)
                for line in one.stdout:  # what it had said until then
                    add(said, line)
                one.wait()
                del running[one]
                kills += 1
        for one in running:
            one.kill()
            add_all = one.communicate()[0]
            for line in add_all.splitlines(keepends=True):
                add(said, line)
    return said, kills + len(running)


def ids_of(service: Service) -> Iterator[str]:
    """The ids of all checks in a record, each as often as it is there."""
    page = Wanted(limit=1000)
    while some := service.checks(page):
        yield from (check.id for check in some)
        page = replace(page, before=some[-1].created, after=some[-1].id)


def add(said: dict[str, list[str]], line: str) -> None:
    """Note a whole line; a kill can cut the last one."""
    id_, _, rest = line.partition(" ")
    if rest.endswith("\n"):
        said.setdefault(id_, []).append(rest.strip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store")
    parser.add_argument("--work")
    parser.add_argument("--name", default="")
    given = parser.parse_args()
    if given.work is not None:
        work(given.work, given.name, given.threads)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or f"{folder}/store"
        with ccheck.open(store, recipe="bm25") as checker:
            checker.ingest(PAPERS, dense=False)
        started = time.monotonic()
        said, kills = kept(store, given.checks, given.threads, given.processes, given.seed)
        seconds = time.monotonic() - started
        with open_service(store) as service:
            assert service.record is not None
            found, listed = service.record.get(list(said)), list(ids_of(service))
        lost = [id_ for id_ in said if id_ not in found]
        # Which of several processes kept it last does not matter: the answer is the same.
        changed = [id_ for id_, check in found.items() if f"{digest(check)} {json.dumps(check.claim)}" not in said[id_]]
        twice = len(listed) - len(set(listed))
        whole = "ok"
        if isinstance(service.record, FileRecord):
            (whole,) = sqlite3.connect(service.record.path).execute("PRAGMA integrity_check").fetchone()
        print(
            f"{sum(map(len, said.values())):,} answers of {len(said):,} checks said to be kept in {seconds:.0f} s by "
            f"{given.processes} processes of {given.threads} threads, {kills} killed: {len(lost)} lost, "
            f"{len(changed)} changed, {twice} twice, {len(listed):,} in the record, which is {whole}"
        )
        sys.exit(bool(lost or changed or twice or whole != "ok"))


if __name__ == "__main__":
    main()
