"""Finding models, with a server on loopback that answers as the hub does."""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from http_stub import Asked, Reply, http_stub
from safetensors.numpy import load_file, save_file

from ccheck.core import fingerprints, models
from ccheck.core.cache import Cache
from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.fingerprints import file_hash, fingerprint
from ccheck.core.models import find_model
from ccheck.core.recipe import Recipe, models_used

COMMIT = "c" * 40
NAME = "somebody/some-model"
HALVES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    HALVES[0]: b"first half",
    HALVES[1]: b"second half",
    "model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", HALVES, strict=True))}).encode(),
    "model.safetensors": b"the whole",
    "modeling.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle",
}


class Hub:
    """`given` has the files that somebody downloaded; those in `broken` can't be had."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.given: list[str] = []
        self.broken: set[str] = set()
        self.url = ""

    def reply(self, asked: Asked) -> Reply:
        name = asked.path.removeprefix(f"/{NAME}/resolve/{COMMIT}/")
        if asked.path.startswith(f"/api/models/{NAME}/tree/"):
            listed = [(file, len(data), oid(data)) for file, data in self.files.items()]
            return Reply([{"type": "file", "path": file, "size": size, "oid": id_} for file, size, id_ in listed])
        if asked.path.startswith(f"/api/models/{NAME}"):
            return Reply({"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": file} for file in self.files]})
        if name in self.files and name not in self.broken:
            if asked.method == "GET":
                self.given.append(name)
            headers = {"ETag": f'"{oid(self.files[name])}"', "X-Repo-Commit": COMMIT}
            return Reply(self.files[name], headers=headers)
        return Reply(status=404 if asked.path != "/" else 200)


def oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(FILES)
    with http_stub(hub.reply) as server:
        hub.url = server.url
        yield hub


ASK = """
import json, sys
from ccheck.core import models
from ccheck.core.errors import CcheckError

names, options, packaged = sys.argv[1:]
if packaged:
    models.PACKAGED[names] = models.PackagedModel("none", "ccheck_no_such_module", "model", packaged)
for name in names.split():
    for one in json.loads(options):
        try:
            found = models.find_model(name, **one)
            print(json.dumps(sorted(file.name for file in found.path.iterdir())))
        except CcheckError as error:
            print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def ask(hub: Hub, home: Path, *options: dict[str, bool], names: str = NAME, packaged: str = "") -> list[Any]:
    """What `find_model` gives in a process of its own, one after the other: the names of the files, or the error.

    `packaged`: the SHA-256 of the weights, as if the model were one of those whose package may be installed.
    """
    return list(map(json.loads, in_a_process(hub, home, ASK, names, json.dumps(options), packaged).splitlines()))


def in_a_process(hub: Hub, home: Path, code: str, *arguments: str) -> str:
    """What a script prints on standard output; it draws no bars on standard error, which is no terminal."""
    # The hub's client reads its environment once, when it is loaded.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "%|" not in done.stderr, done.stderr
    return done.stdout


WEIGHTS = sorted(name for name in FILES if name.endswith((".json", ".safetensors")))


def test_a_tokenizer_is_had_without_the_weights_and_the_weights_after_it_or_in_parts(hub: Hub, tmp_path: Path) -> None:
    alone = {"tokenizer_only": True}
    assert ask(hub, tmp_path, alone, alone) == [["tokenizer.json"], ["tokenizer.json"]]
    assert hub.given == ["tokenizer.json"]
    here = {"download": False}
    (missing, tokenizer) = ask(hub, tmp_path, here, alone | here)
    assert f"the model {NAME} is" in missing and "the hub was not asked" in missing
    assert tokenizer == ["tokenizer.json"]
    assert ask(hub, tmp_path, {}, here, alone | here) == [WEIGHTS] * 3
    assert sorted(hub.given) == WEIGHTS
    # Weights of which a part was downloaded are completed.
    hub.broken = {HALVES[1]}
    (error,) = ask(hub, tmp_path / "other", {})
    assert "could not be downloaded from the hub" in error
    hub.broken = set()
    assert ask(hub, tmp_path / "other", {}, {"download": False}) == [WEIGHTS] * 2


def test_a_model_without_safetensors_says_how_to_have_it(hub: Hub, tmp_path: Path) -> None:
    """BAAI/bge-m3 is such a model."""
    torch = pytest.importorskip("torch")
    torch.save({"layer.weight": torch.ones(2, 3)}, tmp_path / "weights")
    weights = (tmp_path / "weights").read_bytes()
    hub.files = {"config.json": b"{}", "pytorch_model.bin": weights, "1_Pooling/config.json": b"{}"}
    (error,) = ask(hub, tmp_path, {})
    assert f"ccheck convert {NAME} FOLDER" in error
    convert = "from ccheck.cli import main; main()"
    in_a_process(hub, tmp_path, convert, "convert", NAME, str(made := tmp_path / "made"))
    assert find_model(str(made)).path == made and (made / "1_Pooling" / "config.json").is_file()
    assert load_file(made / "model.safetensors")["layer.weight"].tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("true", [True, False])
def test_packaged_weights_without_their_package_come_from_the_hub_and_are_checked(true, hub, tmp_path):
    sha256 = hashlib.sha256(b"the whole" if true else b"another").hexdigest()
    (found,) = ask(hub, tmp_path, {}, packaged=sha256)
    assert "model.safetensors" in hub.given
    wrong = "InvalidData: .* is not the published model .its SHA-256 differs.. Delete "
    assert "model.safetensors" in found if true else re.match(wrong, found)


