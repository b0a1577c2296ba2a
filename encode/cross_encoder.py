"""An embedding model that reads two texts together: its weights with a low-rank adapter, and a head, run by numpy.

The adapter is a safetensors file in float16. For a changed matrix W it holds `W.a`, shape [rank, in], and `W.b`, shape
[out, rank]: W + b a takes its place. `head.weight`, shape [outputs, 2 * dimensions], and `head.bias` read the first
token's vector and the mean of all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import InvalidData
from .numpy_bert import BertFolder, load_bert

if TYPE_CHECKING:
    from .numpy_bert import Floats

CrossEncoder = Callable[[Sequence[tuple[str, str]]], "Floats"]
"""From pairs of texts to the outputs of the head, shape [pairs, outputs]."""


@functools.lru_cache(maxsize=1)
def load_cross_encoder(folder: BertFolder, adapter: Path, most: int) -> CrossEncoder:
    """The model of a folder, changed by an adapter. Of two texts it reads `most` tokens. The last one is kept.

    Raises InvalidData if one of the two is broken, or they do not fit each other.
    """
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        stored = {name: values.astype(np.float32) for name, values in load_file(adapter).items()}
        weight, bias = stored.pop("head.weight"), stored.pop("head.bias")
        if weight.shape != (len(bias), 2 * folder.dimensions) or not 16 <= most <= folder.max_tokens:
            raise ValueError("its head does not fit the model")
        if not all(np.isfinite(values).all() for values in (weight, bias, *stored.values())):
            raise ValueError("it has values that are not numbers")
    except (OSError, SafetensorError, LookupError, ValueError) as error:
        raise InvalidData(f"{adapter} can't be loaded as an adapter: {error}") from error

    def change(weights: dict[str, Floats]) -> None:
        for name in {name.rpartition(".")[0] for name in stored}:
            changed = weights[f"{name}.weight"] + stored[f"{name}.b"] @ stored[f"{name}.a"]
            weights[f"{name}.weight"] = changed

    try:
        bert = load_bert(folder).changed(change)
    except (LookupError, ValueError) as error:
        raise InvalidData(f"{adapter} does not fit the model in {folder.path}: {error}") from error

    def outputs(pairs: Sequence[tuple[str, str]]) -> Floats:
        made: Floats = bert.encode_pairs(pairs, most) @ weight.T
        made += bias
        return made

    return outputs
