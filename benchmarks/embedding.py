"""The embedding of documents by several engines, and whole ingests: documents a second, CPU time, peak memory.

    python benchmarks/embedding.py [FILE] [--documents N] [--rounds N] [--copies N] [--engine NAME ...]

FILE holds JSON Lines with `title` and `text` (default: SciFact's `corpus.jsonl.gz` in $CCHECK_SHARED_DATA). Each engine
has a process of its own, in random order, `--rounds` times, and gets the passages that an ingest embeds. `numpy` and
`openvino` are ccheck's, `torch` is sentence-transformers in float32, and `onnx` ONNX Runtime with a model that torch
exports. `direct` is a plain loop around the compiled model, with its tokenizer and four texts a batch. `ingest` is a
whole ingest with OpenVINO into a new store: documents are read from the file, cut, tokenised, embedded, cached, written
and published; it compares with `direct`. `--copies` repeats the documents with other titles. The script compares the
vectors and fails where they differ by more than 1e-5.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import common
import numpy as np
import tokenizers
from common import Row
from more_itertools import chunked

import ccheck
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import Document
from ccheck.encode.cache import SLICE
from ccheck.encode.dense import MINILM, Embedder, load_embedder
from ccheck.encode.numpy_bert import unit_length
from ccheck.encode.openvino_bert import OpenVinoBert
from ccheck.ingest.encoders import default_chunking
from ccheck.ingest.passages import cut_passages

ENGINES = ("numpy", "openvino", "direct", "ingest", "torch", "onnx")
"""The last one needs onnxruntime and onnx, which no extra has."""
PEERS = {
    "numpy": ("sentence-transformers", "torch", None),
    "openvino": ("sentence-transformers", "torch", None),
    "ingest": ("the compiled model called directly", "direct", 0.95),
}
ROWS = tuple(
    Row(f", {side}", side, plain, f"{said}, throughput in CPU time", "cpu", throughput=True, goal=goal)
    for side, (said, plain, goal) in PEERS.items()
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--documents", default=256, show_default=True, help="Number of documents.")
@click.option("--copies", default=1, show_default=True, help="How often they are repeated, each time with new titles.")
@click.option("--rounds", default=3, show_default=True, help="How often each engine runs.")
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), default=ENGINES[:5])
@click.option("--threads", default=1, show_default=True, help="Processors that each engine may use.")
@click.option("--child", hidden=True)
def main(
    file: Path | None,
    documents: int,
    copies: int,
    rounds: int,
    engines: tuple[str, ...],
    threads: int,
    child: str | None,
) -> None:
    # Whichever they are, so that several runs don't crowd on the first one.
    os.sched_setaffinity(0, random.sample(sorted(os.sched_getaffinity(0)), min(threads, os.cpu_count() or 1)))
    if child is not None:
        assert file is not None
        run(child, file, Path(os.environ["VECTORS"]))
        return
    file = file or Path(os.environ["CCHECK_SHARED_DATA"], "scifact", "corpus.jsonl.gz")
    with tempfile.TemporaryDirectory() as scratch:
        given, texts = read(file, documents, copies), Path(scratch, "texts.json")
        count, cut = len(given), passages(given)
        texts.write_text(json.dumps(cut))
        rows = [json.dumps({"_id": one.id, "title": one.title, "text": one.text}) + "\n" for one in given]
        texts.with_suffix(".jsonl").write_text("".join(rows))

        def measured(engine: str, _round: int) -> dict[str, float]:
            command = [sys.executable, __file__, str(texts), "--child", engine]
            vectors = {"VECTORS": f"{scratch}/{engine}.npy"}
            done = subprocess.run(command, env=os.environ | vectors, stdout=subprocess.PIPE, check=True)
            figures: dict[str, float] = json.loads(done.stdout)
            return figures | {"docs/s": count / figures["wall"]}

        taken = common.in_rounds({engine: partial(measured, engine) for engine in engines}, rounds)
        common.told(taken, ROWS, f"{count:,} documents, {len(cut):,} passages")
        made = {engine: np.load(f"{scratch}/{engine}.npy") for engine in engines if engine != "ingest"}
        first, *others = made
        for engine in others:
            difference = float(np.abs(made[first] - made[engine]).max())
            print(f"{first} and {engine}: largest difference {difference:.1e}")
            assert difference < 1e-5


def read(file: Path, documents: int, copies: int) -> list[Document]:
    rows = list(itertools.islice(common.rows(file), documents))
    return [
        Document(f"{copy}-{number}", f"{row.get('title', '')}{f' ({copy})' if copy else ''}", row["text"])
        for copy in range(copies)
        for number, row in enumerate(rows)
    ]


def passages(documents: list[Document]) -> list[str]:
    """The texts that an ingest embeds, in its order."""
    embedder = load_embedder(MINILM, Runtime())
    spans = cut_passages(documents, embedder.count_tokens, default_chunking(embedder.spec))
    return sorted((span.embedded for some in spans for span in some), key=lambda text: -len(text))


def run(engine: str, texts: Path, to: Path) -> None:
    """Embed with one engine, and say in JSON what it took."""

    given: list[str] = json.loads(texts.read_text())
    started = time.process_time()
    embedder = load_embedder(MINILM, Runtime(Settings(device="cpu")))
    if engine == "ingest":
        ingest(embedder, texts, started)
        return
    encode = encoder(engine, embedder, to)
    encode(given[-4:])
    loading, wall, cpu = time.process_time() - started, time.perf_counter(), time.process_time()
    vectors = [encode(given[start : start + SLICE]) for start in range(0, len(given), SLICE)]
    told = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "loading": loading}
    np.save(to, np.concatenate(vectors))
    print(json.dumps(told | {"peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def encoder(engine: str, embedder: Embedder, to: Path) -> Callable[[list[str]], Any]:
    """A function from texts to vectors of unit length."""
    bert, fast = embedder._bert, embedder._fast
    assert bert is not None and fast is not None
    if engine == "numpy":
        return embedder.encode_queries
    if engine == "openvino":
        return lambda some: unit_length(fast.encode(some))
    if engine == "torch":
        return lambda some: embedder._encode(embedder._model.encode_document, some)
    padded = tokenizers.Tokenizer.from_file(str(bert._folder.path / "tokenizer.json"))
    padded.enable_padding()
    padded.enable_truncation(bert._folder.max_tokens)
    call = exported(embedder, to.with_suffix(".onnx")) if engine == "onnx" else compiled(fast)

    def loop(some: list[str]) -> Any:
        def one(batch: list[str]) -> Any:
            read = padded.encode_batch(batch)
            return call(np.array([one.ids for one in read]), np.array([one.attention_mask for one in read]))

        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if engine == "direct" else 1) as pool:
            return unit_length(np.concatenate([*pool.map(one, chunked(some, 4))]))

    return loop


def compiled(fast: OpenVinoBert) -> Callable[[Any, Any], Any]:
    def call(ids: Any, mask: Any) -> Any:
        request = fast._free.get()
        try:
            return np.array(request.infer([ids.astype(np.int32), mask.astype(np.float32)])[0])
        finally:
            fast._free.put(request)

    return call


def exported(embedder: Embedder, file: Path) -> Callable[[Any, Any], Any]:
    import onnxruntime
    import torch

    class States(torch.nn.Module):
        def forward(self, ids: Any, mask: Any) -> Any:
            return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

    names, states = ["input_ids", "attention_mask"], States()
    states.add_module("bert", embedder._model[0].auto_model.eval())
    axes = {name: {0: "texts", 1: "tokens"} for name in [*names, "states"]}
    sample = (torch.ones(2, 8, dtype=torch.long), torch.ones(2, 8, dtype=torch.long))
    how = {"input_names": names, "output_names": ["states"], "dynamic_axes": axes, "dynamo": False}
    torch.onnx.export(states, sample, str(file), **how)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def call(ids: Any, mask: Any) -> Any:
        states = session.run(["states"], {"input_ids": ids, "attention_mask": mask})[0]
        return (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)

    return call


def ingest(embedder: Embedder, texts: Path, started: float) -> None:
    """Ingest the documents into a new store, and say in JSON what it took without the start of the model."""
    fast = embedder._fast
    assert fast is not None
    fast.encode(["sea level"])
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch, "cache")
        checker = ccheck.open(f"{scratch}/store", cache_dir=cache, device="cpu", embedding_model=MINILM)
        with checker, patch("ccheck.encode.openvino_bert.OpenVinoBert", lambda *_: fast):
            loading, wall, cpu = time.process_time() - started, time.perf_counter(), time.process_time()
            checker.ingest(texts.with_suffix(".jsonl"))
            told = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "loading": loading}
    print(json.dumps(told | {"peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
