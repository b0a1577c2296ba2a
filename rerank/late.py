"""Reranking by late interaction: each token of the claim meets the token of the document that is most similar to it.

MaxSim is that of ColBERT (Khattab and Zaharia, SIGIR 2020, equation 3). The token embeddings are those of a model that
was trained for it, or those that an embedding model has before it pools them, which no training for this is needed for.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Sequence, Set
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
from .types import Scores
from .values import finite

if TYPE_CHECKING:
    import torch
    from sentence_transformers import MultiVectorEncoder

BATCH = 16
"""Passages in one forward pass."""
KEPT_BYTES = 512 << 20
"""Token embeddings of passages that were read last: claims of one subject find the same documents."""


class LateReranker:
    """Scores passages by late interaction. `name` is how results call it."""

    def __init__(self, model: MultiVectorEncoder, name: str, window: int = 48, idf: bool = True) -> None:
        """`window`: how many tokens of a passage must hold the matches of all tokens of the claim, the best such
        stretch counts; 0: the whole passage. `idf`: tokens of the claim that few of the passages have count more.
        """
        from cachetools import LRUCache

        self.name = f"late:{name}"
        self._model, self._window, self._idf = model, window, idf
        tokenizer: Any = model.tokenizer
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        self._kept: LRUCache[str, Tokens] = LRUCache(KEPT_BYTES, getsizeof=lambda tokens: tokens.bytes)
        self._lock = threading.Lock()

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """The weighted mean, over the claim's tokens, of the cosine to the most similar token, in 0..1.

        With `idf` a score depends on what is scored beside it. Raises InvalidData for scores that are not finite.
        """
        if not passages:
            return Scores((), (), logits=False)
        with self._lock:
            (claim,) = self._encoded([query], "query")
            read = self._read(passages)
        found = [frozenset(one.ids) for one in read]
        weights = rarity(claim.ids, found, self._special) if self._idf else [1.0] * len(claim.ids)
        values = [maxsim(claim.vectors, one.vectors, weights, self._window) for one in read]
        finite(self.name, values)
        return Scores(tuple(min(max(value, 0.0), 1.0) for value in values), tuple(one.cut for one in read), False)

    def _read(self, passages: Sequence[str]) -> list[Tokens]:
        known = {text: self._kept[text] for text in set(passages) if text in self._kept}
        missing = [text for text in dict.fromkeys(passages) if text not in known]
        for text, tokens in zip(missing, self._encoded(missing, "document"), strict=True):
            known[text] = tokens
            with contextlib.suppress(ValueError):  # larger than all that is kept
                self._kept[text] = tokens
        return [known[text] for text in passages]

    def _encoded(self, texts: Sequence[str], task: Literal["query", "document"]) -> list[Tokens]:
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


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of a text the ids of the tokens that count, and their embeddings of unit length, float16, shape
    [tokens, dimensions].

    `cut`: the text was longer than what the model reads.
    """

    ids: tuple[int, ...]
    vectors: torch.Tensor
    cut: bool

    @property
    def bytes(self) -> int:
        return int(self.vectors.nbytes) + 8 * len(self.ids)


def _tokens(row: dict[str, torch.Tensor], cut: bool) -> Tokens:
    import torch

    counts = row["attention_mask"].bool()
    # Here and not in the model, which would round the lengths to bfloat16.
    vectors = torch.nn.functional.normalize(row["token_embeddings"][counts].float(), dim=-1)
    return Tokens(tuple(row["input_ids"][counts].tolist()), vectors.half(), cut)


def rarity(claim: Sequence[int], passages: Sequence[Set[int]], special: Set[int] = frozenset()) -> list[float]:
    """How much each token of a claim counts: 1 + log((n + 1) / (f + 0.5)) of n passages, f of which have it.

    Tokens that every passage has, and special ones, count 1.
    """
    count = len(passages)
    return [
        1.0
        if token in special
        else 1.0 + max(0.0, math.log((count + 1) / (sum(token in one for one in passages) + 0.5)))
        for token in claim
    ]


def maxsim(claim: torch.Tensor, passage: torch.Tensor, weights: Sequence[float], window: int = 0) -> float:
    """The weighted mean over a claim's tokens of the largest product with a token of the passage.

    Shapes: [claim tokens, dimensions], [passage tokens, dimensions]; of unit length. With a `window` it is the largest
    over stretches of so many tokens, each half a window after the one before. 0 where one of them has no tokens.
    """
    import torch

    if not len(claim) or not len(passage):
        return 0.0
    products = claim.float() @ passage.float().T
    size = min(window or len(passage), len(passage))
    # [claim tokens, stretches]; the last stretch may be shorter.
    best = torch.nn.functional.max_pool1d(products[None], size, max(1, size // 2), ceil_mode=True)[0]
    share = torch.tensor(weights, dtype=best.dtype, device=best.device)
    return float((share @ best).max() / share.sum())


def load_late(
    name: str,
    *,
    device: str | None = None,
    max_tokens: int | None = None,
    window: int = 48,
    idf: bool = True,
    on_load: Callable[[], None] = lambda: None,
) -> LateReranker:
    """Find a model for late interaction (a folder, or a name) and load it.

    `max_tokens`: how many tokens of a document it reads, by default as many as it was made for. `on_load` is called
    before what takes long. Raises MissingExtra without sentence-transformers, NotFound where there is no such model or
    it has no safetensors, UsageError for a device or `max_tokens` that it can't have, InvalidData for what is no model
    of this kind.
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
    return LateReranker(model, name, window, idf)


def longest(model: MultiVectorEncoder, task: Literal["query", "document"]) -> float:
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
    """Whether a model's files say that it was trained for late interaction: by sentence-transformers, PyLate, or the
    authors of ColBERT."""
    kind = _said(folder / "config_sentence_transformers.json", "model_type")
    architectures = _said(folder / "config.json", "architectures")
    return kind in ("MultiVectorEncoder", "ColBERT") or any(
        name == "HF_ColBERT" or str(name).endswith("ForRetrieval") for name in architectures or ()
    )


def _said(file: Path, key: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8")).get(key) if file.is_file() else None
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidData(f"{file} can't be read: {error}") from error
