"""Saved weights, read as any version of transformers names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def saved_weights(file: Path) -> dict[str, Any]:
    """Tensors by name. transformers 5.0 writes the old names of layer norms, which later versions do not."""
    from safetensors.torch import load_file

    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): weights
        for name, weights in load_file(file).items()
    }
