"""What serving costs: the sidecar with many callers against one loop around the bare scorer.

    python benchmarks/serve.py

Both score the same requests with the same weights and threads. The model has random weights and the size of
ms-marco-MiniLM-L6-v2, unless you choose one with `--model`. The sidecar has its own process, and rounds of the two
alternate. The goal: throughput with 32 callers is at least 0.9 of the bare loop's, with no errors and the same scores.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import httpx
from common import machine, spread

from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import ModelStage

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / folder) for folder in ("", "rerank")]
GOAL = 0.9
Request = tuple[str, list[str]]


@click.command()
@click.option("--model", help="Reranker, a name or a folder.  [default: random weights]")
@click.option("--callers", default=32, show_default=True, type=click.IntRange(1), help="Number of concurrent callers.")
@click.option(
    "--requests", default=64, show_default=True, type=click.IntRange(1), help="Requests per round, from all callers."
)
@click.option("--passages", default=10, show_default=True, type=click.IntRange(1), help="Passages per request.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Number of rounds.")
@click.option(
    "--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of torch, on both sides."
)
@click.option("--device", default="cpu", show_default=True, help="Device for the model, on both sides.")
def main(model: str | None, callers: int, requests: int, passages: int, rounds: int, threads: int, device: str) -> None:
    """Print the ratio of throughputs, the ratio of CPU times, latencies and errors."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import psutil
    import torch
    from rerank_servers import Sidecar

    from ccheck.rerank.load import load_scorer

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        name = model or str(random_model(Path(folder) / "model"))
        scorer = load_scorer(name, Runtime(Settings(device=device)), ModelStage())
        asked = made_up_requests(requests, passages)
        canary = "order" if model else "repeat"
        # Even on a slow machine: this does not measure the deadline of a request.
        options = ("--model", name, "--canary", canary, "--device", device, "--timeout", 3600)
        sidecar = Sidecar(Path(folder) / "log", *options, OMP_NUM_THREADS=str(threads))
        try:
            process = psutil.Process(sidecar.process.pid)
            with httpx.Client(base_url=sidecar.url, timeout=3600) as client:
                answered(client, asked[:callers], callers)  # now both are warm
                expected = [scorer.score(scorer.encode(query, texts)) for query, texts in asked]
                ratios, cpu_ratios, latencies, wrong, errors = [], [], list[float](), 0, 0
                for _ in range(rounds):
                    bare, bare_cpu = time.perf_counter(), time.process_time()
                    for query, texts in asked:
                        scorer.score(scorer.encode(query, texts))
                    bare, bare_cpu = time.perf_counter() - bare, time.process_time() - bare_cpu
                    before, started = _cpu(process), time.perf_counter()
                    answers = answered(client, asked, callers)
                    served = time.perf_counter() - started
                    cpu_ratios.append(bare_cpu / (_cpu(process) - before))
                    ratios.append(bare / served)
                    latencies += [seconds for seconds, _ in answers]
                    errors += sum(scores is None for _, scores in answers)
                    wrong += sum(
                        scores is not None and max(abs(a - b) for a, b in zip(scores, right, strict=True)) > 1e-4
                        for (_, scores), right in zip(answers, expected, strict=True)
                    )
        finally:
            sidecar.stop(signal.SIGKILL)
    tokens = statistics.mean(len(one.ids) for query, texts in asked for one in scorer.encode(query, texts))
    print(
        f"{machine(torch, device)}; "
        f"{name if model else 'random weights'}, {requests} requests of {passages} passages of {tokens:.0f} tokens"
    )
    print(f"throughput of {callers} callers / bare loop: {spread(ratios)}, to reach {GOAL}")
    print(f"the same by CPU time (bare loop / server process): {spread(cpu_ratios)}")
    quantiles = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else latencies * 99
    print(f"latency: p50 {quantiles[49]:.2f} s, p99 {quantiles[98]:.2f} s; errors {errors}, wrong scores {wrong}")


def answered(client: httpx.Client, asked: Sequence[Request], callers: int) -> list[tuple[float, list[float] | None]]:
    """For each request, the seconds until its answer and its scores (None if it was refused)."""

    def call(request: Request) -> tuple[float, list[float] | None]:
        started = time.perf_counter()
        query, texts = request
        answer = client.post("/rerank", json={"query": query, "texts": texts, "raw_scores": True})
        seconds = time.perf_counter() - started
        if answer.status_code != 200:
            return seconds, None
        scores = {item["index"]: item["score"] for item in answer.json()}
        return seconds, [scores[i] for i in range(len(texts))]

    with ThreadPoolExecutor(callers) as pool:
        return list(pool.map(call, asked))


def _cpu(process: object) -> float:
    times = process.cpu_times()  # type: ignore[attr-defined]
    return float(times.user + times.system)


def random_model(folder: Path) -> Path:
    from tiny_rerankers import make_encoder

    return make_encoder(
        folder,
        architecture="bert",
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=12,
        initializer_range=0.02,
    )


def made_up_requests(count: int, passages: int) -> list[Request]:
    """Claims of some words with abstracts of 40 to 120 words."""
    from tiny_rerankers import TEXTS

    chance = random.Random(0)
    words = " ".join(TEXTS).split()
    return [
        (
            " ".join(chance.choices(words, k=chance.randint(6, 20))),
            [" ".join(chance.choices(words, k=chance.randint(40, 120))) for _ in range(passages)],
        )
        for _ in range(count)
    ]


if __name__ == "__main__":
    main()
