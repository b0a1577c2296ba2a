"""A Qwen2 with random weights as sentence-transformers saves it, and its vectors as the paper's code computes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LAYERS = 9
HEADS, KEYS, SIZE = 4, 2, 64


def make_qwen2(folder: Path, *, causal: bool | None = False, seed: int = 0) -> Path:
    """An embedding model like INF-Retriever-v1: the last token's state. `causal` is `is_causal` of its configuration.

    Its name and layout are those of the published model, whose own code makes attention bidirectional.
    """
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = {letter: number for number, letter in enumerate(["<|endoftext|>", *sorted(ByteLevel.alphabet())])}
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=[], model_max_length=128)
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=SIZE,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        max_position_embeddings=128,
        initializer_range=0.2,
        pad_token_id=0,
        eos_token_id=0,
        bos_token_id=None,
    )
    if causal is not None:
        config.is_causal = causal
    body = folder.with_name(f"{folder.name}-body")
    model = transformers.Qwen2Model(config)
    with torch.no_grad():  # so that a state depends on the other tokens, and not on its own alone
        for layer in model.layers:
            layer.self_attn.o_proj.weight *= 5
    model.save_pretrained(body)
    tokenizer.save_pretrained(body)
    transformer = Transformer(str(body), max_seq_length=128)
    pooling = Pooling(SIZE, pooling_mode="lasttoken")
    SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu").save(str(folder))
    return folder


def reference(folder: Path, texts: Sequence[str], *, causal: bool) -> np.ndarray:
    """Unit vectors of the texts, each alone, by numpy from the weights: Qwen2 with or without a causal mask."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    weights = {name.removeprefix("model."): value for name, value in load_file(folder / "model.safetensors").items()}
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    return np.stack([_vector(weights, config, tokenizer.encode(text).ids, causal) for text in texts])


def _vector(weights: dict[str, np.ndarray], config: dict[str, Any], ids: list[int], causal: bool) -> np.ndarray:
    wide = SIZE // HEADS
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    angles = np.outer(np.arange(len(ids)), theta ** (-np.arange(0, wide, 2) / wide))
    cos, sin = (np.concatenate([part(angles)] * 2, axis=1)[:, None] for part in (np.cos, np.sin))
    barred = np.triu(np.full((len(ids), len(ids)), -np.inf), 1) if causal else 0.0

    def rotated(states: np.ndarray) -> np.ndarray:
        half = wide // 2
        return states * cos + np.concatenate([-states[..., half:], states[..., :half]], axis=-1) * sin

    def normed(states: np.ndarray, name: str) -> np.ndarray:
        scale = np.sqrt((states**2).mean(-1, keepdims=True) + config["rms_norm_eps"])
        return states / scale * weights[f"{name}.weight"]

    def linear(states: np.ndarray, name: str) -> np.ndarray:
        return states @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    states = weights["embed_tokens.weight"][ids].astype(np.float64)
    for number in range(LAYERS):
        layer = f"layers.{number}"
        inner = normed(states, f"{layer}.input_layernorm")
        query = rotated(linear(inner, f"{layer}.self_attn.q_proj").reshape(len(ids), HEADS, wide))
        key = rotated(linear(inner, f"{layer}.self_attn.k_proj").reshape(len(ids), KEYS, wide))
        value = linear(inner, f"{layer}.self_attn.v_proj").reshape(len(ids), KEYS, wide)
        key, value = (np.repeat(part, HEADS // KEYS, axis=1) for part in (key, value))
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(wide) + barred
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", shares, value).reshape(len(ids), SIZE)
        states = states + linear(mixed, f"{layer}.self_attn.o_proj")
        inner = normed(states, f"{layer}.post_attention_layernorm")
        gate = linear(inner, f"{layer}.mlp.gate_proj")
        states = states + linear(
            gate / (1 + np.exp(-gate)) * linear(inner, f"{layer}.mlp.up_proj"), f"{layer}.mlp.down_proj"
        )
    last = normed(states, "norm")[-1]
    return last / np.linalg.norm(last)
