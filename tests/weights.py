"""Saved weights: read as any version of transformers names them, and those of another model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def saved_weights(file: Path) -> dict[str, Any]:
    """Tensors by name. transformers 5.0 writes the old names of layer norms, which later versions do not."""
    from safetensors.torch import load_file

    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): weights
        for name, weights in load_file(file).items()
    }


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
