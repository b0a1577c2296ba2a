"""Rerankers that sentence-transformers put together of modules: its own forward pass, on ids that it made."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.errors import InvalidData
from ..core.models import read_settings
from .padding import Padded
from .tokens import well_formed
from .types import Encoded, Scorer


def scorer(name: str, model: Any, length: int, batch_tokens: int) -> Scorer:
    """The scorer of a CrossEncoder of sentence-transformers, with passages cut as it cuts them.

    `length`: the most ids of a pair; a pair that has so many counts as cut.
    """
    lock = threading.Lock()  # the tokenizer is changed when it is called
    features = model.preprocess([("a", "a")])
    if not {"input_ids", "attention_mask"} <= set(features):
        raise InvalidData(f"{name} does not take pairs as token ids, so it can't rerank texts")
    # What sentence-transformers adds for its modules, the same for all texts.
    extra = {key: value for key, value in features.items() if not hasattr(value, "shape")}
    types = (0, 1) if "token_type_ids" in features else None

    def encode(query: str, passages: Sequence[str]) -> list[Encoded]:
        if not passages:
            return []
        with lock:
            read = model.preprocess([(well_formed(query), well_formed(passage)) for passage in passages])
        found = []
        for i, mask in enumerate(read["attention_mask"].bool()):
            ids = read["input_ids"][i][mask].tolist()
            second = read["token_type_ids"][i][mask].tolist().index(1) if types else 0
            found.append(Encoded(tuple(ids), len(ids) >= length, prefix=second))
        return found

    padding, left = model.tokenizer.pad_token_id or 0, model.tokenizer.padding_side == "left"
    forward = Padded(
        lambda given: model({**extra, **given})["scores"][:, 0], model.device, batch_tokens, padding, left, types
    )
    return Scorer(name, encode, forward, length)


def modules(path: Path) -> list[str]:
    """The modules of a sentence-transformers model; empty if the folder has only the model itself.

    Raises InvalidData if they can't be read or belong to an embedding model.
    """
    found = read_settings(path / "modules.json", list)
    try:
        kinds = [one["type"].rpartition(".")[2] for one in found]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidData(f"the modules.json of {path} does not describe modules: {error}") from error
    if "Pooling" in kinds:
        raise InvalidData(f"{path} is an embedding model, not a reranker")
    return [] if kinds == ["Transformer"] and not found[0].get("path") else kinds
