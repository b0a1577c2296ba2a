"""Low-rank adaptation by peft, merged into plain weights at the end."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.errors import UsageError
from .options import Lora

ATTENTION = frozenset(
    "q_proj k_proj v_proj qkv_proj query key value query_proj key_proj value_proj Wqkv q_lin k_lin v_lin".split()
)
"""How architectures call the maps to queries, keys and values."""


def add_lora(model: Any, wanted: Lora) -> Any:
    """Freeze a model except for low-rank additions to its linear maps.

    Changes the model in place; `merge_and_unload` of what it returns adds them to the weights. Raises UsageError for
    modules that the model lacks.
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
    # Names are like `encoder.layer.11.attention.self.query`. peft's own setting of layers misses those that begin with
    # the list of layers: `layers.11.self_attn.q_proj`.
    numbers = "|".join(map(str, range(layers - (wanted.last_layers or layers), layers)))
    config = peft.LoraConfig(
        r=wanted.r,
        lora_alpha=wanted.alpha,  # type: ignore[arg-type, unused-ignore] # peft divides it, whole or not
        lora_dropout=wanted.dropout,
        target_modules=rf"(\D*\.)?({numbers})\.(.*\.)?({'|'.join(sorted(targets))})",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peft about transformers: nothing that a user could change
        return peft.get_peft_model(model, config)
