"""A corpus that can be learned: each document is about one thing, and claims name it by another word."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tiny_rerankers import make_encoder

from ccheck.core.types import Claim, Document
from ccheck.lab.train.retrieval_data import retrieval_data

if TYPE_CHECKING:
    import torch

THINGS = (
    "glacier:ice coral:reef vaccine:jab ocean:sea forest:tree carbon:soot insulin:sugar asthma:breath turbine:wind "
    "panel:solar battery:cell methane:gas malaria:fever statin:lipid rice:grain whale:fin aerosol:dust drought:dry "
    "pollen:flower bone:calcium"
).split()
FILLER = "we measured over ten years and the change was clear in all of the samples that were taken there"
TEXTS = tuple(f"{word} {other} {FILLER} rose fell study of" for word, other in (thing.split(":") for thing in THINGS))


def corpus() -> list[Document]:
    return [
        Document(
            f"d{number}-{part}",
            f"A long study of the {word} and of what was measured, part {part}",
            f"The {word} was studied in site {part} and in others. In the samples {FILLER}. "
            f"The {word} rose and later it fell in most of the years. No other cause was found in site {part} at all.",
        )
        for number, (word, _) in enumerate(thing.split(":") for thing in THINGS)
        for part in (1, 2)
    ]


def claims() -> list[Claim]:
    return [
        Claim(f"The {other} changed in part {part}.", f"c{number}-{part}")
        for number, (_, other) in enumerate(thing.split(":") for thing in THINGS)
        for part in (1, 2)
    ]


def qrels() -> dict[str, dict[str, int]]:
    return {f"c{number}-{part}": {f"d{number}-{part}": 1} for number in range(len(THINGS)) for part in (1, 2)}


def candidates(asked: Sequence[Claim], depth: int) -> Mapping[str, Mapping[str, float]]:
    """The same ranking for every claim: all documents."""
    ids = [document.id for document in corpus()][:depth]
    return {str(claim.id): {id_: 1.0 / place for place, id_ in enumerate(ids, 1)} for claim in asked}


DATA = retrieval_data(corpus(), claims(), qrels())


def bert(folder: Path) -> Path:
    """A plain encoder with dropout, without a pooling."""
    return make_encoder(folder, architecture="bert", texts=TEXTS, num_hidden_layers=2, hidden_dropout_prob=0.1)


def without_dropout(base: Path, folder: Path) -> Path:
    """A copy of a model whose steps are the same each time."""
    shutil.copytree(base, folder)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}))
    return folder


def share_apart(weights: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> float:
    """The share of weights that differ by a fiftieth of a step of .001 or more, without the biases of attention's keys.

    Adam's first step is the sign of the gradient. Where that is nearly 0, rounding decides: for the biases of keys, on
    which attention does not depend, and for one weight in thousands elsewhere.
    """
    compared = [name for name in others if not name.endswith("attention.self.key.bias")]
    apart = sum(int(((weights[name] - others[name]).abs() > 2e-5).sum()) for name in compared)
    return apart / sum(others[name].numel() for name in compared)
