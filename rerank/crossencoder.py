"""Rerankers that sentence-transformers put together of modules: its own forward pass, on ids that it made."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import InvalidData
from ..core.special_tokens import words_only_in
from .decoder import by_length, padded
from .encoder import token_types
from .tokens import well_formed
from .types import Encoded


class CrossEncoderModules:
    """The pairs and the forward pass of a CrossEncoder of sentence-transformers, with passages cut as it cuts them."""

    def __init__(self, name: str, model: Any, length: int, batch_tokens: int) -> None:
        """`length`: the most ids of a pair; a pair that has so many counts as cut."""
        self._model, self._length, self._batch_tokens = model, length, batch_tokens
        self._tokenizer = model.tokenizer
        # The tokenizer is changed when it is called.
        self._lock = threading.Lock()
        features = model.preprocess([("a", "a")])
        if not {"input_ids", "attention_mask"} <= set(features):
            raise InvalidData(f"{name} does not take pairs as token ids, so it can't rerank texts")
        # What sentence-transformers adds for its modules, the same for all texts.
        self._extra = {key: value for key, value in features.items() if not hasattr(value, "shape")}
        self._types = "token_type_ids" in features

    def pairs(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        if not passages:
            return []
        pairs = [(well_formed(query), well_formed(passage)) for passage in passages]
        with self._lock:
            features = self._model.preprocess(pairs)
        found = []
        for i in range(len(pairs)):
            kept = features["attention_mask"][i].bool()
            ids = features["input_ids"][i][kept].tolist()
            second = features["token_type_ids"][i][kept].tolist().index(1) if self._types else 0
            found.append(Encoded(tuple(ids), len(ids) >= self._length, prefix=second))
        return found

    def __call__(self, sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]) -> Iterator[tuple[int, float]]:
        import torch

        device = self._model.device
        left = self._tokenizer.padding_side == "left"
        for batch in by_length(sequences, self._batch_tokens):
            ids, mask = padded([sequences[i] for i in batch], self._tokenizer.pad_token_id or 0, left=left)
            features = {**self._extra, "input_ids": ids, "attention_mask": mask}
            if self._types:
                kinds = [token_types((0, 1), len(sequences[i]), prefixes[i]) for i in batch]
                features["token_type_ids"] = padded(kinds, 0, left=left)[0]
            moved = {key: value.to(device) if hasattr(value, "to") else value for key, value in features.items()}
            with torch.inference_mode():
                scores = self._model(moved)["scores"]
            yield from zip(batch, scores[:, 0].float().tolist(), strict=True)


def modules(path: Path) -> list[str]:
    """The modules of a sentence-transformers model; empty if the folder has only the model itself.

    Raises InvalidData if they can't be read or belong to an embedding model.
    """
    file = path / "modules.json"
    if not file.is_file():
        return []
    try:
        found = [(one["path"], one["type"].rpartition(".")[2]) for one in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise InvalidData(f"the model's {file} can't be read: {error}") from error
    if "Pooling" in [kind for _, kind in found]:
        raise InvalidData(f"{path} is an embedding model, not a reranker")
    return [] if found == [("", "Transformer")] else [kind for _, kind in found]


def load(path: Path, length: int, device: str, dtype: Any, trust_remote_code: bool) -> Any:
    """sentence-transformers' own model of the folder, which reads special tokens in texts as words."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(
        str(path),
        max_length=length,
        device=device,
        trust_remote_code=trust_remote_code,
        local_files_only=True,
        model_kwargs={"use_safetensors": True, "dtype": dtype},
    )
    words_only_in(model)
    return model.eval()
