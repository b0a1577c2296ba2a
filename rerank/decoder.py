"""Rerankers that are causal language models: the score is the logit of `Yes` after a prompt, or that minus another.

`PackedDecoder` computes what bge-reranker-v2-gemma's FlagLLMReranker does, without its padding, with the query's part
once for all passages, and with the last layer and the head where they count: at the last position. Gemma, Llama,
Mistral and Qwen2 share that arithmetic (pre-norm, rotary positions, gated feed-forward). Any other model runs its own
forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .linear import joined, rounded, slices
from .packing import PackedRow, rows, states_at
from .padding import Padded

if TYPE_CHECKING:
    import torch

PACKED = ("GemmaForCausalLM", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
"""Architectures whose arithmetic is the one below; each is compared with transformers' own by a test."""
POSITIONWISE_ROPE = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class PackedDecoder:
    """The forward pass of a decoder whose arithmetic is that of `Layers`.

    `head`: the row of the head that scores, float32, [size]. `batch_tokens`: the ids in one forward pass.
    """

    layers: Layers
    head: torch.Tensor
    batch_tokens: int

    def __call__(self, sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]) -> Iterator[tuple[int, float]]:
        for row in rows(sequences, prefixes, self.batch_tokens):
            values = self.layers.last_states(row).float() @ self.head
            yield from zip(row.members, values.tolist(), strict=True)


def packed(model: Any, yes: int, no: int | None, batch_tokens: int) -> PackedDecoder:
    """For a causal model of one of the architectures in `PACKED`. `yes` is the id whose logit scores, minus that of
    `no` where there is one."""
    layers = Layers(model.model, embed_scale=embedding_scale(model))
    # One or two rows of the head are all that scores need, so float32 costs little.
    rows_of_head = model.lm_head.weight.detach()
    head = rows_of_head[yes].float() - (0 if no is None else rows_of_head[no].float())
    return PackedDecoder(layers, head, batch_tokens)


def embedding_scale(model: Any) -> float:
    """The factor of the embeddings: for Gemma the root of their size, which transformers 5 applies in the layer."""
    inside = hasattr(model.model.embed_tokens, "scalar_embed_scale")
    return model.config.hidden_size**0.5 if model.config.model_type == "gemma" and not inside else 1.0


class Layers:
    """The layers of a body with `embed_tokens`, `rotary_emb`, `layers` and `norm`, which are changed for it."""

    def __init__(self, body: Any, *, embed_scale: float = 1.0, residual_scale: float = 1.0) -> None:
        """`residual_scale` multiplies what each layer adds, `embed_scale` the embeddings."""
        self._body, self._embed_scale = body, embed_scale
        last = len(body.layers) - 1
        self._layers = [_Layer(layer, residual_scale, apart=i == last) for i, layer in enumerate(body.layers)]

    def last_states(self, row: PackedRow) -> torch.Tensor:
        """The normalised states at the last id of each sequence: [sequences, size]."""
        import torch

        with torch.inference_mode():
            body = self._body
            device = body.embed_tokens.weight.device
            empty = rounded(len(row.ids), device) - len(row.ids)
            x = body.embed_tokens(torch.tensor(row.ids + [row.ids[-1]] * empty, device=device))
            x = x * torch.tensor(self._embed_scale, dtype=x.dtype)
            places = torch.tensor([row.positions + [0] * empty], device=device)
            rotary = tuple(t[0, :, None] for t in body.rotary_emb(x[None], places))
            ends = [span.end - 1 for span in row.spans]
            states: torch.Tensor = body.norm(states_at(ends, self._layers, x, row, rotary=rotary, causal=True))
            return states


class _Layer:
    """A layer's maps; with `apart`, its queries apart from its keys and values."""

    def __init__(self, layer: Any, residual_scale: float, *, apart: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._size, self.scale, self._residual_scale = attention.head_dim, attention.scaling, residual_scale
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        self._sizes = [len(part.weight) // self._size for part in parts][1 if apart else 0 :]
        if apart:
            self._queries = joined(parts[:1])
        self._attention = joined(parts[1:] if apart else parts)
        self._out = joined([attention.o_proj])
        self._gate = joined([mlp.gate_proj], mlp.act_fn)
        self._up, self._down = joined([mlp.up_proj]), joined([mlp.down_proj])
        self._first_norm, self._second_norm = layer.input_layernorm, layer.post_attention_layernorm

    def heads(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values, the first two rotated, or keys and values alone: [tokens, heads, size]."""
        import torch

        turned = sum(self._sizes[:-1])
        found = x.new_empty(len(x), sum(self._sizes), self._size)
        for some in slices(x):
            part = _heads(self._attention(self._first_norm(x[some])), self._size)
            found[some, turned:] = part[:, turned:]
            found[some, :turned] = _rotate(part[:, :turned], cos[some], sin[some])
        return torch.split(found, self._sizes, 1)

    def query(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """The queries of a layer that has them apart."""
        return _rotate(_heads(self._queries(self._first_norm(x)), self._size), cos, sin)

    def add(self, x: torch.Tensor, attended: torch.Tensor) -> None:
        """To x in place what the layer makes of it after attention."""
        for some in slices(x):
            part = x[some]
            part += _scaled(self._out(attended[some].flatten(1)), self._residual_scale)
            h = self._second_norm(part)
            inner = self._gate(h)
            inner *= self._up(h)
            part += _scaled(self._down(inner), self._residual_scale)


def _heads(t: torch.Tensor, size: int) -> torch.Tensor:
    return t.view(t.shape[0], -1, size)


def _scaled(t: torch.Tensor, scale: float) -> torch.Tensor:
    return t if scale == 1 else t * scale


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def packs(config: Any, longest: int) -> bool:
    """Whether a model's arithmetic is that of `PackedDecoder` for sequences of up to `longest` ids."""
    if (config.architectures or [""])[0] not in PACKED:
        return False
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type", rope.get("type", "default")) not in POSITIONWISE_ROPE:
        return False
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    return not getattr(config, "use_bidirectional_attention", None) and (window is None or longest <= window)


def own(model: Any, yes: int, no: int | None, batch_tokens: int) -> Padded:
    """The same score by the forward pass of any causal model."""

    def score(given: dict[str, Any]) -> torch.Tensor:
        places = (given["attention_mask"].cumsum(1) - 1).clamp(min=0)
        logits = model(**given, position_ids=places, logits_to_keep=1, use_cache=False).logits[:, -1].float()
        scores: torch.Tensor = logits[:, yes] - (0 if no is None else logits[:, no])
        return scores

    return Padded(score, model.device, batch_tokens, left=True)
