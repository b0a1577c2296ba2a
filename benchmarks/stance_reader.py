"""Training of the packaged stance model's readers: small BERTs that read claim and evidence together
(`encode/numpy_bert.py`). Each learns from labels and from the answers of larger models.

    python benchmarks/stance_reader.py WORK --student FOLDER --teacher FOLDER --teacher FOLDER

WORK has what `packaged_stance.py` wrote; the readers are put beside it. This file needs torch, transformers and
safetensors, nothing of ccheck, so that it can be copied to a machine with a GPU.

Each teacher learns the base pairs, and then for each group the judged pairs of the other groups. The student learns the
same, and unlabelled pairs, with the mean of the teachers' log-probabilities as soft labels (Hinton et al. 2015, with a
temperature of 1). Embeddings are not trained.
"""

from __future__ import annotations

import json
import lzma
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, AutoTokenizer

PAIRS = "pairs.json.xz"
TOKENS = 224
"""How many tokens of a pair are read."""
NOT_SUPPORTED = 3
"""The label of a pair that is refuted or open; those of STANCES come before."""
HEAD_FASTER = 8
"""How many times the head's learning rate is the layers'."""
POOLED = 16_000
"""How many unlabelled pairs a group's student learns from."""
LABELS_SHARE = 0.5
"""The weight of a label beside the teachers' answer, which counts 1."""


@dataclass(frozen=True)
class Course:
    """Tokens in a step, learning rate and steps: first for the base pairs, then for a group's judged pairs."""

    tokens: tuple[int, int]
    rates: tuple[float, float]
    steps: tuple[int, int]
    dropout: float


ENCODER = Course((16_384, 8_192), (8e-5, 4e-5), (435, 230), 0.1)
DECODER = Course((24_576, 12_288), (1.2e-4, 7e-5), (176, 100), 0.0)
STUDENT = Course((16_384, 8_192), (3e-4, 1.5e-4), (797, 340), 0.05)


@dataclass(frozen=True)
class Pairs:
    """Tokens of pairs, shape [pairs, TOKENS], how many of a row are there, where its second text begins, labels, and
    how much a pair counts."""

    ids: Tensor
    lengths: Tensor
    seconds: Tensor
    labels: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def of(self, rows: NDArray[np.int64] | slice) -> Pairs:
        return Pairs(self.ids[rows], self.lengths[rows], self.seconds[rows], self.labels[rows], self.weights[rows])


class Reader(nn.Module):
    """A model without pooling, and a head over one token's vector and the mean of many: of an encoder the first token
    and all, of a decoder the last token and the claim's, which stands after the evidence."""

    def __init__(self, folder: Path, dropout: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        self.decoder = config.model_type != "bert"
        options: dict[str, Any] = {} if self.decoder else {"add_pooling_layer": False, "hidden_dropout_prob": dropout}
        if not self.decoder:
            options["attention_probs_dropout_prob"] = 0.0
        self.encoder = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32, **options)
        self.encoder.get_input_embeddings().requires_grad_(False)
        if not self.decoder:
            self.encoder.embeddings.requires_grad_(False)
        self.head = nn.Linear(2 * config.hidden_size, 3)
        nn.init.zeros_(self.head.bias)
        if self.decoder:
            self.head.weight.data.mul_(0.2)

    def forward(self, pairs: Pairs) -> Tensor:
        longest = int(pairs.lengths.max())
        at = torch.arange(longest, device=pairs.ids.device)[None]
        mask, second = at < pairs.lengths[:, None], at >= pairs.seconds[:, None]
        given: dict[str, Any] = {"use_cache": False} if self.decoder else {"token_type_ids": (second & mask).long()}
        states = self.encoder(input_ids=pairs.ids[:, :longest], attention_mask=mask.long(), **given).last_hidden_state
        states = states.float()
        one = states[torch.arange(len(pairs), device=at.device), pairs.lengths - 1 if self.decoder else 0]
        read = (mask & second if self.decoder else mask).float()[..., None]
        joined = torch.cat([one, (states * read).sum(1) / read.sum(1).clamp(min=1)], 1)
        made: Tensor = self.head(functional.dropout(joined, 0.1, self.training))
        return made


# -- reading and writing


