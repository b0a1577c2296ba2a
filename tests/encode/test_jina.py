"""jina-embeddings-v3 as transformers has it, with random weights: loaded without its authors' code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtimes import on_cpu

pytest.importorskip("sentence_transformers", reason="needs the extra models")

from ccheck.encode.dense import load_embedder

TEXTS = ["the ice melts in summer", "sea level"]


def test_the_architecture_is_transformers_own(tmp_path: Path) -> None:
    """A folder like jinaai/jina-embeddings-v3-hf's has no sentence-transformers files: the vectors are means."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import JinaEmbeddingsV3Config, JinaEmbeddingsV3Model, PreTrainedTokenizerFast

    words = ["<s>", "<pad>", "</s>", "<unk>", *dict.fromkeys(" ".join(TEXTS).split())]
    torch.manual_seed(0)
    config = JinaEmbeddingsV3Config(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=256,
    )
    model = JinaEmbeddingsV3Model(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", model_max_length=256
    ).save_pretrained(tmp_path)
    embedder = load_embedder(str(tmp_path), on_cpu())
    found = embedder.encode_queries(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = torch.tensor([[words.index(word) for word in text.split()]])
        with torch.no_grad():
            mean = model(ids).last_hidden_state[0].mean(0).numpy()
        assert vector @ (mean / np.linalg.norm(mean)) > 0.9999
    assert embedder.spec.dimensions == 32 and found[0] @ found[1] < 0.999
