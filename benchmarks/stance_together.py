"""The packaged stance model's second half: adapters that read claim and evidence, and how their answers and those of
the counts are put together. `benchmarks/packaged_stance.py` calls it.

An adapter takes long to make. Each is kept in the folder `work`, under a name that says what it was made without and
has a digest of its pairs, its settings, the embedding model and the code, so that none is taken for another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from stance_pairs import FirstPairs, Judged, judged_pairs

from ccheck.core.models import fingerprint
from ccheck.encode.bert_folder import read_bert_folder
from ccheck.encode.numpy_bert import load_cross_encoder
from ccheck.verdict.packaged_model import Together, put_together

FIRST = {"most": 144, "rate": 1.3e-3, "warm": 40, "stop": 600}
SECOND = {"most": 160, "rate": 6e-4, "epochs": 2, "decay": 0.05, "smoothing": 0.05, "dropout": 0.1, "seed": 3}
TOKENS = 160
OPEN_ABOVE = 0.7
MADE_BY = ("stance_adapter.py", "stance_findings.py", "stance_pairs.py", "stance_together.py")
"""The files whose code decides what an adapter becomes."""


class Reading(NamedTuple):
    """What adapters are made from: judged pairs of SciFact and Climate-FEVER, the pairs that come before, the folder of
    the embedding model, and where adapters are kept."""

    judged: tuple[list[Judged], list[Judged]]
    first: FirstPairs
    model: Path
    work: Path


def read_out(reading: Reading, file: Path, asked: Sequence[NDArray[np.bool_]]) -> list[NDArray[np.float32]]:
    """For each data set an adapter's outputs for the pairs that are asked, shape [pairs, 3]."""
    folder = read_bert_folder(reading.model)
    assert folder is not None
    read = load_cross_encoder(folder, file, TOKENS)
    return [
        read([(row.claim, row.evidence) for row, one in zip(rows, mask, strict=True) if one])
        for rows, mask in zip(reading.judged, asked, strict=True)
    ]


def adapter(reading: Reading, name: str, learn_from: Sequence[NDArray[np.bool_]]) -> Path:
    """The file of an adapter, made if it is not there yet."""
    some = [
        [row for row, one in zip(rows, mask, strict=True) if one]
        for rows, mask in zip(reading.judged, learn_from, strict=True)
    ]
    pairs = [*reading.first.fever, *reading.first.abstracts, *reading.first.findings]
    begun = digest(reading.model, FIRST, pairs)
    file = reading.work / f"{name}-{digest(reading.model, begun, SECOND, some)}.safetensors"
    if file.exists():
        return file
    import torch
    from safetensors.numpy import save_file
    from safetensors.torch import load_file as load_state
    from safetensors.torch import save_file as save_state
    from stance_adapter import learn, stored

    reading.work.mkdir(parents=True, exist_ok=True)
    before = reading.work / f"first-{begun}.state"
    if not before.exists():
        save_state(learn(reading.model, pairs, **FIRST), before)
    start: dict[str, torch.Tensor] = load_state(before)
    if any(some):
        pairs = judged_pairs(*some, reading.first)
        print(f"adapter {name}: {len(pairs):,} pairs", flush=True)
        start = learn(reading.model, pairs, start, **SECOND)
    save_file(stored(start), file)
    return file


def digest(model: Path, *made_from: object) -> str:
    """Of an embedding model, of what something is made from, and of the code that makes it."""
    code = [(Path(__file__).parent / name).read_bytes() for name in MADE_BY]
    return hashlib.sha256(repr((fingerprint(model), made_from, code)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Answered(NamedTuple):
    """Of the pairs of a data set: the counts' probabilities, the adapter's outputs, and the labels."""

    counted: NDArray[np.float64]
    read: NDArray[np.float32]
    labels: NDArray[np.int64]


def fit_together(sets: Sequence[Answered]) -> Together:
    """The weights by which the true labels of pairs that neither learned from are likeliest. Each data set counts the
    same."""

    def loss(values: NDArray[np.float64]) -> float:
        total = 0.0
        for some in sets:
            made = put_together(some.counted, some.read, _together(values))
            total -= float(np.log(made[np.arange(len(made)), some.labels]).mean())
        return total

    return _together(minimize(loss, (0.7, 0.4), bounds=((0, 5), (0, 5)), method="L-BFGS-B").x.round(3))


def _together(values: NDArray[np.float64]) -> Together:
    return Together(tokens=TOKENS, open_above=OPEN_ABOVE, counts=float(values[0]), reader=float(values[1]))