def test_a_hub_that_can_not_be_reached_is_asked_once_in_a_run(tmp_path: Path) -> None:
    """It takes connections and says nothing: the worst that a network can do."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.setblocking(False)
        unreachable = Hub({})
        unreachable.url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        errors = ask(unreachable, tmp_path, {}, names="nobody/model-0 nobody/model-1 nobody/model-2")
        assert len(errors) == 3 and all("the hub can't be reached" in error for error in errors)
        deaf.accept()[0].close()
        with pytest.raises(BlockingIOError):
            deaf.accept()


def test_a_packaged_tokenizer_needs_no_true_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(models, "_check_weights", lambda *_: pytest.fail("the weights were read"))
    assert (find_model("all-MiniLM-L6-v2", tokenizer_only=True).path / "tokenizer.json").is_file()
    with pytest.raises(NotFound, match=r"tokenizer\.json is missing"):
        find_model(str(tmp_path), tokenizer_only=True)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert find_model(str(tmp_path), tokenizer_only=True).path == tmp_path
    for name, said in ((str(tmp_path), r"config\.json is missing"), ("./no/such", "./no/such"), ("a b c", "a b c")):
        with pytest.raises(NotFound, match=said):
            find_model(name)


def test_a_model_that_embeds_is_more_than_a_tokenizer() -> None:
    """Whichever of the retrievers comes first."""
    words = {"kind": "bm25", "analysis": {"subwords": "some/model"}}
    vectors = {"kind": "dense", "model": "some/model"}
    for first, second, use in (words, vectors, "embedding"), (vectors, words, "embedding"), (words, words, "tokenizer"):
        recipe = Recipe.model_validate({"name": "r", "retrievers": {"one": first, "two": second}})
        assert models_used(recipe) == {"some/model": use}


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
    write(folder / "modules.json", [{"idx": n, "path": name} for n, name in enumerate(["", "1_Pooling", "2_Dense"])])
    write(folder / "config.json", {"hidden_size": 4, "_name_or_path": "a", "transformers_version": "4"})
    write(folder / "tokenizer.json", {"model": {"vocab": {"a": 0}}})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 256})
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    write(dense / "config.json", {"activation_function": "torch.nn.modules.activation.Tanh"})
    return folder


def write(file: Path, data: object) -> None:
    file.write_text(json.dumps(data), encoding="utf-8")


def change_layer(file: Path, name: str) -> None:
    """Weights in the middle of the file change; its size does not."""
    weights = load_file(file)
    save_file(weights | {name: weights[name] + 1}, file)


@pytest.mark.parametrize(
    ("file", "layer"), [("model.safetensors", "layer.1.weight"), ("2_Dense/model.safetensors", "linear.weight")]
)
def test_layers_in_the_middle_and_of_modules_count(model, file, layer):
    before, size = fingerprint(model), (model / file).stat().st_size
    change_layer(model / file, layer)
    assert (model / file).stat().st_size == size and fingerprint(model) != before


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


def test_a_copy_is_the_same_model(model, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    data = {"transformers_version": "5", "hidden_size": 4, "_name_or_path": "b"}
    (other / "config.json").write_text(json.dumps(data, indent=4))
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
    for name, data in (("config.json", {"hidden_size": 5}), ("vocab.json", {})):
        before = fingerprint(model)
        write(model / name, data)
        assert fingerprint(model) != before and reads
        reads.clear()


def test_what_changed_just_now_is_read_again(model, monkeypatch):
    file, reads = model / "model.safetensors", []
    digest = fingerprints.hashlib.file_digest
    monkeypatch.setattr(fingerprints.hashlib, "file_digest", lambda *given: reads.append(1) or digest(*given))
    monkeypatch.setattr(fingerprints.time, "time_ns", lambda: file.stat().st_ctime_ns + 1)
    assert file_hash(file) == file_hash(file) and len(reads) == 2


def test_several_threads_remember_in_one_cache(model, monkeypatch):
    opened = []
    monkeypatch.setattr(fingerprints, "Cache", lambda *given: opened.append(given) or sleep(0.1) or Cache(*given))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(file_hash, [model / "model.safetensors"] * 8))) == 1
    assert len(opened) == 1
    done = "import atexit; atexit._run_exitfuncs(); print([one._database for one in f._hashes.cache.values()])"
    code = f"import pathlib, ccheck.core.fingerprints as f; f.file_hash(pathlib.Path({__file__!r})); {done}"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"[None]\n", "closed at the end"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_module_in_another_format_is_refused(model, name):
    (model / "2_Dense" / "model.safetensors").rename(model / "2_Dense" / name)
    for look in (fingerprint, lambda path: find_model(str(path))):
        with pytest.raises(InvalidData, match=rf"{name} has weights in a format that can run code"):
            look(model)


def test_modules_outside_of_the_folder_or_without_weights_or_that_are_no_list_are_refused(model):
    (model.parent / "elsewhere").mkdir()
    write(model / "modules.json", [{"path": ""}, {"path": "../elsewhere"}])
    with pytest.raises(InvalidData, match="outside of its folder"):
        fingerprint(model)
    write(model / "modules.json", {"path": 7})
    with pytest.raises(InvalidData, match="not a list of modules"):
        fingerprint(model)
    for file in model.rglob("*.safetensors"):
        file.unlink()
    with pytest.raises(NotFound, match="no safetensors weights"):
        fingerprint(model)
