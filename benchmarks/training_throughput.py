"""`ccheck train` against plain sentence-transformers and transformers, in rows per second.

    python benchmarks/training_throughput.py FOLDER [--task NAME]... [--device cpu|cuda|mps] [--steps N] [--rounds N]

FOLDER contains `corpus.jsonl.gz`, `queries.jsonl` and `qrels.tsv` in BEIR's format, and SciFact's `verdicts.jsonl` for
stances. Both sides learn the same rows from the same base with the same batch, length, precision, dropout, schedule and
optimiser:

| task | ccheck | plain |
| --- | --- | --- |
| embedder | `chunk` = `batch` | SentenceTransformerTrainer, MultipleNegativesRankingLoss, no duplicates in a batch |
| embedder-cached | `chunk` = a quarter of it | the same with CachedMultipleNegativesRankingLoss |
| embedder-triplet | `loss = "triplet"` | the same with TripletLoss in cosine |
| reranker-bce | `loss = "bce"` | CrossEncoderTrainer, BinaryCrossEntropyLoss |
| reranker-softmax | `loss = "softmax"` | the same with ListNetLoss, its labels a softmax, all pairs in one pass |
| stance | batches of like length | transformers' Trainer, DataCollatorWithPadding, cross-entropy |

The time covers the steps after the first `--warm` ones and everything between them, but not loading, measuring or the
final checkpoint. ccheck's side runs `run_phase`, as in normal use, with its log and progress.

Each side has its own process. They take turns, and each goes first in every second round. The ratio is ccheck's median
of rows per second over the plain side's (above 1: ccheck is faster), with the smallest and largest ratio of a round in
brackets. The same follows for CPU time: trust it on a busy machine. Memory is the peak beyond that before the run:
resident memory, or on a GPU what torch allocated.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import data
from processes import processes, received

from ccheck.core.models import find_model, loading_quietly
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))

TASKS = tuple("embedder embedder-cached embedder-triplet reranker-bce reranker-softmax stance".split())
SIDES = ("plain", "ccheck")
GROUP = 3
"""Documents of a row of reranker-softmax: the relevant one and two others."""


@dataclass(frozen=True)
class Job:
    """The settings that both sides receive."""

    task: str
    folder: str
    base: str
    device: str
    batch: int
    steps: int
    warm: int
    max_tokens: int
    precision: str
    attention_dropout: float
    threads: int


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--task", "tasks", type=click.Choice(TASKS), multiple=True, default=TASKS, help="Run only these tasks.")
@click.option("--device", default="cpu", show_default=True)
@click.option(
    "--base", default="all-MiniLM-L6-v2", show_default=True, help="Encoder to start from, a folder or a name."
)
@click.option("--batch", default=16, show_default=True, help="Rows per batch.")
@click.option("--steps", default=12, show_default=True, help="Steps per round.")
@click.option("--warm", default=2, show_default=True, help="Steps to leave untimed at the start.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--max-tokens", default=128, show_default=True)
@click.option("--precision", default="auto", show_default=True, help="Precision of both sides, as in ccheck's setting.")
@click.option("--attention-dropout", default=0.0, show_default=True, help="Dropout of both sides. Most models use 0.1.")
@click.option("--threads", default=1, show_default=True)
def main(folder: Path, tasks: tuple[str, ...], rounds: int, **given: Any) -> None:
    if given["warm"] >= given["steps"]:
        raise click.UsageError("--steps: more than --warm")
    os.environ["OMP_NUM_THREADS"] = str(given["threads"])
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch, processes(context, SIDES, serve) as ask:
        base = given.pop("base")
        for task in tasks:
            if task.startswith("stance") and not (folder / "verdicts.jsonl").is_file():
                print(f"{task}: left out, {folder} has no verdicts.jsonl")
                continue
            job = Job(task=task, folder=str(folder), base=prepared(base, task, Path(scratch)), **given)
            turns = []
            for number in range(rounds):
                order = SIDES if number % 2 else SIDES[::-1]
                turns.append({side: ask[side](job) for side in order})
            if task == tasks[0]:
                print(f"{turns[0]['ccheck']['on']}; {os.cpu_count()} cores, {rounds} rounds, {job}", flush=True)
            print(f"{task:<17} {told(ratios(turns))}", flush=True)


def ratios(turns: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for clock in ("wall", "cpu"):
        speeds = {side: statistics.median(turn[side]["rows"] / turn[side][clock] for turn in turns) for side in SIDES}
        own = [
            (turn["ccheck"]["rows"] / turn["ccheck"][clock]) / (turn["plain"]["rows"] / turn["plain"][clock])
            for turn in turns
        ]
        found[clock] = {
            "ratio": speeds["ccheck"] / speeds["plain"],
            "spread": [min(own), max(own)],
            **{f"{side}_rows_a_second": speed for side, speed in speeds.items()},
        }
    for name in ("memory", "tokens"):
        found[name] = {side: statistics.median(turn[side][name] for turn in turns) for side in SIDES}
    return found


def told(found: dict[str, Any]) -> str:
    parts = []
    for clock in ("wall", "cpu"):
        one = found[clock]
        parts.append(
            f"{clock} {one['ratio']:.2f} [{one['spread'][0]:.2f}, {one['spread'][1]:.2f}] "
            f"({one['ccheck_rows_a_second']:.1f} against {one['plain_rows_a_second']:.1f} rows a second)"
        )
    memory, tokens = found["memory"], found["tokens"]
    return (
        f"{', '.join(parts)}; memory {memory['ccheck']:.0f} against {memory['plain']:.0f} MiB; "
        f"{tokens['ccheck']:.0f} against {tokens['plain']:.0f} tokens a row, with padding"
    )


def prepared(base: str, task: str, scratch: Path) -> str:
    """A folder to start from. A reranker's has the new head, so that both sides have the same."""
    path = find_model(base).path
    folder = scratch / "reranker"
    if not task.startswith("reranker"):
        return str(path)
    if not folder.is_dir():
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        torch.manual_seed(0)
        with loading_quietly():
            model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32, num_labels=1)
            model.save_pretrained(folder)
            AutoTokenizer.from_pretrained(path).save_pretrained(folder)
    return str(folder)


