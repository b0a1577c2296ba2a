"""Checks over HTTP beside the same checks in Python: how long do callers wait, does anything fail, does memory grow?

    python benchmarks/web_load.py [--callers 50] [--seconds 60] [--rounds 3] [--recorded] [--workers N]

A server (`ccheck serve web`) and a process with the same service take turns, as many rounds each: so many callers check
claims like those of the demo, each one after the other. All of them are new, or with `--recorded` none is: then a call
takes milliseconds. Both have the default recipe and
one thread for a matrix product. Prints p50 and p99 of the seconds for each round, and the medians of the ratios. The
exit code is 1 if a call failed.

With `--workers N` a second server, with so many workers, takes the place of Python: both must answer alike, and the
checks of each in a minute are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

import ccheck
from ccheck.demo import CLAIMS, CORPUS
from ccheck.service import open_service

TEXTS = [json.loads(line)["text"] for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
LIMITS = ("--requests", "1000000", "--checks", "1000000", "--at-once", "1000")


def waited(check: Callable[[str, int], None], callers: int, seconds: float, *, new: bool) -> list[float]:
    """The seconds that each call took, by so many callers for so long. `new`: of claims that were never checked."""
    ends, found = time.monotonic() + seconds, list[float]()

    def call(caller: int) -> None:
        number = caller
        while time.monotonic() < ends:
            started = time.perf_counter()
            claim = TEXTS[number % len(TEXTS)]
            check(f"{claim.rstrip('.')}, says report {caller} of series {number}." if new else claim, caller)
            found.append(time.perf_counter() - started)
            number += 1

    with ThreadPoolExecutor(callers) as pool:
        for done in [pool.submit(call, caller) for caller in range(callers)]:
            done.result()
    return sorted(found)


def in_python(store: str, callers: int, *, new: bool) -> None:
    """Measure a round of so many seconds for each line of standard input, and print its calls as JSON."""
    with open_service(store) as service:

        def check(claim: str, caller: int) -> None:
            assert service.check(claim, fresh=new).status == "done"

        for claim in TEXTS:
            check(claim, 0)
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(waited(check, callers, float(line), new=new)), flush=True)


@contextlib.contextmanager
def serving(store: str, log: Path, *words: str) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a server that runs as a program, and its process."""
    command = [sys.executable, "-m", "ccheck", "serve", "web", "--store", store, "--port", "0", *LIMITS, *words]
    with log.open("wb") as said, subprocess.Popen(command, stderr=said) as process:
        try:
            while (found := re.search(r"http://\S+\d", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield found[0], psutil.Process(process.pid)
        finally:
            process.terminate()


def same(one: Any, other: Any) -> bool:
    """Whether two answers are alike, but for their times and the last digits of their numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one.keys() - {"timings_ms"})
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6) if isinstance(one, float) else bool(one == other)


def asked(client: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    sent = None if body is None else json.dumps(body)
    client.request(method, path, sent, {"Content-Type": "application/json"})
    return json.loads(client.getresponse().read())


def checked(client: http.client.HTTPConnection, claim: str, *, fresh: bool) -> Any:
    """The check of a claim."""
    answer = asked(client, "POST", "/v1/checks", {"claim": claim, "fresh": fresh, "wait": 60})
    while answer["status"] == "running":
        time.sleep(0.2)
        answer = asked(client, "GET", f"/v1/checks/{answer['id']}")
    return answer


def compare(urls: list[str], callers: int, seconds: float, rounds: int, *, new: bool) -> None:
    """Servers take turns. Prints the checks of each in a minute."""
    clients = [[http.client.HTTPConnection(urlsplit(url).netloc, timeout=120) for _ in range(callers)] for url in urls]
    for claim in TEXTS:
        assert same(*(checked(own[0], claim, fresh=True)["result"] for own in clients)), claim
    rates: list[list[float]] = [[], []]
    for number in range(rounds):
        for own, found in zip(clients, rates, strict=True):
            for client in own:
                client.close()

            def check(claim: str, caller: int, own: list[http.client.HTTPConnection] = own) -> None:
                assert checked(own[caller], claim, fresh=new)["status"] == "done"

            began = time.perf_counter()
            found.append(len(waited(check, callers, seconds, new=new)) * 60 / (time.perf_counter() - began))
        print(
            f"round {number + 1}: {rates[0][-1]:.0f} checks in a minute by one process, {rates[1][-1]:.0f} by workers"
        )
    ratios = [more / one for one, more in zip(*rates, strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), with the same answers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--callers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--store")
    given = parser.parse_args()
    if given.store is not None:
        in_python(given.store, given.callers, new=not given.recorded)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    seconds = given.seconds / given.rounds
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        with ccheck.open(store := f"{folder}/store") as checker:
            checker.ingest(str(CORPUS))
        url, process = stack.enter_context(serving(store, Path(folder) / "log"))
        if given.workers is not None:
            words = ("--workers", str(given.workers))
            second, _ = stack.enter_context(serving(store, Path(folder) / "more", *words))
            compare([url, second], given.callers, seconds / 2, given.rounds, new=not given.recorded)
            return
        command = [sys.executable, __file__, "--store", store, "--callers", str(given.callers)]
        command += ["--recorded"] * given.recorded
        python = stack.enter_context(subprocess.Popen(command, stdin=-1, stdout=-1, text=True))
        assert python.stdin is not None and python.stdout is not None and python.stdout.readline() == "ready\n"
        # Of the standard library, so that the callers take little time from the server.
        clients = [http.client.HTTPConnection(urlsplit(url).netloc, timeout=120) for _ in range(given.callers)]
        failed = 0

        def check(claim: str, caller: int) -> None:
            nonlocal failed
            failed += checked(clients[caller], claim, fresh=not given.recorded)["status"] != "done"

        for claim in TEXTS:
            check(claim, 0)
        ratios: dict[str, list[float]] = {"p50": [], "p99": []}
        held = []
        for number in range(given.rounds):
            for client in clients:  # which the server has closed meanwhile; no call waits for it
                client.close()
                asked(client, "GET", "/health")
            over_http = waited(check, given.callers, seconds, new=not given.recorded)
            held.append(process.memory_info().rss / 2**20)
            print(seconds, file=python.stdin, flush=True)
            alone = json.loads(python.stdout.readline())
            print(f"round {number + 1}: {len(over_http)} calls over HTTP, {len(alone)} in Python, {held[-1]:.0f} MiB")
            for name, at in (("p50", 50), ("p99", 99)):
                ours, theirs = (statistics.quantiles(one, n=100)[at - 1] for one in (over_http, alone))
                ratios[name].append(ours / theirs)
                print(f"  {name} {ours:.3f} s over HTTP, {theirs:.3f} s in Python, ratio {ours / theirs:.2f}")
        python.stdin.close()
        for name, found in ratios.items():
            print(f"{name}: ratio {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})")
        print(
            f"{failed} calls failed; the server held {held[0]:.0f} MiB after the first round, {held[-1]:.0f} at the end"
        )
        sys.exit(failed > 0)


if __name__ == "__main__":
    main()
