"""The last course of the packaged stance model's reader: the claims of `written_claims.jsonl`, beside judged pairs.

    python benchmarks/stance_last.py WORK --student FOLDER

WORK has what `packaged_stance.py` wrote (`last.json.xz`) and the reader to go on with (`all.safetensors`); FOLDER has
the configuration and vocabulary of the student of `stance_reader.py`. The lowest layers stay as they are. It takes some
70 minutes of two cores.
"""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from stance_reader import Reader, loss_of, packed, steps_of, tokens_of, unpacked
from torch import nn

LAST = "last.json.xz"
WRITTEN_SHARE = 0.65
"""Of the halves of steps, how many are written claims."""
TOKENS_HALF = 2048
RATE, HEAD_FASTER = 1.3e-4, 4
STEPS = 1_850
FROZEN, DROPOUT = 4, 0.05


def endless(lengths: NDArray[np.int64], draw: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    while True:
        yield from steps_of(lengths, TOKENS_HALF, draw)


@click.command()
@click.argument("work", type=click.Path(exists=True, path_type=Path))
@click.option("--student", "folder", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--steps", default=STEPS, show_default=True)
def main(work: Path, folder: Path, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with lzma.open(work / LAST, "rt", encoding="utf-8") as text:
        sets: dict[str, list[Any]] = json.load(text)
    model = Reader(folder, DROPOUT)
    given = {name: torch.from_numpy(values) for name, values in unpacked(load_file(work / "all.safetensors")).items()}
    model.load_state_dict({name if name.startswith("head") else f"encoder.{name}": one for name, one in given.items()})
    model.to(device).train()
    for layer in model.encoder.encoder.layer[:FROZEN]:
        layer.requires_grad_(False)
    layers = [values for values in model.encoder.parameters() if values.requires_grad]
    groups = [{"params": layers, "lr": RATE}, {"params": [*model.head.parameters()], "lr": HEAD_FASTER * RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 30) * max(0.03, 1 - step / steps)
    )
    draw, began = np.random.default_rng(3), time.perf_counter()
    read = {name: tokens_of(folder, some, device, decoder=False) for name, some in sets.items()}
    rows = {name: endless(pairs.lengths.cpu().numpy(), draw) for name, pairs in read.items()}
    for number in range(steps):
        for _ in range(2):
            name = "written" if draw.random() < WRITTEN_SHARE else "judged"
            some = read[name].of(next(rows[name]))
            with torch.autocast(device, torch.bfloat16):
                outputs = model(some).float()
            ((loss_of(outputs, some.labels) * some.weights).sum() / 40).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if number % 100 == 99:
            print(f"step {number + 1} of {steps}: {time.perf_counter() - began:.0f} s", flush=True)
    weights = {name.removeprefix("encoder."): values.cpu().numpy() for name, values in model.state_dict().items()}
    save_file(packed(weights), work / "last.safetensors")


if __name__ == "__main__":
    main()