# -- a process for each side


def serve(side: str, pipe: Any) -> None:
    """Train what comes through the pipe until it is closed."""
    for (job,) in received(pipe):
        pipe.send(trained(side, job))


def trained(side: str, job: Job) -> dict[str, Any]:
    """One run of one side: seconds of the timed steps, rows in them, tokens with padding, memory."""
    import torch

    from rerank import peak_memory

    torch.set_num_threads(job.threads)
    clock = Clock(job)
    maker = {"embedder": embedder, "reranker": reranker, "stance": stance}[job.task.partition("-")[0]]
    work = Path(tempfile.mkdtemp())
    try:
        train = maker(side, job, work, clock)
        with peak_memory(job.device) as peak:
            train()
    finally:
        shutil.rmtree(work)
    on = torch.cuda.get_device_name() if job.device == "cuda" else job.device
    return {**clock.found(), "memory": peak[0], "on": f"{on}, torch {torch.__version__}"}


class Clock:
    """Time, rows and tokens of the steps after the warm ones."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.marks: list[tuple[float, float]] = []
        self.tokens = 0
        self.timed = False

    def callback(self) -> Any:
        from transformers import TrainerCallback

        clock = self

        class Marks(TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
                if state.global_step == clock.job.warm:
                    clock.mark(True)

            def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
                if state.global_step == clock.job.steps:
                    clock.mark(False)

        return Marks()

    def mark(self, timed: bool) -> None:
        if self.job.device == "cuda":
            import torch

            torch.cuda.synchronize()
        self.timed = timed
        self.marks.append((time.perf_counter(), time.process_time()))

    def watch(self, model: Any) -> None:
        """Count the ids that the model reads with gradients, padding too."""
        import torch

        def count(module: Any, given: tuple[Any, ...]) -> None:
            if self.timed and torch.is_grad_enabled():
                self.tokens += given[0].numel()

        model.get_input_embeddings().register_forward_pre_hook(count)

    def found(self) -> dict[str, Any]:
        (wall, cpu), (wall_end, cpu_end) = self.marks
        rows = (self.job.steps - self.job.warm) * self.job.batch
        return {"wall": wall_end - wall, "cpu": cpu_end - cpu, "rows": rows, "tokens": self.tokens / rows}


# -- the three trainings


def plain_arguments(job: Job, work: Path) -> dict[str, Any]:
    """ccheck's arguments as those of a plain trainer."""
    from ccheck.lab.train.loop import mixed_precision
    from ccheck.lab.train.options import TrainingOptions

    mode = mixed_precision(TrainingOptions(precision=job.precision), job.device)
    return {
        "output_dir": str(work / "plain"),
        "max_steps": job.steps,
        "per_device_train_batch_size": job.batch,
        "learning_rate": 2e-5,
        "warmup_steps": 0.1,
        "weight_decay": 0.01,
        "seed": 0,
        "bf16": mode == "bf16",
        "fp16": mode == "fp16",
        "use_cpu": job.device == "cpu",
        "optim": "adamw_torch",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": job.device == "cuda",
    }


