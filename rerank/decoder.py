"""Rerankers that are causal language models: the score is the logit of `Yes` after a prompt.

`PackedDecoder` computes what bge-reranker-v2-gemma's FlagLLMReranker does, without its padding, with the query's part
once for all passages, and with the last layer and the head where they count: at the last position. Gemma, Llama,
Mistral and Qwen2 share that arithmetic (pre-norm, rotary positions, gated feed-forward); `PaddedDecoder` is for any
other model, by its own forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .packing import Row, attend, attend_last, best_of_windows, feed_forward, rows
from .tokens import PromptPairs
from .types import Encoded
from .values import finite

if TYPE_CHECKING:
    import torch

PACKED = ("GemmaForCausalLM", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
"""Architectures whose arithmetic is the one below; each is compared with transformers' own by a test."""
POSITIONWISE_ROPE = ("default", "linear", "llama3")


class PackedDecoder:
    """A causal model of one of the architectures in `PACKED`."""

    logits = True

    def __init__(self, name: str, model: Any, pairs: PromptPairs, yes: int, batch_tokens: int) -> None:
        """`yes` is the id whose logit scores; `batch_tokens` the ids in one forward pass."""
        self.name = name
        self._pairs, self._batch_tokens = pairs, batch_tokens
        self._body = model.model
        # All that is needed of the head. Float32, for what one row costs.
        self._head = model.lm_head.weight[yes].detach().float()
        self._embed_scale = embedding_scale(model)

    def encode(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        return self._pairs(query, passages)

    def score(self, encoded: Sequence[Encoded]) -> list[float]:
        return finite(self.name, best_of_windows(encoded, self._score))

    def _score(self, sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]) -> list[float]:
        values = [0.0] * len(sequences)
        for row in rows(sequences, prefixes, self._batch_tokens):
            states = last_states(self._body, row, self._body.layers, embed_scale=self._embed_scale)
            for i, value in zip(row.members, (states.float() @ self._head).tolist(), strict=True):
                values[i] = value
        return values


def embedding_scale(model: Any) -> float:
    """By what embeddings are multiplied: Gemma's by the root of their size, which transformers 5 does in the layer."""
    inside = hasattr(model.model.embed_tokens, "scalar_embed_scale")
    return model.config.hidden_size**0.5 if model.config.model_type == "gemma" and not inside else 1.0


def last_states(
    body: Any, row: Row, layers: Sequence[Any], *, embed_scale: float = 1.0, residual_scale: float = 1.0
) -> torch.Tensor:
    """The normalised states after some layers at the last id of each sequence: [sequences, size].

    `body` has `embed_tokens`, `rotary_emb` and `norm`; what a layer adds is multiplied by `residual_scale`.
    """
    import torch

    with torch.inference_mode():
        device = body.embed_tokens.weight.device
        x = body.embed_tokens(torch.tensor(row.ids, device=device))
        if embed_scale != 1:
            x = x * torch.tensor(embed_scale, dtype=x.dtype)
        cos, sin = (t[0, :, None] for t in body.rotary_emb(x[None], torch.tensor([row.positions], device=device)))
        last = torch.tensor([span.end - 1 for span in row.spans], device=device)
        x = x.clone()
        for layer in layers[:-1]:
            attention = layer.self_attn
            h = layer.input_layernorm(x)
            q, k, v = (_heads(part(h), attention.head_dim) for part in _projections(attention))
            out = attend(_rotate(q, cos, sin), _rotate(k, cos, sin), v, row, scale=attention.scaling, causal=True)
            x += _scaled(attention.o_proj(out.flatten(1)), residual_scale)
            feed_forward(x, _feed_forward(layer, residual_scale))
        # Of the last layer, keys and values everywhere; queries, output and feed-forward at the last ids only.
        layer = layers[-1]
        attention = layer.self_attn
        h = layer.input_layernorm(x)
        k, v = (_heads(part(h), attention.head_dim) for part in _projections(attention)[1:])
        q = _heads(attention.q_proj(h[last]), attention.head_dim)
        out = attend_last(_rotate(q, cos[last], sin[last]), _rotate(k, cos, sin), v, row, scale=attention.scaling)
        x = x[last] + _scaled(attention.o_proj(out.flatten(1)), residual_scale)
        feed_forward(x, _feed_forward(layer, residual_scale))
        states: torch.Tensor = body.norm(x)
        return states


def _projections(attention: Any) -> tuple[Any, Any, Any]:
    return attention.q_proj, attention.k_proj, attention.v_proj


def _heads(t: torch.Tensor, size: int) -> torch.Tensor:
    return t.view(t.shape[0], -1, size)


def _scaled(t: torch.Tensor, scale: float) -> torch.Tensor:
    return t if scale == 1 else t * scale


def _feed_forward(layer: Any, scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda part: _scaled(layer.mlp(layer.post_attention_layernorm(part)), scale)


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


class PaddedDecoder:
    """Any causal model, by its own forward pass, padded on the left; those of like length in one pass."""

    logits = True

    def __init__(self, name: str, model: Any, pairs: PromptPairs, yes: int, batch_tokens: int) -> None:
        self.name = name
        self._model, self._pairs, self._yes, self._batch_tokens = model, pairs, yes, batch_tokens

    def encode(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        return self._pairs(query, passages)

    def score(self, encoded: Sequence[Encoded]) -> list[float]:
        return finite(self.name, best_of_windows(encoded, self._score))

    def _score(self, sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]) -> list[float]:
        import torch

        values = [0.0] * len(sequences)
        for batch in by_length(sequences, self._batch_tokens):
            ids, mask = padded([sequences[i] for i in batch], 0, left=True)
            places = (mask.cumsum(1) - 1).clamp(min=0)
            with torch.inference_mode():
                device = self._model.device
                logits = self._model(
                    input_ids=ids.to(device),
                    attention_mask=mask.to(device),
                    position_ids=places.to(device),
                    logits_to_keep=1,
                    use_cache=False,
                ).logits[:, -1, self._yes]
            for i, value in zip(batch, logits.float().tolist(), strict=True):
                values[i] = value
        return values


def by_length(sequences: Sequence[tuple[int, ...]], tokens: int) -> list[list[int]]:
    """Which sequences go together, the longest first, so that a batch has at most `tokens` ids with its padding."""
    batches: list[list[int]] = []
    for i in sorted(range(len(sequences)), key=lambda i: -len(sequences[i])):
        if batches and (len(batches[-1]) + 1) * len(sequences[batches[-1][0]]) <= tokens:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def padded(
    sequences: Sequence[Sequence[int]], padding: int, *, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask, [sequences, longest]."""
    import torch

    width = max(map(len, sequences))
    ids = torch.full((len(sequences), width), padding)
    mask = torch.zeros_like(ids)
    for i, sequence in enumerate(sequences):
        place = slice(width - len(sequence), width) if left else slice(0, len(sequence))
        ids[i, place] = torch.tensor(sequence)
        mask[i, place] = 1
    return ids, mask
