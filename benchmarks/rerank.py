"""Local rerankers against FlagEmbedding and sentence-transformers: CPU time, wall time, peak extra memory, differences.

    python benchmarks/rerank.py [FOLDER] [--quick] [--json] [--size small|medium|2b] [--device cpu|cuda]

FOLDER has SciFact's corpus.jsonl.gz (default: scifact in $CCHECK_SHARED_DATA); without it the abstracts are made up.
The models have random weights and the true architectures: Gemma with 8 layers and a vocabulary that gives the head the
share of the work that it has in Gemma-2B (a fifth), XLM-RoBERTa with 6 layers; --size 2b is Gemma-2B's and
bge-reranker-v2-m3's own size. max_length is 512.

Each side has a process of its own, and they take turns. Ratios are the reference's time over ours, and our peak extra
memory over the reference's; medians over the turns, and in brackets the smallest and the largest. FlagEmbedding runs
its first batch twice, to find out whether it fits: "without the probe" is the ratio when that is taken off.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

COUNTS = (20, 100, 600)
TURNS = {20: 3, 100: 2, 600: 1}
DECODERS = {
    "small": {"hidden_size": 256, "intermediate_size": 2048, "head_dim": 32, "vocab_size": 14_300},
    "medium": {"hidden_size": 512, "intermediate_size": 4096, "head_dim": 64, "vocab_size": 28_600},
    "2b": {"hidden_size": 2048, "intermediate_size": 16_384, "head_dim": 256, "vocab_size": 256_000},
}
ENCODERS = {
    "small": {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 6},
    "medium": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 6},
    "2b": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24},
}
SIDES = {"decoder": ("FlagLLMReranker", "ccheck"), "encoder": ("FlagReranker", "CrossEncoder", "ccheck")}


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--quick", is_flag=True, help="20 passages only")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on standard output")
@click.option("--size", type=click.Choice(list(DECODERS)), default="small", show_default=True)
@click.option("--kind", "kinds", type=click.Choice(list(SIDES)), multiple=True, default=list(SIDES))
@click.option("--count", "counts", type=click.Choice([str(count) for count in COUNTS]), multiple=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="cuda: both sides in bfloat16")
def main(
    folder: Path | None,
    quick: bool,
    as_json: bool,
    size: str,
    kinds: tuple[str, ...],
    counts: tuple[str, ...],
    threads: int,
    device: str,
) -> None:
    query, passages = texts(folder)
    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for kind in kinds:
            model = make(kind, size, Path(scratch) / kind, passages)
            chosen = COUNTS[:1] if quick else tuple(map(int, counts)) or COUNTS
            answer[kind] = compare(kind, model, query, passages, chosen, threads, device)
            if kind == "decoder" and device == "cpu":
                answer["decoder_bfloat16"] = bfloat16(model, query, passages[: min(100, max(chosen))], threads)
    if as_json:
        click.echo(json.dumps(answer))


def compare(
    kind: str, model: Path, query: str, passages: list[str], counts: tuple[int, ...], threads: int, device: str
) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    with sides(SIDES[kind], model, threads, device) as ask:
        ask_all = {side: ask[side](query, passages[:4]) for side in SIDES[kind]}  # warms up
        tokens = ask_all["ccheck"]["tokens"] / 4
        say(f"{kind}: {model_size(model)}, about {tokens:.0f} tokens in a pair, {threads} threads, {device}")
        for count in counts:
            turns = [{side: ask[side](query, passages[:count]) for side in SIDES[kind]} for _ in range(TURNS[count])]
            answer[str(count)] = row = {}
            for reference in SIDES[kind][:-1]:
                found = ratios(turns, reference)
                row |= found if reference == SIDES[kind][0] else {f"{reference}_{k}": v for k, v in found.items()}
                say(f"  {count} passages over {reference}: {told(found)}")
    return answer


def ratios(turns: list[dict[str, Any]], reference: str) -> dict[str, Any]:
    def over(measure: Callable[[dict[str, Any], dict[str, Any]], float]) -> tuple[float, list[float]]:
        values = [measure(turn[reference], turn["ccheck"]) for turn in turns]
        return statistics.median(values), [min(values), max(values)]

    found: dict[str, Any] = {}
    for name, measure in {
        "cpu_ratio": lambda theirs, ours: theirs["cpu"] / ours["cpu"],
        "cpu_ratio_without_probe": lambda theirs, ours: (theirs["cpu"] - theirs["probe"]) / ours["cpu"],
        "wall_ratio": lambda theirs, ours: theirs["wall"] / ours["wall"],
        "memory_ratio": lambda theirs, ours: ours["memory"] / theirs["memory"],
        "reference_mib": lambda theirs, ours: theirs["memory"],
        "mib": lambda theirs, ours: ours["memory"],
        "cpu_seconds": lambda theirs, ours: ours["cpu"],
        "max_difference": lambda theirs, ours: max(
            abs(a - b) for a, b in zip(theirs["scores"], ours["scores"], strict=True)
        ),
    }.items():
        found[name], found[f"{name}_spread"] = over(measure)
    return found


def told(found: dict[str, Any]) -> str:
    def spread(name: str, digits: int) -> str:
        low, high = found[f"{name}_spread"]
        return f"{found[name]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

    return (
        f"CPU time {spread('cpu_ratio', 2)}, without the probe {spread('cpu_ratio_without_probe', 2)}, "
        f"wall {spread('wall_ratio', 2)}, memory {spread('memory_ratio', 3)} "
        f"({found['mib']:.0f} of {found['reference_mib']:.0f} MiB), largest difference {found['max_difference']:.1e}"
    )


def bfloat16(model: Path, query: str, passages: list[str], threads: int) -> dict[str, Any]:
    """How bfloat16 on the CPU compares with float32: the order and the time."""
    turns = []
    with sides(("ccheck", "bfloat16"), model, threads, "cpu") as ask:
        for turn in range(3):
            found = {side: ask[side](query, passages) for side in ("ccheck", "bfloat16")}
            turns += [found] if turn else []
    tau = kendall(turns[0]["ccheck"]["scores"], turns[0]["bfloat16"]["scores"])
    ratio = statistics.median(turn["ccheck"]["cpu"] / turn["bfloat16"]["cpu"] for turn in turns)
    say(f"decoder in bfloat16, {len(passages)} passages: Kendall's tau {tau:.4f} to float32, CPU time 1/{ratio:.2f}")
    return {"passages": len(passages), "kendall_tau": tau, "cpu_ratio_over_float32": ratio}


def kendall(a: list[float], b: list[float]) -> float:
    """Kendall's tau-a."""
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    return sum((1 if (a[i] - a[j]) * (b[i] - b[j]) > 0 else -1) for i, j in pairs) / len(pairs)


