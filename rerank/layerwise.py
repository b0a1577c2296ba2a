"""bge-reranker-v2-minicpm-layerwise: a decoder with a head of its own after each layer, so that it can stop early.

MiniCPM is Llama with factors: embeddings times `scale_emb`, what each layer adds times `scale_depth` over the root of
the number of layers (Hu et al. 2024, "MiniCPM"). The heads are one row each, without a factor: the score after layer c
is `lm_head[c - start_layer]` of the normalised state at the last id. The model's own code is not run; FlagEmbedding's
copy of it (`LayerWiseMiniCPMForCausalLM`) is what this was compared with.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InvalidData, UsageError
from .padding import Padded, places

if TYPE_CHECKING:
    import torch

ARCHITECTURE = "LayerWiseMiniCPMForCausalLM"


def check(name: str, settings: dict[str, Any], cutoff_layer: int | None) -> int:
    """The layer that scores, by default the last. Raises UsageError or InvalidData if it has no head."""
    first, last = settings.get("start_layer", 8), settings["num_hidden_layers"]
    if settings.get("head_type", "simple") != "simple" or not settings.get("head_multi", True):
        raise InvalidData(f"ccheck can't use {name}: its heads differ from those of bge-reranker-v2-minicpm-layerwise")
    if settings.get("rope_scaling") is not None:
        raise InvalidData(f"ccheck can't use {name}: it scales its rotary positions, as no known layerwise model does")
    if cutoff_layer is not None and not first <= cutoff_layer <= last:
        raise UsageError(f"cutoff_layer is {cutoff_layer}: {name} can score after layers {first} to {last}")
    return cutoff_layer or int(last)


def llama(settings: dict[str, Any], layer: int) -> Any:
    """The configuration of the decoder up to the layer that scores. The layers above are not loaded."""
    from transformers import LlamaConfig

    known = {name: value for name, value in settings.items() if name not in ("model_type", "rope_scaling", "auto_map")}
    return LlamaConfig(**known | {"num_hidden_layers": layer})


def forward(body: Any, path: Path, settings: dict[str, Any], layer: int, batch_tokens: int) -> Padded:
    """The forward pass of this decoder, and the head that scores.

    `settings`: what config.json says. Raises InvalidData if the head is missing or of another shape.
    """
    import torch
    from safetensors import safe_open

    name = f"lm_head.{layer - settings.get('start_layer', 8)}.linear_head.weight"
    head = None
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:
            if name in stored.keys():  # noqa: SIM118 - not a dict
                head = stored.get_tensor(name)
    if head is None or head.shape != (1, body.config.hidden_size):
        raise InvalidData(f"{path} lacks the head with one row after layer {layer} ({name})")
    # What each layer adds is scaled: in the maps that make it, since they are linear.
    scale = settings.get("scale_depth", 1) / math.sqrt(settings["num_hidden_layers"])
    row, embed_scale = head[0].to(body.device, body.dtype).float(), float(settings.get("scale_emb", 1))
    with torch.no_grad():
        for one in body.layers:
            one.self_attn.o_proj.weight *= scale
            one.mlp.down_proj.weight *= scale

    def score(given: dict[str, Any]) -> torch.Tensor:
        mask, embedded = given["attention_mask"], body.embed_tokens(given["input_ids"]) * embed_scale
        found = body(inputs_embeds=embedded, attention_mask=mask, position_ids=places(given), use_cache=False)
        scores: torch.Tensor = found.last_hidden_state[:, -1].float() @ row
        return scores

    return Padded(score, body.device, batch_tokens, left=True)
