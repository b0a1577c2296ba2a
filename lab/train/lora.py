"""Low-rank adaptation by peft, merged into plain weights at the end."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ...core.errors import UsageError
from .options import Lora

ATTENTION = frozenset(
    "q_proj k_proj v_proj qkv_proj query key value query_proj key_proj value_proj Wqkv q_lin k_lin v_lin".split()
)
"""How architectures call the maps to queries, keys and values."""


def add_lora(model: Any, wanted: Lora, also: Iterable[Any] = ()) -> Any:
    """Freeze a model except for low-rank additions to its linear maps, and the parameters of `also`.

    Changes the model in place; returns what `merged` needs. Raises UsageError for modules that the model lacks.
    """
    import peft
    import torch

    names = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    targets = set(wanted.modules) or names & ATTENTION
    if not targets or not targets <= names:
        missing = ", ".join(sorted(targets - names)) or "attention"
        raise UsageError(f"lora: the model has no linear layer {missing}. It has {', '.join(sorted(names))}")
    layers = model.config.get_text_config().num_hidden_layers
    if wanted.last_layers is not None and wanted.last_layers > layers:
        raise UsageError(f"lora: the model has {layers} layers, not {wanted.last_layers}")
    chosen = targets if wanted.last_layers is None else _in_layers(model, targets, layers - wanted.last_layers)
    config = peft.LoraConfig(
        r=wanted.r,
        lora_alpha=wanted.alpha,  # type: ignore[arg-type, unused-ignore] # peft divides it, whole or not
        lora_dropout=wanted.dropout,
        target_modules=sorted(chosen),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peft about transformers: nothing that a user could change
        adapted = peft.get_peft_model(model, config)
    for part in also:
        part.requires_grad_(True)
    return adapted


def _in_layers(model: Any, targets: Iterable[str], first: int) -> set[str]:
    """The whole names of the layers' modules, from the layer `first` on.

    Not by peft's own setting, which wants a name before that of the list of layers, as models with a head have:
    `model.layers.0`, but not `layers.0`.
    """
    found = set()
    for name, _ in model.named_modules():
        number = next((int(part) for part in name.split(".") if part.isdecimal()), -1)
        if name.rpartition(".")[2] in targets and number >= first:
            found.add(name)
    return found


def merged(adapted: Any) -> Any:
    """The plain model with what was learned added to its weights."""
    return adapted.merge_and_unload()