@contextmanager
def sides(names: tuple[str, ...], model: Path, threads: int, device: str) -> Iterator[dict[str, Callable[..., Any]]]:
    """A process for each side; the functions ask it to score, and give what it measured."""
    context = multiprocessing.get_context("spawn")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    started = []
    ask: dict[str, Callable[..., Any]] = {}
    for name in names:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(name, model, threads, device, there), daemon=True)
        process.start()
        there.close()
        started.append((process, here))

        def call(query: str, passages: list[str], pipe: Any = here) -> Any:
            pipe.send((query, passages))
            return pipe.recv()

        ask[name] = call
    try:
        yield ask
    finally:
        for process, pipe in started:
            pipe.close()
            process.join(10)
            process.terminate()


def serve(name: str, model: Path, threads: int, device: str, pipe: Any) -> None:
    """Score what comes through the pipe until it is closed."""
    import torch

    torch.set_num_threads(threads)
    score, probe = scorer(name, model, device)
    while True:
        try:
            query, passages = pipe.recv()
        except EOFError:
            return
        probe.clear()
        with peak_memory(device) as peak:
            cpu, wall = time.process_time(), time.perf_counter()
            values, tokens = score(query, passages)
            spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        pipe.send({**spent, "scores": values, "tokens": tokens, "memory": peak[0], "probe": probe[0] if probe else 0.0})


