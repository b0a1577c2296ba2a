"""Layerwise MiniCPM: the arithmetic of its published code, written out; FlagEmbedding's where it still runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from reranker_pairs import plain_ids, score
from tiny_rerankers import TEXTS, load_scorer, make_layerwise

from ccheck.core.errors import InvalidData, UsageError

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")
PASSAGES = [*TEXTS, "", "sea " * 400, "x\x00😀"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_layerwise(tmp_path_factory.mktemp("layerwise"), rope_theta=5000.0)


def plain_score(folder: Path, ids: list[int], layer: int) -> float:
    """The score of one sequence, in float64."""
    import torch
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    weights = {
        name: weight.double() for file in folder.glob("*.safetensors") for name, weight in load_file(file).items()
    }
    heads = config["num_attention_heads"]
    size = config["hidden_size"] // heads
    scale = config["scale_depth"] / math.sqrt(config["num_hidden_layers"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[f"{name}.weight"]

    frequencies = config["rope_theta"] ** -(torch.arange(0, size, 2).double() / size)
    angles = torch.outer(torch.arange(len(ids)).double(), frequencies).repeat(1, 2)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        half = torch.cat((-x[..., size // 2 :], x[..., : size // 2]), -1)
        return x * angles.cos() + half * angles.sin()

    x = weights["model.embed_tokens.weight"][ids] * config["scale_emb"]
    hidden = torch.full((len(ids), len(ids)), -math.inf).triu(1).double()
    for i in range(layer):
        name = f"model.layers.{i}"
        h = norm(x, f"{name}.input_layernorm")
        q, k, v = (
            (h @ weights[f"{name}.self_attn.{part}_proj.weight"].T).view(len(ids), heads, size).transpose(0, 1)
            for part in "qkv"
        )
        seen = (rotate(q) @ rotate(k).transpose(1, 2) / math.sqrt(size) + hidden).softmax(-1) @ v
        x = x + scale * (seen.transpose(0, 1).flatten(1) @ weights[f"{name}.self_attn.o_proj.weight"].T)
        h = norm(x, f"{name}.post_attention_layernorm")
        gate, up = (h @ weights[f"{name}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + scale * ((gate * gate.sigmoid() * up) @ weights[f"{name}.mlp.down_proj.weight"].T)
    head = weights[f"lm_head.{layer - config['start_layer']}.linear_head.weight"]
    return (norm(x, "model.norm")[-1] @ head[0]).item()


@pytest.mark.parametrize("layer", [3, 4, 5, None])
def test_scores_are_those_of_the_published_arithmetic(folder: Path, layer: int | None) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    scorer = load_scorer(str(folder), device="cpu", max_tokens=64, cutoff_layer=layer, batch_tokens=200)
    expected = [plain_score(folder, plain_ids(tokenizer, "sea level", text, 64), layer or 5) for text in PASSAGES]
    assert score(scorer, "sea level", PASSAGES) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("layer", [1, 2, 6])
def test_a_layer_without_a_head_is_refused(folder: Path, layer: int) -> None:
    with pytest.raises(UsageError, match="after layers 3 to 5"):
        load_scorer(str(folder), device="cpu", cutoff_layer=layer)


@pytest.mark.parametrize("config", [{"head_type": "complex"}, {"head_multi": False}, {"rope_scaling": {"type": "x"}}])
def test_heads_and_positions_of_another_kind_are_refused(tmp_path: Path, config: dict[str, object]) -> None:
    with pytest.raises(InvalidData, match="can't use"):
        load_scorer(str(make_layerwise(tmp_path, **config)), device="cpu")
