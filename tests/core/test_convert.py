"""Weights that torch saved become safetensors; and what is known about the models that recipes name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from cli_runs import works
from rerank_servers import wait_until
from runtimes import on_cpu
from tiny_published import make_bge_m3

from ccheck.core.convert import _in_another_process, convert
from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.encode.dense import load_embedder

torch = pytest.importorskip("torch", reason="needs the extra models")


def as_torch_saves(folder: Path, parts: int) -> None:
    """Replace the weights in a folder with the same, as torch saves them, in some files; two names share a tensor."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    weights["the.same"] = weights["embeddings.word_embeddings.weight"]
    names = sorted(weights)
    for part in range(parts):
        name = f"pytorch_model-{part + 1:05}-of-{parts:05}.bin" if parts > 1 else "pytorch_model.bin"
        torch.save({one: weights[one] for one in names[part::parts]}, folder / name)
    (folder / "model.safetensors").unlink()


@pytest.fixture(scope="module")
def bge_m3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bge_m3(tmp_path_factory.mktemp("models") / "bge-m3")


def test_the_converted_model_makes_the_same_vectors(bge_m3, tmp_path):
    old = shutil.copytree(bge_m3, tmp_path / "old")
    as_torch_saves(old, 2)
    with pytest.raises(NotFound, match=r"ccheck convert .*old FOLDER"):
        load_embedder(str(old), on_cpu())
    with subprocess.Popen([sys.executable, "-m", "ccheck", "convert", old, tmp_path / "new"]) as running:
        wait_until(lambda: bool(list(tmp_path.glob(".new*"))))
        running.terminate()
    assert running.returncode == 130 and not list(tmp_path.glob(".new*"))
    works("convert", old, tmp_path / "new")
    assert not list((tmp_path / "new").rglob("*.bin*")) and not list(tmp_path.glob(".new*"))
    texts = ["Sea level has risen.", "Tea with milk is popular in Britain."]
    made, true = (load_embedder(str(one), on_cpu()).encode_documents(texts) for one in (tmp_path / "new", bge_m3))
    assert (made == true).all() and made.shape[0] == 2
    with pytest.raises(UsageError, match="exists"):
        convert(str(old), tmp_path / "new")
    with pytest.raises(NotFound, match="nothing to convert"):
        convert(str(bge_m3), tmp_path / "other")


class Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, ("pwned",)


def test_a_file_that_is_more_than_tensors_does_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    torch.save({"a": Hostile()}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(InvalidData, match="can't be converted: it does not hold tensors"):
        convert("model", tmp_path / "made")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model"]


def test_the_other_process_has_no_network_no_programs_and_no_keys(tmp_path, monkeypatch):
    """As its code would find it if torch ran what a file says."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(subprocess, "run", run := Mock(return_value=subprocess.CompletedProcess([], 0)))
    _in_another_process(tmp_path / "a.bin", tmp_path / "b")
    assert "hf_secret" not in run.call_args.kwargs["env"].values()
    monkeypatch.undo()
    for does in ("import socket; socket.create_connection(('127.0.0.1', 9))", "import os; os.system('true')"):
        code = f"from ccheck.core import convert\nconvert._shut_in()\n{does}"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert ran.returncode == 1 and "PermissionError: the weights tried" in ran.stderr
