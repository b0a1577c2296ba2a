"""One optimisation step of a stance training, held to plain torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from runtimes import on_cpu
from tiny_rerankers import make_encoder
from weights import saved_weights

from ccheck.lab.measure.rows import StanceRow
from ccheck.lab.train.folders import Output
from ccheck.lab.train.options import StanceOptions
from ccheck.lab.train.stance import train_stance
from ccheck.lab.train.stance_data import StanceData
from ccheck.verdict.labels import STANCES

LABELS = ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "SUPPORTS", "SUPPORTS", "REFUTES", "SUPPORTS", "NOT_ENOUGH_INFO")
ROWS = tuple(
    StanceRow(f"the sea rises in year {n}", f"We saw no change in place {n * n}.", label, f"c{n}", f"d{n}", "A title")
    for n, label in enumerate(LABELS)
)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A model with a head of its own, without dropout, so that a step is the same each time."""
    folder = make_encoder(
        tmp_path_factory.mktemp("base") / "bert",
        architecture="bert",
        texts=[f"{row.claim} {row.title} {row.text}" for row in ROWS],
        num_hidden_layers=2,
        labels=3,
        id2label=dict(enumerate(STANCES)),
        label2id={label: number for number, label in enumerate(STANCES)},
    )
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def stepped(base: Path, folder: Path, **changed) -> dict[str, torch.Tensor]:
    """The weights after one epoch of one step on all rows."""
    options = StanceOptions(
        **{
            "base": str(base),
            "epochs": 1,
            "batch": len(ROWS),
            "learning_rate": 1e-3,
            "schedule": "constant",
            "warmup": 0,
            "weight_decay": 0.1,
            "clip": 0.05,
            "precision": "float32",
            "max_tokens": 64,
            "balanced": False,
            "class_weights": True,
            "gamma": 2.0,
            **changed,
        }
    )
    train_stance(StanceData(ROWS, ROWS, {"rows": ROWS}), options, Output(folder), on_cpu())
    return saved_weights(folder / "model.safetensors")


def test_a_step_is_that_of_plain_torch(base, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    found = stepped(base, tmp_path / "model")
    model = AutoModelForSequenceClassification.from_pretrained(base).train()
    tokenizer = AutoTokenizer.from_pretrained(base)
    decayed = [p for name, p in model.named_parameters() if not name.endswith("bias") and "LayerNorm" not in name]
    others = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}], lr=1e-3
    )
    inputs = tokenizer(
        [f"{row.title}. {row.text}" for row in ROWS],
        [row.claim for row in ROWS],
        padding=True,
        return_tensors="pt",
    )
    p = model(**inputs).logits.softmax(-1)
    # 4, 2 and 2 pairs: inverses 1/4, 1/2, 1/2, which sum to 5/4.
    alpha = torch.tensor([0.6, 1.2, 1.2])
    y = torch.tensor([STANCES.index(label) for label in LABELS])
    of_label = p[torch.arange(len(LABELS)), y]
    loss = (-alpha[y] * (1 - of_label) ** 2 * of_label.log()).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    assert norm > 0.05  # else clipping is not tested
    optimizer.step()
    moved = 0
    for name, parameter in model.named_parameters():
        # Adam's first step is the sign of the gradient, so what is nearly no gradient says nothing.
        sure = parameter.grad.abs() > 1e-6
        moved += int(sure.sum())
        assert torch.allclose(found[name][sure], parameter.detach()[sure], atol=2e-5), name
    assert moved > 1000
