"""Weights that torch saved (`pytorch_model.bin`), made into safetensors once, so that nothing else ever reads them.

`torch.load` reads such a file with `weights_only`, which makes tensors and calls nothing that the file names. It does
so in a process of its own, which opens no connection, starts no program, and does not see this one's environment: a
file that gets around torch's limits finds no key and no way out.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .errors import InvalidData, UsageError, require
from .files import check_folder
from .models import BESIDE, PICKLED, pickled_model
from .text import first_line

_KEPT = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
"""The variables that the other process sees."""
_REFUSED = ("socket.", "subprocess.", "os.exec", "os.system", "os.posix_spawn", "os.fork", "os.spawn", "ctypes.")


def convert(name: str, output: Path) -> list[Path]:
    """Make `output`, a folder with a model's configuration, tokenizer and weights as safetensors; returns the weights.

    Raises NotFound for a model that is not there or has no such weights, UsageError if the folder exists, MissingExtra
    without torch, and InvalidData for weights that hold more than tensors.
    """
    require("converting weights", "models", "torch")
    if check_folder(output, "the model").exists():
        raise UsageError(f"{output} exists. Choose another folder, or remove it first")
    source = pickled_model(name)
    output.absolute().parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.absolute().parent))
    try:
        made = work / "model"
        for file in (one for pattern in BESIDE for one in source.rglob(pattern)):
            if not file.name.startswith("pytorch_model"):  # the index of the old files
                _place(made, source, file).write_bytes(file.read_bytes())
        # `model-00001-of-00002.safetensors` for `pytorch_model-00001-of-00002.bin`.
        weights = {
            file: _place(made, source, file.with_name(f"{file.stem.removeprefix('pytorch_')}.safetensors"))
            for file in sorted(source.rglob(PICKLED))
        }
        for file, target in weights.items():
            _in_another_process(file, target)
        for folder in {target.parent for target in weights.values()}:
            _write_index(folder)
        made.replace(output)
    finally:
        shutil.rmtree(work)
    return sorted(output.rglob("*.safetensors"))


def _place(made: Path, source: Path, file: Path) -> Path:
    place = made / file.relative_to(source)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _write_index(folder: Path) -> None:
    """Which of several files has which tensor, as transformers reads it."""
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    if len(files) < 2:
        return
    weights: dict[str, str] = {}
    for file in files:
        with safe_open(file, framework="np") as tensors:
            weights |= dict.fromkeys(tensors.keys(), file.name)
    index = {"metadata": {}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def _in_another_process(file: Path, target: Path) -> None:
    # -P: what lies in the current folder is not imported in place of a library.
    command = [sys.executable, "-P", "-m", __name__, str(file.resolve()), str(target.resolve())]
    own = {name: os.environ[name] for name in _KEPT if name in os.environ}
    ran = subprocess.run(command, env=own, capture_output=True, text=True, check=False)  # noqa: S603
    if ran.returncode:
        said = ran.stderr.strip().rpartition("\n")[2] or f"the process ended with {ran.returncode}"
        raise InvalidData(f"{file} can't be converted: {said[:300]}")


# -- in the other process


def _shut_in() -> None:
    """No network, no other program, from here on."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_REFUSED):
            raise PermissionError(f"the weights tried {event}")

    sys.addaudithook(refuse)


def main(file: str, target: str) -> None:
    """Read `file` and write `target`."""
    import torch
    from safetensors.torch import save_file

    _shut_in()
    try:
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # torch's words say how to run what the file says
            found = None
        if not (isinstance(found, dict) and found and all(isinstance(one, torch.Tensor) for one in found.values())):
            raise ValueError("it does not hold tensors, or not tensors alone")
        # Tied weights share their memory, which safetensors does not store.
        tensors = {name: one.detach().clone(memory_format=torch.contiguous_format) for name, one in found.items()}
        save_file(tensors, target, metadata={"format": "pt"})
    except Exception as error:  # noqa: BLE001 - the other side raises it
        raise SystemExit(first_line(error)) from None


if __name__ == "__main__":
    main(*sys.argv[1:])