def settings(job: Job) -> dict[str, Any]:
    return {
        "base": job.base,
        "epochs": 1,
        "batch": job.batch,
        "learning_rate": 2e-5,
        "precision": job.precision,
        "max_tokens": job.max_tokens,
        "attention_dropout": job.attention_dropout,
    }


def phase(job: Job, work: Path, options: Any, trainer: Any, clock: Clock) -> Callable[[], object]:
    """ccheck's side: all of a phase but the measuring."""
    from ccheck.lab.train.loop import Silent, run_phase

    trainer.args.max_steps = job.steps
    trainer.add_callback(clock.callback())
    return lambda: run_phase("phase", work / "phase", options, lambda: trainer, lambda: 0.0, Silent())


def cardless(trainer: Any) -> Any:
    """A trainer of sentence-transformers that writes no model card: ccheck's side is not timed with its own either."""

    class Cardless(trainer):  # type: ignore[misc]
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            pass

    return Cardless


def quietly(trainer: Any, clock: Clock) -> Callable[[], object]:
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(clock.callback())

    def train() -> None:
        with loading_quietly():
            trainer.train()

    return train


def embedder(side: str, job: Job, work: Path, clock: Clock) -> Callable[[], object]:
    from datasets import Dataset

    from ccheck.lab.train import embedder as ours
    from ccheck.lab.train.options import EmbedderOptions

    data = retrieval(job.folder)
    triplet = job.task.endswith("triplet")
    chunk = max(1, job.batch // 4) if job.task.endswith("cached") else job.batch
    loss = "triplet" if triplet else "multiple-negatives"
    options = EmbedderOptions(**settings(job), loss=loss, chunk=chunk)
    # A few more, because some may fit into no batch whose negatives are all irrelevant.
    rows = enough(ours.embedder_rows(options, data), job, spare=0.25)
    if side == "ccheck":
        model, _ = ours.load_base(options, job.device)
        model.max_seq_length = job.max_tokens
        model.to(job.device)
        clock.watch(model.transformers_model)
        return phase(job, work, options, ours._trainer(model, options, data, rows, work, job.device, 1, 2e-5), clock)
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.training_args import BatchSamplers

    with loading_quietly():
        model = SentenceTransformer(job.base, device=job.device, config_kwargs=dropout(job))
    model.max_seq_length = job.max_tokens
    clock.watch(model.transformers_model)
    texts = {id_: document.content for id_, document in data.documents.items()}
    columns = {"anchor": [row.claim.text for row in rows], "positive": [texts[row.positive] for row in rows]}
    if triplet:
        columns["negative"] = [texts[row.negatives[0]] for row in rows]
        learned = losses.TripletLoss(model, losses.TripletDistanceMetric.COSINE, options.margin)
    elif chunk < job.batch:
        learned = losses.CachedMultipleNegativesRankingLoss(model, scale=options.scale, mini_batch_size=chunk)
    else:
        learned = losses.MultipleNegativesRankingLoss(model, scale=options.scale)
    sampler = BatchSamplers.BATCH_SAMPLER if triplet else BatchSamplers.NO_DUPLICATES
    told = SentenceTransformerTrainingArguments(**plain_arguments(job, work), batch_sampler=sampler)
    return quietly(
        cardless(SentenceTransformerTrainer)(
            model=model, args=told, train_dataset=Dataset.from_dict(columns), loss=learned
        ),
        clock,
    )


def reranker(side: str, job: Job, work: Path, clock: Clock) -> Callable[[], object]:
    from datasets import Dataset

    from ccheck.lab.train import reranker as ours
    from ccheck.lab.train.negatives import draw_negatives
    from ccheck.lab.train.options import RerankerOptions
    from ccheck.lab.train.rerank_model import load_rerank_model

    data = retrieval(job.folder)
    options = RerankerOptions(**settings(job), loss=job.task.partition("-")[2])
    drawn = draw_negatives(data, data.train, {}, hard=0, random_count=GROUP - 1, seed=0)
    passages = {id_: document.content for id_, document in data.documents.items()}
    rows = enough(ours.reranker_rows(drawn, passages, options), job)
    if side == "ccheck":
        made = load_rerank_model(options, job.device)
        made.model.to(job.device)
        clock.watch(made.model)
        trainer = ours._trainer(made, options, rows, work, job.device, 1, options.learning_rate)
        return phase(job, work, options, trainer, clock)
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments, losses

    with loading_quietly():
        model = CrossEncoder(job.base, max_length=job.max_tokens, device=job.device, config_kwargs=dropout(job))
    clock.watch(model.model)
    columns: dict[str, list[Any]] = {"query": [row.claim for row in rows]}
    if options.loss == "bce":
        columns |= {"document": [row.passages[0] for row in rows], "label": [row.label for row in rows]}
        learned = losses.BinaryCrossEntropyLoss(model)
    else:
        # So far above the others that their share of the softmax over labels is zero.
        columns |= {
            "documents": [list(row.passages) for row in rows],
            "labels": [[100.0] + [0.0] * (len(row.passages) - 1) for row in rows],
        }
        learned = losses.ListNetLoss(model, mini_batch_size=-1)
    told = CrossEncoderTrainingArguments(**plain_arguments(job, work))
    return quietly(
        cardless(CrossEncoderTrainer)(model=model, args=told, train_dataset=Dataset.from_dict(columns), loss=learned),
        clock,
    )


def stance(side: str, job: Job, work: Path, clock: Clock) -> Callable[[], object]:
    import transformers

    from ccheck.lab.train import stance as ours
    from ccheck.lab.train.loop import Silent
    from ccheck.lab.train.stance_rows import read_rows
    from ccheck.verdict.classifier import StanceClassifier

    # The same sum on both sides: cross-entropy over each pair once.
    options = ours.StanceOptions(**settings(job), gamma=0.0, balanced=False)
    read = read_rows(Path(job.folder) / "verdicts.jsonl", Path(job.folder) / "corpus.jsonl.gz")
    start = work / "start"
    ours._prepare(options, start)
    method = StanceClassifier(str(start), Runtime(Settings(device=job.device)), max_tokens=job.max_tokens)
    pairs = enough(ours._pairs(method, read.rows[: 2 * job.steps * job.batch], 0, Silent()), job)
    if side == "ccheck":
        clock.watch(method.network)
        return phase(job, work, options, ours._trainer(work, options, method, pairs, 1, 2e-5), clock)
    with loading_quietly():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(start)
    clock.watch(model)
    told = plain_arguments(job, work)
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(**told),
        train_dataset=[{**pair.inputs, "labels": pair.label} for pair in pairs],
        data_collator=transformers.DataCollatorWithPadding(method.tokenizer),
    )
    return quietly(trainer, clock)


def dropout(job: Job) -> dict[str, float]:
    config = json.loads((Path(job.base) / "config.json").read_text(encoding="utf-8"))
    names = ("attention_probs_dropout_prob", "attention_dropout")
    return {name: job.attention_dropout for name in names if name in config}


def enough(rows: Any, job: Job, spare: float = 0) -> list[Any]:
    """As many rows as the steps need, the same for both sides. Starts over if there are too few."""
    wanted = round(job.steps * job.batch * (1 + spare))
    rows = list(rows)
    random.Random(0).shuffle(rows)
    return (rows * -(-wanted // len(rows)))[:wanted]


@functools.cache
def retrieval(folder: str) -> Any:
    from ccheck.ingest.documents import make_document
    from ccheck.lab.measure.datasets import read_qrels
    from ccheck.lab.train.retrieval_data import retrieval_data
    from ccheck.pipeline.claims import read_claims

    path = Path(folder)
    documents = [make_document(row).document for row in data.rows(path / "corpus.jsonl.gz")]
    return retrieval_data(documents, read_claims(path / "queries.jsonl"), read_qrels(path / "qrels.tsv"))


if __name__ == "__main__":
    main()
