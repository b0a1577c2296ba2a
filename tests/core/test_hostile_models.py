"""The fingerprint of a model tells all that changes its vectors; weights of other formats are refused."""

from __future__ import annotations

import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ccheck.core import fingerprints
from ccheck.core.cache import Cache
from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.fingerprints import file_hash, fingerprint
from ccheck.core.models import find_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder as sentence-transformers lays it out, with a Dense module; of 4 MB, most of it far from both ends."""
    folder = tmp_path / "model"
    dense = folder / "2_Dense"
    dense.mkdir(parents=True)
    (folder / "1_Pooling").mkdir()
    weights = {f"layer.{number}.weight": np.full((256, 1024), number, np.float32) for number in range(4)}
    save_file(weights, folder / "model.safetensors")
    save_file({"linear.weight": np.ones((4, 4), np.float32)}, dense / "model.safetensors")
    modules = [{"idx": number, "path": name} for number, name in enumerate(["", "1_Pooling", "2_Dense"])]
    write(folder / "modules.json", modules)
    write(folder / "config.json", {"hidden_size": 4, "_name_or_path": "a", "transformers_version": "4"})
    write(folder / "tokenizer.json", {"model": {"vocab": {"a": 0}}})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 256})
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    write(dense / "config.json", {"activation_function": "torch.nn.modules.activation.Tanh"})
    return folder


def write(file: Path, data: object) -> None:
    file.write_text(json.dumps(data), encoding="utf-8")


def change_layer(file: Path, *names: str) -> None:
    """Weights in the middle of the file change; its size does not."""
    weights = load_file(file)
    for name in names:
        weights[name] = weights[name] + 1
    save_file(weights, file)


def test_layers_in_the_middle_count(model):
    before = fingerprint(model)
    size = (model / "model.safetensors").stat().st_size
    change_layer(model / "model.safetensors", "layer.1.weight", "layer.2.weight")
    assert (model / "model.safetensors").stat().st_size == size and fingerprint(model) != before


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.linear.Identity"}),
        ("config.json", {"hidden_size": 5}),
        ("tokenizer.json", {"model": {"vocab": {"b": 0}}}),
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("sentence_bert_config.json", {"max_seq_length": 128}),
        ("config_sentence_transformers.json", {"prompts": {"query": "x"}}),
    ],
)
def test_whatever_changes_vectors_counts(model, file, data):
    before = fingerprint(model)
    write(model / file, data)
    assert fingerprint(model) != before


def test_a_dense_module_counts(model):
    before = fingerprint(model)
    change_layer(model / "2_Dense" / "model.safetensors", "linear.weight")
    assert fingerprint(model) != before


def test_a_copy_is_the_same_model(model, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    data = {"transformers_version": "5", "hidden_size": 4, "_name_or_path": "b"}
    (other / "config.json").write_text(json.dumps(data, indent=4), encoding="utf-8")
    (other / "README.md").write_text("about it")
    write(other / "data_config.json", {})
    assert fingerprint(other) == fingerprint(model)


def test_weights_are_read_again_when_their_file_changed(model, monkeypatch):
    monkeypatch.setattr(fingerprints, "_SETTLED_NS", -1)  # the test has no two seconds to wait
    file = model / "model.safetensors"
    status, before = file.stat(), file_hash(file)
    change_layer(file, "layer.1.weight")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if nothing had happened
    assert file.stat().st_size == status.st_size and file.stat().st_mtime_ns == status.st_mtime_ns
    assert file_hash(file) != before


def test_a_fingerprint_is_remembered_until_a_file_changes(model, monkeypatch):
    monkeypatch.setattr(fingerprints, "_SETTLED_NS", -1)
    made, content = fingerprint(model), fingerprints._content
    reads = []
    monkeypatch.setattr(fingerprints, "_content", lambda file: reads.append(file) or content(file))
    assert fingerprint(model) == made and not reads
    for change in (lambda: write(model / "config.json", {"hidden_size": 5}), lambda: write(model / "vocab.json", {})):
        before = fingerprint(model)
        change()
        assert fingerprint(model) != before and reads
        reads.clear()


def test_what_changed_just_now_is_read_again(model, monkeypatch):
    file, reads = model / "model.safetensors", []
    digest = fingerprints.hashlib.file_digest
    monkeypatch.setattr(fingerprints.hashlib, "file_digest", lambda *given: reads.append(1) or digest(*given))
    monkeypatch.setattr(fingerprints.time, "time_ns", lambda: file.stat().st_ctime_ns + 1)
    assert file_hash(file) == file_hash(file) and len(reads) == 2


def test_several_threads_remember_in_one_cache(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CCHECK_CACHE_DIR", str(tmp_path / "cache"))
    opened = []
    monkeypatch.setattr(fingerprints, "Cache", lambda *given: opened.append(given) or sleep(0.1) or Cache(*given))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(file_hash, [model / "model.safetensors"] * 8))) == 1
    assert len(opened) == 1


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_module_in_another_format_is_refused(model, name):
    (model / "2_Dense" / "model.safetensors").rename(model / "2_Dense" / name)
    for look in (fingerprint, lambda path: find_model(str(path))):
        with pytest.raises(InvalidData, match=rf"{name} has weights in a format that can run code"):
            look(model)


def test_a_module_outside_of_the_folder_is_refused(model):
    (model.parent / "elsewhere").mkdir()
    write(model / "modules.json", [{"path": ""}, {"path": "../elsewhere"}])
    with pytest.raises(InvalidData, match="outside of its folder"):
        fingerprint(model)


def test_a_folder_without_weights_and_modules_that_are_no_list(model):
    write(model / "modules.json", {"path": 7})
    with pytest.raises(InvalidData, match="not a list of modules"):
        fingerprint(model)
    for file in model.rglob("*.safetensors"):
        file.unlink()
    with pytest.raises(NotFound, match="no safetensors weights"):
        fingerprint(model)


@pytest.mark.skipif(os.name == "nt", reason="modes as Unix has them")
def test_caches_are_for_their_owner_only(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CCHECK_CACHE_DIR", str(tmp_path / "new" / "cache"))
    old = os.umask(0)
    try:
        file_hash(model / "model.safetensors")
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*")}
    assert modes["cache"] == stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert {mode for name, mode in modes.items() if name != "cache"} == {0o600}
