"""Decoders that read in both directions (INF-Retriever-v1): the vectors are those of a reference."""

from __future__ import annotations

import numpy as np
import pytest
from runtimes import on_cpu
from tiny_qwen2 import make_qwen2, reference

pytest.importorskip("sentence_transformers", reason="needs the extra models")

from ccheck.encode.dense import load_embedder

TEXTS = ["the ice melts in summer", "sea level", "the sea rises since 1900 and the ice melts"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_qwen2(tmp_path_factory.mktemp("qwen2") / "inf")


def test_attention_is_to_both_sides(folder, monkeypatch):
    monkeypatch.setattr("ccheck.encode.dense.cpu_has_bfloat16", lambda: False)  # so that both sides are float32
    both, causal = (reference(folder, TEXTS, causal=causal) for causal in (False, True))
    assert np.all((both * causal).sum(axis=1) < 0.9), "the two differ, so that the test can fail"
    embedder = load_embedder(str(folder), on_cpu())
    alone = np.concatenate([embedder.encode_queries([text]) for text in TEXTS])
    padded = embedder.encode_documents(TEXTS)
    assert np.all((alone * both).sum(axis=1) > 0.99999) and np.all((padded * both).sum(axis=1) > 0.99999)
