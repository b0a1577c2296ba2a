"""The last courses of the packaged stance model's reader: the claims of `written_claims.jsonl`, beside judged pairs.

    python benchmarks/stance_last.py WORK --student FOLDER

WORK has what `packaged_stance.py` wrote (`last.json.xz`) and the reader to go on with (`all.safetensors`); FOLDER has
the configuration and vocabulary of the student of `stance_reader.py`. The lowest layers stay as they are. It takes some
five hours of two cores. The reader that ships learned 19,231 of the claims in its first course, and 37,801 in its
second, both with what is read of three sentences. In its third and fourth, with five, it learned all that are not
held out and were written by then; two in three of the written pairs were headlines and numbers (`web`, `number`), and
the rate fell after two fifths only.
"""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from stance_reader import Pairs, Reader, loss_of, packed, steps_of, tokens_of, unpacked
from torch import nn

LAST = "last.json.xz"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOKENS_HALF = 2048
HEAD_FASTER = 4
FROZEN, DROPOUT = 4, 0.05


class Course(NamedTuple):
    """How long a reader learns, and how fast. Each step has two halves. `written` is the share of halves that are
    written claims. Afterwards the weights are `share` of what was learned, and the rest of those before (Wortsman et
    al. 2022, "Robust fine-tuning of zero-shot models")."""

    steps: int
    rate: float
    written: float
    share: float


COURSES = (
    *(Course(1_618, 1.3e-4, 0.65, 0.85), Course(1_216, 1e-4, 0.6, 0.6)),
    *(Course(1_346, 1e-4, 0.67, 0.7), Course(1_368, 1e-4, 0.72, 0.7)),
)


def endless(lengths: NDArray[np.int64], draw: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    while True:
        yield from steps_of(lengths, TOKENS_HALF, draw)


@click.command()
@click.argument("work", type=click.Path(exists=True, path_type=Path))
@click.option("--student", "folder", required=True, type=click.Path(exists=True, path_type=Path))
def main(work: Path, folder: Path) -> None:
    with lzma.open(work / LAST, "rt", encoding="utf-8") as text:
        sets: dict[str, list[Any]] = json.load(text)
    read = {name: tokens_of(folder, some, DEVICE, decoder=False) for name, some in sets.items()}
    weights = unpacked(load_file(work / "all.safetensors"))
    for course in COURSES:
        learned = learn(course, weights, read, folder)
        weights = {name: course.share * learned[name] + (1 - course.share) * values for name, values in weights.items()}
    save_file(packed(weights), work / "last.safetensors")


def learn(
    course: Course, given: Mapping[str, NDArray[np.float32]], read: Mapping[str, Pairs], folder: Path
) -> dict[str, NDArray[np.float32]]:
    """The weights of a reader after a course."""
    model = Reader(folder, DROPOUT)
    model.load_state_dict(
        {name if name.startswith("head") else f"encoder.{name}": torch.from_numpy(one) for name, one in given.items()}
    )
    model.to(DEVICE).train()
    for layer in model.encoder.encoder.layer[:FROZEN]:
        layer.requires_grad_(False)
    layers = [values for values in model.encoder.parameters() if values.requires_grad]
    groups = [
        {"params": layers, "lr": course.rate},
        {"params": [*model.head.parameters()], "lr": HEAD_FASTER * course.rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 30) * max(0.03, 1 - step / course.steps)
    )
    draw, began = np.random.default_rng(3), time.perf_counter()
    rows = {name: endless(pairs.lengths.cpu().numpy(), draw) for name, pairs in read.items()}
    for number in range(course.steps):
        for _ in range(2):
            name = "written" if draw.random() < course.written else "judged"
            some = read[name].of(next(rows[name]))
            with torch.autocast(DEVICE, torch.bfloat16):
                outputs = model(some).float()
            ((loss_of(outputs, some.labels) * some.weights).sum() / 40).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if number % 100 == 99:
            print(f"step {number + 1} of {course.steps}: {time.perf_counter() - began:.0f} s", flush=True)
    return {name.removeprefix("encoder."): values.cpu().numpy() for name, values in model.state_dict().items()}


if __name__ == "__main__":
    main()
