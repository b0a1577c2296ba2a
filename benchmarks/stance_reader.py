"""Training of the packaged stance model's reader: a small BERT that reads claim and evidence together
(`encode/numpy_bert.py`).

The embeddings and the first `FROZEN` layers are not trained. A training that was stopped goes on from its last
checkpoint.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stance_data import NOT_SUPPORTED, SUPPORTS, Pair
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

FROZEN = 4
HEAD_FASTER = 8
"""How many times the head's learning rate is the layers'."""
TOKENS = 2400
"""About as many tokens are in one step."""
SAVED_EVERY = 25
Encoded = tuple[list[int], list[int]]
"""Of a pair: the ids of its tokens, and which of the two texts each is from."""


class Reader(nn.Module):
    """A BERT without its pooling, and a head over the first token's vector and the mean of all."""

    def __init__(self, folder: Path, state: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        options = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}  # the fused kernel needs no dropout
        self.encoder = AutoModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False, **options)
        self.encoder.embeddings.requires_grad_(False)
        for layer in self.encoder.encoder.layer[:FROZEN]:
            layer.requires_grad_(False)
        self.head = nn.Linear(2 * self.encoder.config.hidden_size, 3)
        nn.init.zeros_(self.head.bias)
        for name, values in (state or {}).items():
            self.get_parameter(name).data.copy_(values)

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor, dropout: float = 0.0) -> Tensor:
        states = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=kinds).last_hidden_state
        shown = mask[..., None].float()
        read = torch.cat([states[:, 0], (states * shown).sum(1) / shown.sum(1)], 1)
        made: Tensor = self.head(functional.dropout(read, dropout, self.training))
        return made

    def state(self) -> dict[str, Tensor]:
        """What is trained."""
        return {name: values.detach().clone() for name, values in self.named_parameters() if values.requires_grad}


def read_pairs(folder: Path, pairs: Sequence[Pair], most: int) -> list[Encoded]:
    """As `NumpyBert.encode_pairs` reads them: of `most` tokens, with three special ones, a claim gets up to a half."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    claims, texts = (
        tokenizer([pair[side] for pair in pairs], add_special_tokens=False)["input_ids"] for side in (0, 1)
    )
    made = []
    for mine, given in zip(claims, texts, strict=True):
        mine = mine[: (most - 3) // 2]
        given = given[: most - 3 - len(mine)]
        ids = [tokenizer.cls_token_id, *mine, tokenizer.sep_token_id, *given, tokenizer.sep_token_id]
        made.append((ids, [0] * (len(mine) + 2) + [1] * (len(given) + 1)))
    return made


def loss_of(outputs: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy of each pair; of one that is only known not to support, of both other labels together."""
    logs = functional.log_softmax(outputs, 1)
    named = functional.cross_entropy(
        outputs, labels.clamp(max=NOT_SUPPORTED - 1), reduction="none", label_smoothing=smoothing
    )
    others = -torch.logsumexp(logs[:, SUPPORTS + 1 :], 1)
    return torch.where(labels == NOT_SUPPORTED, others, named)


def learn(
    folder: Path,
    pairs: Sequence[Pair],
    work: Path,
    start: dict[str, Tensor] | None = None,
    *,
    most: int,
    rate: float,
    warm: int = 20,
    last: float = 0.02,
    smoothing: float = 0.0,
    dropout: float = 0.1,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Learn from the pairs, reading at most `most` tokens of each, and return what is trained. `work` is the
    checkpoint: a training that was stopped goes on from there.

    `rate` rises over `warm` steps, then falls linearly to the share `last` of it.
    """
    torch.set_num_threads(1)
    model = Reader(folder, start).train()
    encoded = read_pairs(folder, pairs, most)
    labels = torch.tensor([pair.label for pair in pairs])
    weights = torch.tensor([pair.weight for pair in pairs], dtype=torch.float)
    draw = random.Random(seed)
    steps = list(_steps([len(ids) for ids, _ in encoded], draw))
    head = list(model.head.parameters())
    trained = [values for values in model.encoder.parameters() if values.requires_grad]
    groups = [{"params": trained, "lr": rate}, {"params": head, "lr": HEAD_FASTER * rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / warm) * max(last, 1 - (1 - last) * step / len(steps))
    )
    done = 0
    if work.exists():
        kept = torch.load(work, weights_only=True)
        done = kept["done"]
        for name, values in kept["state"].items():
            model.get_parameter(name).data.copy_(values)
        optimizer.load_state_dict(kept["optimizer"])
        schedule.load_state_dict(kept["schedule"])
    torch.manual_seed(seed + done)
    lost, began = 0.0, time.perf_counter()
    for number, rows in enumerate(steps[done:], done + 1):
        made = model(*_batch(encoded, rows), dropout)
        loss = (loss_of(made, labels[rows], smoothing) * weights[rows]).sum() / len(rows)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        lost += loss.item()
        if number % SAVED_EVERY == 0 or number == len(steps):
            print(
                f"{work.name}: step {number} of {len(steps)}: loss {lost / SAVED_EVERY:.3f}, "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )
            lost = 0.0
            kept = {"done": number, "state": model.state(), "optimizer": optimizer.state_dict()}
            torch.save(kept | {"schedule": schedule.state_dict()}, work.with_suffix(".part"))
            work.with_suffix(".part").replace(work)
    return model.state()


def _steps(lengths: Sequence[int], draw: random.Random) -> Iterator[list[int]]:
    """The rows of each step: pairs of like length."""
    order = list(range(len(lengths)))
    draw.shuffle(order)
    steps = []
    for start in range(0, len(order), 400):
        rows: list[int] = []
        for row in sorted(order[start : start + 400], key=lambda row: lengths[row]):
            if (rows and (len(rows) + 1) * lengths[row] > TOKENS) or len(rows) >= 48:
                steps.append(rows)
                rows = []
            rows.append(row)
        if rows:
            steps.append(rows)
    draw.shuffle(steps)
    return iter(steps)


def _batch(encoded: Sequence[Encoded], rows: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(len(encoded[row][0]) for row in rows)
    ids, mask, kinds = (torch.zeros(len(rows), longest, dtype=torch.long) for _ in range(3))
    for place, row in enumerate(rows):
        length = len(encoded[row][0])
        ids[place, :length], mask[place, :length] = torch.tensor(encoded[row][0]), 1
        kinds[place, :length] = torch.tensor(encoded[row][1])
    return ids, mask, kinds


def stored(folder: Path, state: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    """The whole model as `load_cross_encoder` reads it: matrices of the encoder in int8 with a scale for each row."""
    made: dict[str, NDArray[Any]] = {}
    for name, values in Reader(folder, state).state_dict().items():
        name = name.removeprefix("encoder.")
        if name.endswith("weight") and values.dim() == 2 and not name.startswith("head"):
            scale = (values.abs().amax(1).clamp(min=1e-4) / 127).half().float()
            made[name] = (values / scale[:, None]).round().to(torch.int8).numpy()
            made[f"{name}.scale"] = scale.numpy().astype(np.float16)
        elif values.is_floating_point():
            made[name] = values.numpy().astype(np.float16)
    return made
