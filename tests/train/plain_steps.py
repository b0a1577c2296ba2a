"""What trainers are held to: a step of training in plain torch, and the tokenizer of the model they began with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def refuse_another_step(
    found: Mapping[str, torch.Tensor],
    model: torch.nn.Module,
    loss: torch.Tensor,
    weight_decay: float = 0.0,
    clip: float = 100.0,
) -> None:
    """Fails unless the weights that were found are those of the model after one step of AdamW on this loss.

    Adam's first step is the sign of the gradient, so what is nearly no gradient says nothing.
    """
    named = dict(model.named_parameters())
    decayed = {name for name in named if not name.endswith("bias") and "LayerNorm" not in name}
    groups = [
        {"params": [named[name] for name in decayed], "weight_decay": weight_decay},
        {"params": [named[name] for name in named.keys() - decayed], "weight_decay": 0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    assert clip == 100.0 or norm > clip, "else clipping is not tested"
    optimizer.step()
    moved = 0
    for name, parameter in named.items():
        sure = parameter.grad.abs() > 1e-5 * min(1.0, clip)
        moved += int(sure.sum())
        assert torch.allclose(found[name][sure], parameter.detach()[sure], atol=2e-5), name
    assert moved > 1000


def tokenizer_of(folder: Path) -> dict[str, Any]:
    """What decides how the folder's tokenizer reads a text: in training, special tokens in texts are read as words."""
    saved = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return {part: saved[part] for part in ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")}