def scorer(
    name: str, model: Path, device: str
) -> tuple[Callable[[str, list[str]], tuple[list[float], int]], list[float]]:
    """How a side scores, and a list that gets the CPU seconds of FlagEmbedding's first forward pass."""
    probe: list[float] = []
    half = device != "cpu"
    if name in ("ccheck", "bfloat16"):
        from ccheck.rerank.load import load_scorer

        ours = load_scorer(str(model), device=device, dtype="bfloat16" if half or name == "bfloat16" else "float32")

        def score(query: str, passages: list[str]) -> tuple[list[float], int]:
            encoded = ours.encode(query, passages)
            return ours.score(encoded), sum(one.tokens for one in encoded)

        return score, probe
    if name == "CrossEncoder":
        import torch
        from sentence_transformers import CrossEncoder

        cross = CrossEncoder(str(model), max_length=512, device=device)
        if half:
            cross.bfloat16()

        def predict(query: str, passages: list[str]) -> tuple[list[float], int]:
            given = [(query, passage) for passage in passages]
            values = cross.predict(given, activation_fn=torch.nn.Identity(), show_progress_bar=False)
            return [float(value) for value in values], 0

        return predict, probe
    import FlagEmbedding

    options = {"use_bf16": True} if half and name == "FlagLLMReranker" else {"use_fp16": half}
    theirs = getattr(FlagEmbedding, name)(str(model), devices=[device], **options)
    forward = theirs.model.forward

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return forward(*args, **kwargs)
        finally:
            probe.append(time.process_time() - start)

    theirs.model.forward = timed
    return lambda query, passages: (theirs.compute_score([[query, p] for p in passages], max_length=512), 0), probe


@contextmanager
def peak_memory(device: str) -> Iterator[list[float]]:
    """The most memory beyond what there was before, in MiB: resident, sampled every 2 ms; on a GPU, what torch took."""
    import psutil

    peak = [0.0]
    if device != "cpu":
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield peak
        torch.cuda.synchronize()
        peak[0] = (torch.cuda.max_memory_allocated() - before) / 2**20
        return
    process, done = psutil.Process(), threading.Event()
    start = process.memory_info().rss

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], (process.memory_info().rss - start) / 2**20)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
        peak[0] = max(peak[0], 1.0)


def make(kind: str, size: str, folder: Path, passages: list[str]) -> Path:
    from tiny_rerankers import make_decoder, make_encoder

    some = passages[:300]
    if kind == "decoder":
        sizes = DECODERS[size]
        layers = 18 if size == "2b" else 8
        return make_decoder(
            folder,
            texts=some,
            learn=13_000,
            **{**sizes, "num_hidden_layers": layers, "num_attention_heads": 8, "initializer_range": 0.02},
        )
    return make_encoder(folder, texts=some, learn=8000, initializer_range=0.02, **ENCODERS[size])


def model_size(folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text())
    return f"{config['architectures'][0]}, {config['num_hidden_layers']} layers of {config['hidden_size']}"


def texts(folder: Path | None) -> tuple[str, list[str]]:
    """A claim and 600 abstracts."""
    shared = os.environ.get("CCHECK_SHARED_DATA")
    folder = folder or (Path(shared) / "scifact" if shared else None)
    query = "0-dimensional biomaterials show inductive properties in the repair of damaged cartilage."
    if folder is None:
        say("no SciFact: abstracts are made up")
        chance = random.Random(0)
        words = ["".join(chance.choices("aeioubcdlmnprst", k=chance.randint(2, 9))) for _ in range(3000)]
        return query, [
            " ".join(chance.choices(words, k=chance.randint(100, 250))).capitalize() + "." for _ in range(max(COUNTS))
        ]
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(next(lines)) for _ in range(max(COUNTS))]
    return query, [f"{record['title']} {record['text']}" for record in records]


def say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
