"""Runtimes, memories of stages, and a model with other weights, for tests."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings


def on_cpu(download: bool = True, **settings: Any) -> Runtime:
    return Runtime(Settings.model_validate({"device": "cpu"} | settings), download=download)


class Kept:
    """A memory in a dictionary, which counts."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, bytes], bytes] = {}
        self.missed: dict[str, int] = {}

    def get(self, kind: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = {key: self.values[kind, key] for key in keys if (kind, key) in self.values}
        self.missed[kind] = self.missed.get(kind, 0) + len(set(keys)) - len(found)
        return found

    def put(self, kind: str, values: Mapping[bytes, bytes]) -> None:
        self.values |= {(kind, key): value for key, value in values.items()}


def other_minilm(folder: Path) -> Path:
    """A copy of the packaged embedding model in which one weight is another, so that it is another model."""
    from ccheck.core.models import find_model

    shutil.copytree(find_model("all-MiniLM-L6-v2").path, folder)
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, 2)
        last = weights.read(1)[0]
        weights.seek(-1, 2)
        weights.write(bytes([last ^ 1]))
    return folder