def write_pairs(file: Path, sets: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Sets of pairs: claim, evidence, label, weight."""
    with lzma.open(file, "wt", encoding="utf-8") as text:
        json.dump(
            {name: [[*pair[:2], int(pair[2]), float(pair[3])] for pair in some] for name, some in sets.items()}, text
        )


def tokens_of(folder: Path, pairs: Sequence[Sequence[Any]], device: str, *, decoder: bool) -> Pairs:
    """An encoder's pairs as `NumpyBert.encode_pairs` reads them: with three special tokens, a claim gets up to a half.
    A decoder gets the evidence first."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    claims, texts = (
        tokenizer([pair[side] for pair in pairs], add_special_tokens=False)["input_ids"] for side in (0, 1)
    )
    said = ("Evidence: ", "\nClaim: ", "\nThe evidence says that the claim is")
    if decoder:
        before, between, after = tokenizer(list(said), add_special_tokens=False)["input_ids"]
    else:
        before, between, after = [tokenizer.cls_token_id], [tokenizer.sep_token_id], [tokenizer.sep_token_id]
    room = TOKENS - len(before) - len(between) - len(after)
    ids = np.zeros((len(pairs), TOKENS), np.int64)
    lengths, seconds = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int64)
    for number, (claim, text) in enumerate(zip(claims, texts, strict=True)):
        claim = claim[: room // 2]
        text = text[: room - len(claim)]
        first, second = (text, claim) if decoder else (claim, text)
        row = [*before, *first, *between, *second, *after]
        ids[number, : len(row)] = row
        lengths[number], seconds[number] = len(row), len(before) + len(first) + (0 if decoder else len(between))
    labels, weights = np.array([pair[2] for pair in pairs]), np.array([pair[3] for pair in pairs], np.float32)
    return Pairs(*(torch.from_numpy(values).to(device) for values in (ids, lengths, seconds, labels, weights)))


def packed(weights: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[Any]]:
    """The file that `load_cross_encoder` reads: matrices of the encoder in int8 with a scale for each row."""
    made: dict[str, NDArray[Any]] = {}
    for name, values in weights.items():
        if values.ndim == 2 and not name.startswith("head"):
            scale = (np.maximum(np.abs(values).max(1), 1e-4) / 127).astype(np.float16)
            made[name] = np.clip((values / scale.astype(np.float32)[:, None]).round(), -127, 127).astype(np.int8)
            made[f"{name}.scale"] = scale
        else:
            made[name] = values.astype(np.float16)
    return made


def unpacked(stored: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """The weights in a file that `packed` made."""
    made = {name: values.astype(np.float32) for name, values in stored.items() if not name.endswith(".scale")}
    return {name: values * stored[f"{name}.scale"].astype(np.float32)[:, None] if f"{name}.scale" in stored else values
            for name, values in made.items()}  # fmt: skip


# -- learning


def loss_of(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each pair; of one that is only known not to support, of both other labels together."""
    named = functional.cross_entropy(
        outputs, labels.clamp(max=NOT_SUPPORTED - 1), reduction="none", label_smoothing=0.02
    )
    others = -torch.logsumexp(functional.log_softmax(outputs, 1)[:, 1:], 1)
    return torch.where(labels == NOT_SUPPORTED, others, named)


def learn(
    model: Reader,
    pairs: Pairs,
    tokens: int,
    rate: float,
    steps: int,
    soft: Tensor | None = None,
    labelled: int | None = None,
) -> None:
    """Learn for so many steps of about so many tokens. `rate` rises over 40 steps, then falls linearly to a twentieth.

    With `soft`, log-probabilities [pairs, 3], these are learned too, and only the first `labelled` pairs have labels.
    """
    model.train()
    torch.manual_seed(3)
    layers = [values for values in model.encoder.parameters() if values.requires_grad]
    groups = [{"params": layers, "lr": rate}, {"params": [*model.head.parameters()], "lr": HEAD_FASTER * rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 40) * max(0.05, 1 - 0.95 * step / steps)
    )
    lengths, draw, began = pairs.lengths.cpu().numpy(), np.random.default_rng(3), time.perf_counter()
    todo = (rows for _ in range(steps) for rows in steps_of(lengths, tokens, draw))
    for number, rows in zip(range(steps), todo, strict=False):
        some = pairs.of(rows)
        with torch.autocast(pairs.ids.device.type, torch.bfloat16, enabled=pairs.ids.is_cuda):
            outputs = model(some).float()
        loss = loss_of(outputs, some.labels)
        if soft is not None:
            known = torch.as_tensor(rows < (labelled or 0), device=outputs.device)
            answer = functional.log_softmax(outputs, 1)
            apart = functional.kl_div(answer, soft[rows], log_target=True, reduction="none").sum(1)
            loss = LABELS_SHARE * known * loss + apart
        optimizer.zero_grad()
        (loss * some.weights).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if number % 100 == 99:
            print(f"step {number + 1} of {steps}: {time.perf_counter() - began:.0f} s", flush=True)


def steps_of(lengths: NDArray[np.int64], tokens: int, draw: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """The rows of each step of an epoch: pairs of like length."""
    order, made = draw.permutation(len(lengths)), []
    for start in range(0, len(order), 4096):
        some = order[start : start + 4096]
        some = some[np.argsort(lengths[some], kind="stable")]
        rows: list[int] = []
        for row in some:
            if rows and (len(rows) + 1) * lengths[row] > tokens:
                made.append(np.array(rows))
                rows = []
            rows.append(row)
        made.append(np.array(rows))
    yield from (made[number] for number in draw.permutation(len(made)))


@torch.no_grad()
def answers(model: Reader, pairs: Pairs) -> Tensor:
    """Log-probabilities, shape [pairs, 3]."""
    model.eval()
    made = torch.zeros(len(pairs), 3, device=pairs.ids.device)
    for rows in steps_of(pairs.lengths.cpu().numpy(), 65_536, np.random.default_rng(0)):
        with torch.autocast(pairs.ids.device.type, torch.bfloat16, enabled=pairs.ids.is_cuda):
            made[rows] = functional.log_softmax(model(pairs.of(rows)).float(), 1)
    return made


@click.command()
@click.argument("work", type=click.Path(exists=True, path_type=Path))
@click.option("--student", "folder", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--teacher", "folders", required=True, multiple=True, type=click.Path(exists=True, path_type=Path))
@click.option("--steps", type=int, help="So many steps at most, to try it.")
def main(work: Path, folder: Path, folders: Sequence[Path], steps: int | None) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with lzma.open(work / PAIRS, "rt", encoding="utf-8") as text:
        sets: dict[str, list[Any]] = json.load(text)
    random.Random(8).shuffle(sets["pool"])
    groups = [name.removeprefix("judged ") for name in sets if name.startswith("judged ")]
    at_most = steps or 1_000_000
    taught: list[dict[str, tuple[Tensor, Tensor]]] = []
    for teacher in folders:
        model = Reader(teacher, ENCODER.dropout).to(device)
        course = DECODER if model.decoder else ENCODER
        read = {name: tokens_of(teacher, some, device, decoder=model.decoder) for name, some in sets.items()}
        learn(model, read["base"], course.tokens[0], course.rates[0], min(at_most, course.steps[0]))
        taught.append({"base": (answers(model, read["base"]), answers(model, read["pool"]))})
        start = {name: values.clone() for name, values in model.state_dict().items()}
        for group in groups:
            model.load_state_dict(start)
            judged = read[f"judged {group}"]
            learn(model, judged, course.tokens[1], course.rates[1], min(at_most, course.steps[1]))
            taught[-1][group] = answers(model, judged), answers(model, read["pool"].of(slice(POOLED)))
    model, course = Reader(folder, STUDENT.dropout).to(device), STUDENT
    read = {name: tokens_of(folder, some, device, decoder=False) for name, some in sets.items()}
    for stage, group in enumerate(["base", *groups]):
        if stage:
            model.load_state_dict(start)
        own = read[f"judged {group}" if stage else "base"]
        pool = read["pool"].of(slice(min(POOLED, len(own))) if stage else slice(None))
        both = Pairs(*(torch.cat(values) for values in zip(vars(own).values(), vars(pool).values(), strict=True)))
        said = torch.stack([torch.cat([one[group][0], one[group][1][: len(pool)]]) for one in taught]).mean(0)
        place = min(stage, 1)
        count = min(at_most, course.steps[place])
        soft = functional.log_softmax(said, 1)
        learn(model, both, course.tokens[place], course.rates[place], count, soft, len(own))
        if not stage:
            start = {name: values.clone() for name, values in model.state_dict().items()}
            continue
        weights = {name.removeprefix("encoder."): values.cpu().numpy() for name, values in model.state_dict().items()}
        save_file(packed(weights), work / f"{group}.safetensors")


if __name__ == "__main__":
    main()
