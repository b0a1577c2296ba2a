"""Two workers of a reranking server against one: throughput; and workers that are killed again and again.

    taskset -c 0,1 python benchmarks/devices.py [--rounds 7] [--kills 120]

Two cores, random weights of ms-marco-MiniLM-L6-v2's size: `--devices cpu,cpu`, a thread for each worker, against
`--device cpu` with one thread, kept on the first of the cores. Rounds of the two alternate. On a machine that others
use, the wall clock says little; the CPU seconds of a request say what two free cores would do.
Then a worker is killed (SIGKILL) every ten seconds, or as soon after that as one is there, while four callers ask.
The goals: at least 1.8 times the throughput, no request lost, no score wrong.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click
import httpx
import psutil
from common import machine, spread
from serve import answered, made_up_requests, random_model

if TYPE_CHECKING:
    from rerank_servers import Sidecar

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / folder) for folder in ("", "rerank")]
CALLERS, REQUESTS, PASSAGES = 4, 24, 10
SECONDS_BETWEEN = 10


@click.command()
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="Rounds of both sides.")
@click.option("--kills", default=12, show_default=True, type=click.IntRange(0), help="Number of workers to kill.")
def main(rounds: int, kills: int) -> None:
    """Print the ratio of throughputs, that by CPU time, and what was lost or wrong."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from rerank_servers import Sidecar
    from tiny_rerankers import load_scorer

    with tempfile.TemporaryDirectory() as scratch:
        folder = random_model(Path(scratch, "model"))
        asked = made_up_requests(REQUESTS, PASSAGES)
        scorer = load_scorer(str(folder), device="cpu")
        expected = [scorer.score(scorer.encode(query, texts)) for query, texts in asked]
        options = ("--model", folder, "--canary", "repeat", "--timeout", 600)
        # Here torch has two threads, one for each of two workers.
        two = Sidecar(Path(scratch, "two"), *options, "--devices", "cpu,cpu", OMP_NUM_THREADS="2")
        one = Sidecar(Path(scratch, "one"), *options, "--device", "cpu")
        try:
            print(f"{machine(torch, 'cpu')}; {REQUESTS} requests of {PASSAGES} passages, {CALLERS} callers")
            first = psutil.Process().cpu_affinity()[:1]
            with (
                httpx.Client(base_url=one.url, timeout=600) as at_one,
                httpx.Client(base_url=two.url, timeout=600) as at_two,
            ):
                for thread in psutil.Process(one.process.pid).threads():
                    os.sched_setaffinity(thread.id, first)
                ratios, by_cpu = [], []
                for _ in range(rounds):
                    alone, alone_cpu = timed(at_one, one.process.pid, asked)
                    both, both_cpu = timed(at_two, two.process.pid, asked)
                    ratios.append(alone / both)
                    by_cpu.append(2 * alone_cpu / both_cpu)
                print(f"throughput of two workers / one: {spread(ratios)}, to reach 1.8")
                print(f"the same by CPU time, if two cores were free: {spread(by_cpu)}")
                one.stop()
                if kills:
                    kill(at_two, two, asked, expected, kills)
        finally:
            for sidecar in (one, two):
                sidecar.stop(signal.SIGKILL)


def timed(client: httpx.Client, server: int, asked: Sequence[tuple[str, list[str]]]) -> tuple[float, float]:
    """Seconds, and CPU seconds of the server with its workers."""
    before, started = cpu(server), time.perf_counter()
    answered(client, asked, CALLERS)
    return time.perf_counter() - started, cpu(server) - before


def cpu(server: int) -> float:
    process = psutil.Process(server)
    return sum(sum(one.cpu_times()[:2]) for one in (process, *process.children()))


def kill(
    client: httpx.Client,
    server: Sidecar,
    asked: Sequence[tuple[str, list[str]]],
    expected: list[list[float]],
    kills: int,
) -> None:
    done, right, lost, wrong = threading.Event(), 0, 0, 0

    def call(place: int) -> list[tuple[int, list[float] | None]]:
        found = []
        while not done.is_set():
            place = (place + 1) % len(asked)
            found.append((place, answered(client, [asked[place]], 1)[0][1]))
        return found

    with ThreadPoolExecutor(CALLERS) as callers:
        calls = [callers.submit(call, place) for place in range(CALLERS)]
        started = time.perf_counter()
        try:
            for _ in range(kills):
                time.sleep(SECONDS_BETWEEN)
                while server.said.count("was ended") - server.said.count("was started again") == 2:
                    time.sleep(0.1)
                # The one that is up longest serves.
                min(psutil.Process(server.process.pid).children(), key=psutil.Process.create_time).kill()
        finally:
            done.set()
        answers = [one for made in calls for one in made.result()]
        seconds = time.perf_counter() - started
    for number, scores in answers:
        if scores is None:
            lost += 1
        elif max(abs(a - b) for a, b in zip(scores, expected[number], strict=True)) > 1e-4:
            wrong += 1
        else:
            right += 1
    print(f"{kills} workers killed, {seconds:.0f} s: {right} requests right, {lost} lost, {wrong} wrong")


if __name__ == "__main__":
    main()
