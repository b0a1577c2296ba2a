"""The adapters of `ccheck train adapter`: linear maps of claims' embeddings. Those of documents stay as they are.

An adapter is a folder with `adapter.safetensors` (`weight`, float32, [dimensions, dimensions]) and `adapter.json` (the
kind, the dimensions, the base model's name and the fingerprint of its weights).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.errors import InvalidData, MissingExtra, NotFound
from ..core.types import Vector

SETTINGS = "adapter.json"
WEIGHTS = "adapter.safetensors"
KIND = "linear"
MAX_DIMENSIONS = 16_384


def load_adapter(folder: Path, fingerprint: str) -> Callable[[Vector], Vector]:
    """A function from a claim's embedding to the one to search for: float32 of unit length, [dimensions] both, or
    [claims, dimensions] both.

    `fingerprint` is of the weights that made the embeddings (`Embedding.fingerprint`). Raises NotFound if there is
    no adapter, InvalidData for one that is broken or made for other weights.
    """
    import numpy as np

    file, weights = folder / SETTINGS, folder / WEIGHTS
    if not file.is_file() or not weights.is_file():
        raise NotFound(_why_none(folder))
    try:
        settings: Any = json.loads(file.read_text(encoding="utf-8"))
        kind, dimensions, made_for = settings["kind"], int(settings["dimensions"]), str(settings["fingerprint"])
        model = str(settings.get("model") or "another model")
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidData(
            f"{file} can't be read as an adapter's configuration ({type(error).__name__}: {error})"
        ) from error
    if kind != KIND or not 0 < dimensions <= MAX_DIMENSIONS:
        raise InvalidData(
            f"{file} describes an adapter that this version can't use ({kind!r}, {dimensions} dimensions)"
        )
    if made_for != fingerprint:
        raise InvalidData(
            f"the adapter {folder} was made for {model} (weights {made_for[:8]}), but the embeddings come from "
            f"other weights ({fingerprint[:8]}). Leave adapter out of the recipe, or train one from the model that the "
            "store was made with (ccheck train adapter --base MODEL)"
        )
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ModuleNotFoundError as error:
        raise MissingExtra("an adapter", "models") from error
    try:
        matrix = load_file(weights)["weight"]
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InvalidData(f"{weights} can't be read as an adapter's weights: {error}") from error
    if matrix.shape != (dimensions, dimensions) or matrix.dtype != np.float32 or not np.isfinite(matrix).all():
        shape = " x ".join(map(str, matrix.shape))
        raise InvalidData(
            f"{weights} does not hold {dimensions} x {dimensions} finite numbers in float32, as {SETTINGS} beside it "
            f"says (it holds {shape} in {matrix.dtype}): train the adapter again"
        )

    def adapt(vector: Vector) -> Vector:
        if vector.shape[-1] != dimensions:
            raise InvalidData(
                f"the adapter {folder} is for {dimensions} dimensions, and the embedding has {vector.shape[-1]}: train "
                "the adapter again, or leave it out of the recipe"
            )
        made = np.asarray(vector @ matrix.T, np.float32)
        made /= np.maximum(np.linalg.norm(made, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
        return made

    return adapt


def _why_none(folder: Path) -> str:
    """The reason why a folder holds no adapter, and what to do."""
    if not folder.exists():
        return (
            f"the recipe's adapter {folder} does not exist. A relative path is looked up next to the recipe, "
            "then in the current folder. Create one with ccheck train adapter"
        )
    if not folder.is_dir():
        return f"the recipe's adapter {folder} is a file: name the folder that contains it"
    if (folder / "config.json").is_file():
        return (
            f"{folder} holds a model, not an adapter. To search with a model, use the key model and "
            "ingest with it (ccheck ingest CORPUS --model FOLDER)"
        )
    return (
        f"the folder {folder} holds no adapter ({SETTINGS} and {WEIGHTS} are missing). Create one with ccheck train "
        "adapter"
    )
