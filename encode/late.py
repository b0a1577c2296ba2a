"""Late interaction's encoder: a text becomes a vector for each of its tokens.

The model is one that was trained for it (ColBERT), or any embedding model, whose token embeddings are taken before they
are pooled.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InvalidData, NotFound, UsageError
from ..models import (
    FoundModel,
    cpu_has_bfloat16,
    find_model,
    load_encoder,
    positions,
    require_models,
)
from ..special_tokens import words_only_in

if TYPE_CHECKING:
    import torch
    from sentence_transformers import MultiVectorEncoder

BATCH = 16
"""Texts in one forward pass."""
KEPT_BYTES = 512 << 20
"""Token embeddings of documents that were read last: claims about one subject find the same documents."""
Task = Literal["query", "document"]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The ids of a text's tokens, without those that the model leaves out, and their embeddings of unit length,
    float16, shape [tokens, dimensions].

    `cut`: the text was longer than what the model reads.
    """

    ids: tuple[int, ...]
    vectors: torch.Tensor
    cut: bool

    @property
    def bytes(self) -> int:
        return int(self.vectors.nbytes) + 8 * len(self.ids)


class LateEncoder:
    """Embeds the tokens of texts. In one thread at a time."""

    def __init__(self, model: MultiVectorEncoder) -> None:
        from cachetools import LRUCache

        tokenizer: Any = model.tokenizer
        self._model, self._tokenizer = model, tokenizer
        self.special = frozenset(tokenizer.all_special_ids)
        """Ids of special tokens."""
        self._kept: LRUCache[str, Tokens] = LRUCache(KEPT_BYTES, getsizeof=lambda tokens: tokens.bytes)

    def query(self, text: str) -> Tokens:
        (tokens,) = self._encoded([text], "query")
        return tokens

    def documents(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text. Those that were embedded lately are not embedded again."""
        known = {text: self._kept[text] for text in set(texts) if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for text, tokens in zip(missing, self._encoded(missing, "document"), strict=True):
            known[text] = tokens
            with contextlib.suppress(ValueError):  # larger than all that is kept
                self._kept[text] = tokens
        return [known[text] for text in texts]

    def _encoded(self, texts: Sequence[str], task: Task) -> list[Tokens]:
        import torch

        if not texts:
            return []
        half = self._model.device.type == "cpu" and cpu_has_bfloat16() and task == "document"
        encode: Any = self._model.encode_query if task == "query" else self._model.encode_document
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            rows = encode(list(texts), batch_size=BATCH, output_value=None, show_progress_bar=False)
        lengths = [
            len(ids) for ids in self._tokenizer(list(texts), return_attention_mask=False, verbose=False).input_ids
        ]
        limit = longest(self._model, task)
        return [_tokens(row, length > limit) for row, length in zip(rows, lengths, strict=True)]


def _tokens(row: dict[str, torch.Tensor], cut: bool) -> Tokens:
    import torch

    counts = row["attention_mask"].bool()
    # Here and not in the model, which would round the lengths to bfloat16.
    vectors = torch.nn.functional.normalize(row["token_embeddings"][counts].float(), dim=-1)
    return Tokens(tuple(row["input_ids"][counts].tolist()), vectors.half(), cut)


def load_late_encoder(
    name: str,
    *,
    device: str | None = None,
    max_tokens: int | None = None,
    on_load: Callable[[], None] = lambda: None,
) -> LateEncoder:
    """Find a model for late interaction (a folder, or a name) and load it.

    `max_tokens`: how many tokens of a document it reads, by default as many as it was made for. `on_load` is called
    before what takes long. Raises MissingExtra without sentence-transformers, NotFound where there is no such model or
    it has no safetensors, UsageError for a device or `max_tokens` that it can't have, InvalidData for a model of
    another kind.
    """
    require_models("reranking by late interaction")
    found = find_model(name)
    if not any(found.path.rglob("*.safetensors")):
        raise NotFound(f"{found.path} holds no safetensors weights; other formats are not loaded")
    on_load()
    model = _load(found, device)
    limit = positions(model[0].config)
    if max_tokens is not None:
        if limit is not None and max_tokens > limit:
            raise UsageError(f"max_tokens is {max_tokens}: {found.name} reads {limit} tokens at most")
        first: Any = model[0]
        model.max_seq_length = max_tokens
        if first.document_length is not None:
            first.document_length = max_tokens
    return LateEncoder(model)


def longest(model: MultiVectorEncoder, task: Task) -> float:
    """How many tokens of a text the model reads, special ones too."""
    first: Any = model[0]
    own = first.query_length if task == "query" else first.document_length
    return float(own or model.max_seq_length or math.inf)


def _load(found: FoundModel, device: str | None) -> MultiVectorEncoder:
    """The model that was trained for this, or what an embedding model has before it makes one vector of many."""
    ready = trained_for_it(found.path)
    kind: Literal["MultiVectorEncoder", "SentenceTransformer"] = (
        "MultiVectorEncoder" if ready else "SentenceTransformer"
    )
    model = load_encoder(kind, "a model of token embeddings", found, device)

    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    if not isinstance(model[0], Transformer):
        raise InvalidData(f"{found.name} has no token embeddings: it begins with {type(model[0]).__name__}")
    if not ready:
        tokenizer = model.tokenizer
        unread = [token for token in tokenizer.all_special_tokens if token != tokenizer.unk_token]
        mask = MultiVectorMask(skiplist_words=unread, skiplist_tasks=["query", "document"])
        model = MultiVectorEncoder(modules=[model[0], mask], device=str(model.device), prompts=model.prompts)
    words_only_in(model)
    encoder: MultiVectorEncoder = model
    return encoder


def trained_for_it(folder: Path) -> bool:
    """Whether a model's files say that it was trained for late interaction, with sentence-transformers, PyLate or the
    code of ColBERT's authors."""
    kind = _value(folder / "config_sentence_transformers.json", "model_type")
    architectures = _value(folder / "config.json", "architectures")
    return kind in ("MultiVectorEncoder", "ColBERT") or any(
        name == "HF_ColBERT" or str(name).endswith("ForRetrieval") for name in architectures or ()
    )


def _value(file: Path, key: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8")).get(key) if file.is_file() else None
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidData(f"{file} can't be read: {error}") from error
