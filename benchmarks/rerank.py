"""Local rerankers against FlagEmbedding and sentence-transformers: CPU time, memory and differences of scores.

    python benchmarks/rerank.py [FOLDER] [--size small|medium|2b ...] [--count 20] [--device cpu|cuda]

FOLDER contains SciFact's corpus.jsonl.gz (default: scifact in $CCHECK_SHARED_DATA). The models have random weights and
their true architectures: XLM-RoBERTa with 6 layers, and Gemma with 8 layers and a vocabulary that gives the head the
same share of the work as in Gemma-2B (a fifth). --size 2b is the full size of Gemma-2B and bge-reranker-v2-m3.

Each side has its own process and one thread. A run of ccheck follows each run of a reference, and a ratio compares
their CPU times. A reference runs with its default batch (128; CrossEncoder 32) and with smaller ones; the fastest is
its best batch. FlagEmbedding runs its first batch twice to find out whether it fits. With its default batch, that
doubles its time for up to 128 passages. Each line of the output is JSON: which library multiplies in each side, the
ratios of CPU time and of peak extra memory (reference over ccheck in float32) by batch, the largest difference of a
score, and how many of the best ten are the same. FlagReranker and CrossEncoder must differ by less than 1e-4.

CrossEncoder runs also in ONNX Runtime and OpenVINO (rerank_engines.py), where these are installed.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import click
import common
from processes import processes, received
from rerank_engines import ENGINES, missing, torch_multiplies_with, use_engine

from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import ModelStage

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

LONGEST = 600
CLAIM = "0-dimensional biomaterials show inductive properties in the repair of damaged cartilage."
SIZES: dict[str, dict[str, dict[str, int]]] = {
    "decoder": {
        "tiny": {
            "hidden_size": 64,
            "intermediate_size": 128,
            "head_dim": 16,
            "vocab_size": 14_300,
            "num_hidden_layers": 2,
        },
        "small": {"hidden_size": 256, "intermediate_size": 2048, "head_dim": 32, "vocab_size": 14_300},
        "medium": {"hidden_size": 512, "intermediate_size": 4096, "head_dim": 64, "vocab_size": 28_600},
        "2b": {"hidden_size": 2048, "intermediate_size": 16_384, "head_dim": 256, "vocab_size": 256_000},
    },
    "encoder": {
        "small": {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 6},
        "medium": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 6},
        "2b": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24},
    },
}
SIDES = {
    "decoder": ("FlagLLMReranker", "ccheck bfloat16", "ccheck"),
    "encoder": ("FlagReranker", "CrossEncoder", *ENGINES, "ccheck bfloat16", "ccheck"),
}
EXACT = {"FlagLLMReranker": 1e-4, "FlagReranker": 1e-4, "CrossEncoder": 1e-4}
"""How much a score of a reference in float32 may differ."""
BATCHES = (1, 2, 4, 8, 16, 32)
DEFAULT = {"FlagLLMReranker": 128, "FlagReranker": 128, "CrossEncoder": 32} | dict.fromkeys(ENGINES, 32)


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--size", "sizes", type=click.Choice(["small", "medium", "2b"]), multiple=True, default=["small"])
@click.option("--kind", "kinds", type=click.Choice(list(SIDES)), multiple=True, default=list(SIDES))
@click.option("--count", "counts", type=click.IntRange(1, LONGEST), multiple=True, default=[20, 100])
@click.option("--turns", default=3, show_default=True)
@click.option("--side", "asked", multiple=True, help="Only these references.  [default: all that are installed]")
@click.option("--batch", "batches", type=int, multiple=True, default=BATCHES, help="Batches besides the default one.")
@click.option("--device", default="cpu", show_default=True, help="cuda: both sides in bfloat16")
def main(
    folder: Path | None,
    sizes: tuple[str, ...],
    kinds: tuple[str, ...],
    counts: tuple[int, ...],
    turns: int,
    asked: tuple[str, ...],
    batches: tuple[int, ...],
    device: str,
) -> None:
    folder = folder or Path(os.environ["CCHECK_SHARED_DATA"]) / "scifact"
    records = itertools.islice(common.rows(folder / "corpus.jsonl.gz"), LONGEST)
    passages = [f"{record['title']} {record['text']}" for record in records]
    # Each process is forked from one that has imported everything: the imports take longer than some of the runs.
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ccheck.rerank.load", "FlagEmbedding", "sentence_transformers"])
    with tempfile.TemporaryDirectory() as scratch:
        for size, kind in itertools.product(sizes, kinds):
            model = make(kind, size, Path(scratch) / f"{kind}-{size}", passages)
            sides = [side for side in SIDES[kind] if side == "ccheck" or not asked or side in asked]
            for side in list(sides):
                if lacks := missing(side):
                    click.echo(json.dumps({"side": side, "left out": f"not installed: {', '.join(lacks)}"}))
                    sides.remove(side)
            with processes(context, sides, serve, model, device) as ask:
                for side in sides:
                    library = ask[side](passages[:1], 0, True)["library"]  # warms up as well
                    click.echo(json.dumps({"side": side, "kind": kind, "multiplies with": library}))
                for count, reference in itertools.product(counts, sides[:-1]):
                    said = {"size": size, "passages": count, "over": reference, "device": device}
                    found = compared(ask, reference, passages[:count], turns, batches)
                    click.echo(json.dumps(said | found))
                    difference = max(one["difference"] for one in found.values())
                    if device == "cpu" and difference > EXACT.get(reference, math.inf):
                        raise click.ClickException(f"{reference} and ccheck differ by {difference:.1e}")


def compared(
    ask: dict[str, Callable[..., Any]], reference: str, passages: list[str], turns: int, batches: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """The reference over ccheck with each batch; one that holds all passages is as good as the default."""
    answer: dict[str, dict[str, Any]] = {}
    default = DEFAULT.get(reference, 0)
    for batch in (*(one for one in batches if one < min(len(passages), default)), default):
        pairs = [(ask[reference](passages, batch), ask["ccheck"](passages, 0)) for _ in range(turns)]
        ratios = {name: sorted(theirs[name] / ours[name] for theirs, ours in pairs) for name in ("cpu", "memory")}
        scores = [[score for side in pairs for score in side[place]["scores"]] for place in (0, 1)]
        answer[f"batch {batch}" if batch else "own batches"] = {
            **{name: [round(value, 3) for value in (statistics.median(r), r[0], r[-1])] for name, r in ratios.items()},
            "difference": max(abs(a - b) for a, b in zip(*scores, strict=True)),
            "same in best 10": len(set.intersection(*(best_ten(side["scores"]) for side in pairs[0]))),
        }
    best = min(answer, key=lambda batch: answer[batch]["cpu"][0])
    return {"best": {"batch": best, **answer[best]}, **answer}


def best_ten(scores: list[float]) -> set[int]:
    return set(sorted(range(len(scores)), key=lambda place: -scores[place])[:10])


def serve(name: str, model: Path, device: str, pipe: Any) -> None:
    """Score what comes through the pipe until it is closed."""
    import torch

    torch.set_num_threads(1)
    score, library = scorer(name, model, device, "float32" if device == "cpu" else "bfloat16")
    for passages, batch, *which in received(pipe):
        if which:
            library = library or torch_multiplies_with(lambda some=passages: score(some, 1))
            pipe.send({"library": library})
            continue
        with peak_memory(device) as peak:
            started = time.process_time()
            values = score(passages, batch)
            spent = time.process_time() - started
        pipe.send({"cpu": spent, "scores": values, "memory": peak[0]})


Score: TypeAlias = Callable[[list[str], int], list[float]]
"""Scores the claim with passages, with a batch if the side has batches."""


def scorer(name: str, model: Path, device: str, dtype: str) -> tuple[Score, str]:
    """How a side scores, and what multiplies there if torch doesn't. `dtype`: float32 or bfloat16."""
    half = dtype == "bfloat16"
    if name.startswith("ccheck"):
        from ccheck.rerank.load import load_scorer

        ours = load_scorer(
            str(model),
            Runtime(Settings(device=device)),
            ModelStage(dtype="bfloat16" if name.endswith("bfloat16") else dtype),
        )
        return lambda passages, batch: ours.score(ours.encode(CLAIM, passages)), ""
    if name.startswith("CrossEncoder"):
        import torch
        from sentence_transformers import CrossEncoder

        cross = CrossEncoder(str(model), max_length=512, device=device)
        if half:
            cross.bfloat16()
        plain = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}
        library = use_engine(cross, name, [(CLAIM, text) for text in calibration()]) if name in ENGINES else ""
        return lambda passages, batch: cross.predict(
            [(CLAIM, passage) for passage in passages], batch_size=batch or 32, **plain
        ).tolist(), library
    import FlagEmbedding

    options = {"use_bf16": True} if half and name == "FlagLLMReranker" else {"use_fp16": half}
    theirs = getattr(FlagEmbedding, name)(str(model), devices=[device], **options)
    if name == "FlagReranker":
        from tiny_rerankers import pairs_from_ids

        pairs_from_ids(theirs.tokenizer)
    return lambda passages, batch: theirs.compute_score(
        [[CLAIM, passage] for passage in passages], max_length=512, batch_size=batch or DEFAULT[name]
    ), ""


def calibration() -> list[str]:
    """Texts by which the ranges of int8 are found: none of those that are scored."""
    from ccheck.demo import CORPUS

    return [f"{row['title']} {row['text']}" for row in itertools.islice(common.rows(CORPUS), 32)]


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
    # What earlier runs freed must not count as memory that was there before.
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
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

    how = {"texts": passages[:300], "initializer_range": 0.02, **SIZES[kind][size]}
    if kind == "encoder":
        return make_encoder(folder, learn=8000, **how)
    how = {"num_hidden_layers": 18 if size == "2b" else 8, "num_attention_heads": 8, **how}
    return make_decoder(folder, learn=13_000, **how)


if __name__ == "__main__":
    main()
