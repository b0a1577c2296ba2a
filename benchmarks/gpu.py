"""Reranking and embedding on a GPU: seconds, memory and differences from float32, within ten minutes.

    python benchmarks/gpu.py                                   # one GPU; or: python benchmarks/run.py gpu
    python benchmarks/gpu.py --device cpu --size tiny --count 4 --texts 8 --rounds 1

tests/rerank/test_gpu_benchmark.py runs the second command, so that the script keeps running where no GPU is.

The reranker has bge-reranker-v2-gemma's architecture and true size (Gemma-2B, 256,000 tokens), random weights and a
tokenizer trained on the passages. The script writes all of it. Every side reads the same weights in bfloat16, and
`ccheck float32` the same ones in float32. FlagEmbedding runs with its default batch. vLLM gets ccheck's token ids,
since its `score` joins texts, and has the logit of `Yes` as its only class. It is left out where it is not installed.
`embed` is the embedding of many texts with all-MiniLM-L6-v2 (or `--embedder`), beside sentence-transformers.

Each side has a process of its own, one after the other in random order with the least needed ones last. It loads, warms
up, and repeats its work `--rounds` times. On a GPU, all have less than ten minutes together, or `--seconds`, and each
at most twice its share of what is left. A side that fails or runs out of time is named with the reason, and the rounds
that it completed count. Memory is torch's, with the weights. vLLM reserves its share of the GPU beforehand, so it has
no figure.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import click
import common
from common import Row

from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.demo import CORPUS
from ccheck.encode.dense import MINILM, load_embedder
from rerank import CLAIM, make, scorer

RERANKERS = ("ccheck", "FlagLLMReranker", "ccheck float32", "vLLM")
EMBEDDERS = ("embed", "embed peer", "embed bfloat16")
LAST = ("ccheck float32", "vLLM")
SECONDS = 570
BATCHES = (32, 256)
"""Of sentence-transformers: its default, and one that fills a GPU. The faster one counts."""
VLLM = {
    "architectures": ["GemmaForSequenceClassification"],
    "classifier_from_token": ["Yes"],
    "method": "no_post_processing",
}
COUNTS = (100, 1000)
PEERS = [(count, peer) for count in COUNTS for peer in ("FlagLLMReranker", "vLLM")]
ROWS = (
    *(
        Row(f", {count} passages", "ccheck", peer, f"{peer}, throughput", f"{count} s", True, seconds=True)
        for count, peer in PEERS
    ),
    Row(", embedding", "embed", "embed peer", "sentence-transformers, throughput", "texts s", True, seconds=True),
)


@click.command()
@click.option("--device", default="cuda", show_default=True)
@click.option("--size", type=click.Choice(["tiny", "small", "medium", "2b"]), default="2b", show_default=True)
@click.option("--count", "counts", type=click.IntRange(1), multiple=True, default=COUNTS, show_default=True)
@click.option("--texts", default=20_000, show_default=True, help="How many texts are embedded.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--embedder", "named", default=MINILM, show_default=True)
@click.option("--seconds", type=float, help=f"For all sides together.  [default: {SECONDS} on a GPU, else no limit]")
def main(
    device: str, size: str, counts: tuple[int, ...], texts: int, rounds: int, named: str, seconds: float | None
) -> None:
    started = time.monotonic()
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise click.UsageError("torch finds no GPU. Use --device cpu --size tiny to try this script without one.")
    gpu = device.startswith("cuda")
    until = started + (seconds or SECONDS) if gpu or seconds else None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ccheck.rerank.load", "FlagEmbedding", "sentence_transformers"])
    forkserver.ensure_running()  # imports while the model is made
    with tempfile.TemporaryDirectory() as scratch:
        # Made on the GPU, where the weights of the true size are drawn in seconds.
        with torch.device(device):
            torch.set_default_dtype(torch.bfloat16)
            model = make("decoder", size, Path(scratch) / "model", passages(300))
            torch.set_default_dtype(torch.float32)
        if gpu:
            torch.cuda.empty_cache()
        print(f"the model took {time.monotonic() - started:.0f} s")
        sides = [side for side in (*RERANKERS, *EMBEDDERS) if side not in LAST]
        order = [*random.sample(sides, len(sides)), *LAST]
        found: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        for place, side in enumerate(order):
            if side == "vLLM" and not find_spec("vllm"):
                failed[side] = "not installed"
                continue
            began = time.monotonic()
            # A side that hangs must leave time for the others.
            end = None if until is None else min(until, began + 2 * (until - began) / (len(order) - place))
            answer, why = apart(context, (side, model, device, sorted(counts), texts, rounds, named), end)
            if answer is not None:
                found[side] = answer
            if why:
                failed[side] = why
            print(f"{side}: {time.monotonic() - began:.0f} s with loading{why and ', ' + why}")
    for side, one in found.items():
        exact = found.get("embed" if side in EMBEDDERS else "ccheck float32")
        if exact is not None and one is not exact:
            pairs = list(zip(one["values"], exact["values"], strict=True))
            difference = max(abs(a - b) for a, b in pairs)
            one["taken"]["difference"] = [difference]
            print(f"{side}: largest difference from float32 {difference:.1e}, of values over {spread(exact['values'])}")
    missing = [f"{side}: {why}" for side, why in failed.items()]
    name = torch.cuda.get_device_name(device) if gpu else "no GPU"
    common.told(alike({side: one["taken"] for side, one in found.items()}), ROWS, torch, name, *missing)


def alike(taken: common.Taken) -> common.Taken:
    """As many rounds of each measure for every side: as many as the one that ran out of time."""
    rounds: dict[str, int] = {}
    for name, values in itertools.chain.from_iterable(measures.items() for measures in taken.values()):
        rounds[name] = min(len(values), rounds.get(name, len(values)))
    return {side: {name: some[: rounds[name]] for name, some in of.items()} for side, of in taken.items()}


def apart(context: BaseContext, given: tuple[Any, ...], until: float | None) -> tuple[dict[str, Any] | None, str]:
    """The last of what `work` sent from a process of its own, and why there is no more if it did not end."""
    here, there = context.Pipe()
    # Not a daemon: vLLM starts processes of its own.
    process = context.Process(target=work, args=(*given, there))  # type: ignore[attr-defined]
    process.start()
    there.close()
    answer: dict[str, Any] | None = None
    try:
        while here.poll(None if until is None else max(0, until - time.monotonic())):
            answer = here.recv()
        return answer, "its time ran out"
    except EOFError:
        process.join(20)
        return answer, "failed: its error is above" if process.exitcode else ""
    finally:
        process.kill()


def spread(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


def passages(count: int) -> list[str]:
    """Different abstracts of the sample corpus: each with its sentences in another order, after a number."""
    records = list(common.rows(CORPUS))
    chance = random.Random(1)
    made = []
    for number, record in enumerate(itertools.islice(itertools.cycle(records), count)):
        sentences = record["text"].split(". ")
        made.append(f"{record['title']} ({number}): {'. '.join(chance.sample(sentences, len(sentences)))}")
    return made


def work(
    side: str, model: Path, device: str, counts: list[int], texts: int, rounds: int, named: str, pipe: Any
) -> None:
    """Send after each round what a side took, and its values for the smallest count."""
    given: dict[str, list[str]]
    if side in EMBEDDERS:
        run, given = embedder(side, device, named), {"texts": passages(texts)}
        values = [float(one) for one in run(given["texts"][:64]).ravel()]
    else:
        run, given = reranker(side, model, device), {str(count): passages(count) for count in counts}
        # In float32, 1,000 passages would take the time of all the others.
        given = dict(list(given.items())[:1]) if side == "ccheck float32" else given
        values = run(next(iter(given.values())))
    taken: dict[str, list[float]] = {}
    for name, some in given.items():
        run(some[: max(1, len(some) // 4)])
        for _ in range(rounds):
            seconds, peak = timed(lambda some=some: run(some), device)
            taken.setdefault(f"{name} s", []).append(seconds)
            if side != "vLLM" and peak:
                taken.setdefault(f"{name} MiB", []).append(peak)
            pipe.send({"taken": taken, "values": values})


def timed(run: Callable[[], Any], device: str) -> tuple[float, float]:
    """Seconds, and on a GPU the most memory that torch had, in MiB."""
    import torch

    gpu = device.startswith("cuda")
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    run()
    if gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - started, torch.cuda.max_memory_allocated() / 2**20 if gpu else 0.0


def reranker(side: str, model: Path, device: str) -> Callable[[list[str]], list[float]]:
    if side == "vLLM":
        return vllm_reranker(model)
    name, _, exact = side.partition(" ")
    score, _ = scorer(name, model, device, "float32" if exact else "bfloat16")
    return lambda some: list(score(some, 0))


def vllm_reranker(model: Path) -> Callable[[list[str]], list[float]]:
    """Untested: nobody has run it."""
    from vllm import LLM, PoolingParams

    from ccheck.core.stages import ModelStage
    from ccheck.rerank.load import load_scorer

    ids = load_scorer(str(model), Runtime(Settings(device="cpu")), ModelStage()).encode
    engine = LLM(str(model), runner="pooling", hf_overrides=VLLM, dtype="bfloat16", gpu_memory_utilization=0.6)
    raw = PoolingParams(use_activation=False)

    def run(some: list[str]) -> list[float]:
        prompts = [{"prompt_token_ids": list(one.ids)} for one in ids(CLAIM, some)]
        return [one.outputs.probs[0] for one in engine.classify(prompts, pooling_params=raw, use_tqdm=False)]

    return run


def embedder(side: str, device: str, named: str) -> Callable[[list[str]], Any]:
    half = "bfloat16" if side == "embed bfloat16" else "float32"
    ours = load_embedder(named, Runtime(Settings(device=device, embedding_precision=half)))
    if side != "embed peer":
        return ours.encode_documents
    theirs = ours._model
    fastest: list[int] = []

    def run(some: list[str]) -> Any:
        if not fastest:
            fastest.append(min(BATCHES, key=lambda size: timed(lambda: call(some, size), device)[0]))
        return call(some, fastest[0])

    def call(some: list[str], size: int) -> Any:
        return theirs.encode(some, batch_size=size, normalize_embeddings=True, show_progress_bar=False)

    return run


if __name__ == "__main__":
    main()
