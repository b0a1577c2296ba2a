"""Late interaction: each token of the claim is compared with the most similar token of the document.

MaxSim is ColBERT's (Khattab and Zaharia, SIGIR 2020, equation 3).

The model is a BERT-type embedding model, whose token embeddings are taken before they are pooled, without torch.

Documents' tokens can come from a table with one vector for each token, whatever stands beside it: what all-MiniLM-L6-v2
makes of it as a text of its own, in the directions in which these vectors differ most. A document then costs no more
than its tokenisation. What that model would make of a claim's tokens in their context is estimated from what the
embedding model made of them when it encoded the claim, so that one model reads a claim, once. `scripts/token_table.py`
makes the table and the estimate; benchmarks/README.md has what they are worth.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.errors import NotFound, UsageError
from ..core.fingerprints import file_hash, without_safetensors
from ..core.models import read_settings
from ..core.runtime import Runtime
from ..encode.bert_folder import Floats, read_bert_folder
from ..encode.numpy_bert import NumpyBert, load_bert, unit_length
from .types import Scores, not_finite

KEPT_BYTES = 512 << 20
"""Token embeddings of documents that were read last: claims about one subject find the same documents."""
KEPT_TEXTS = 4096
"""The same for the ids of tokens."""
KEPT_CLAIMS = 128
"""Claims whose tokens are kept: twice as many as are checked at a time."""
PACKAGED = Path(__file__).parent / "token_tables"
Vectors: TypeAlias = NDArray[np.floating[Any]]


class LateReranker:
    """Scores passages by late interaction. `name` is how results call it."""

    def __init__(self, encoder: LateEncoder, name: str, window: int = 48, idf: bool = True) -> None:
        """`window`: all tokens of the claim are matched within a stretch of this many tokens of the passage, and the
        best stretch counts; 0: the whole passage. `idf`: tokens of the claim that few of the passages have count more.
        """
        self.name = f"late:{name}"
        self._encoder, self._window, self._idf = encoder, window, idf
        self._lock = threading.Lock()

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """The weighted mean, over the claim's tokens, of the cosine to the most similar token, in 0..1.

        With `idf` a score depends on what is scored beside it. Raises InvalidData for scores that are not finite.
        """
        if not passages:
            return Scores((), (), logits=False)
        with self._lock:
            claim, read = self._encoder.query(query), self._encoder.documents(passages)
        found = [frozenset(one.ids) for one in read]
        weights = rarity(claim.ids, found, self._encoder.special) if self._idf else [1.0] * len(claim.ids)
        values = maxsim(claim.vectors, [one.vectors for one in read], weights, self._window)
        if not all(map(math.isfinite, values)):
            raise not_finite(self.name, values)
        return Scores(tuple(min(max(value, 0.0), 1.0) for value in values), tuple(one.cut for one in read), False)

    def values(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        """The scores alone."""
        return self(query, passages).values


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


def maxsim(claim: Vectors, passages: Sequence[Vectors], weights: Sequence[float], window: int = 0) -> list[float]:
    """For each passage, the weighted mean over a claim's tokens of the largest product with a token of the passage.

    Shapes: [claim tokens, dimensions], [passage tokens, dimensions]; of unit length. With a `window` it is the largest
    over stretches of so many tokens, each half a window after the one before. 0 where one of them has no tokens.
    """
    bounds: list[int] = []  # where each stretch starts and ends
    firsts: list[int] = []  # the number of each passage's first stretch
    read = [one for one in passages if len(one) and len(claim)]
    ends = np.cumsum([len(one) for one in read]).tolist()
    for end, one in zip(ends, read, strict=True):
        size = min(window or len(one), len(one))
        firsts.append(len(bounds) // 2)
        starts = range(end - len(one), end, max(1, size // 2)) if size < len(one) else (end - size,)
        bounds += chain.from_iterable((start, min(start + size, end)) for start in starts)
    if not read:
        return [0.0] * len(passages)
    tokens = np.ascontiguousarray(claim.T, np.float32)
    # A row more than there are tokens, because stretches are given by where they end.
    products = np.concatenate([*(one.astype(np.float32, copy=False) @ tokens for one in read), tokens[:1] * 0])
    share = np.asarray(weights, np.float32)
    stretches = np.maximum.reduceat(products, bounds)[::2] @ share / share.sum()
    values = iter(np.maximum.reduceat(stretches, firsts).tolist())
    return [next(values) if len(one) and len(claim) else 0.0 for one in passages]


# -- tokens


@dataclass(frozen=True, slots=True)
class Tokens:
    """The ids of a text's tokens, without those that the model leaves out, and their embeddings, float32 or float16,
    shape [tokens, dimensions]: of unit length, or an estimate of such.

    `cut`: the text was longer than what is read.
    """

    ids: tuple[int, ...]
    vectors: NDArray[np.floating[Any]]
    cut: bool


class StaticEncoder:
    """Tokens of claims in context, as the model reads them; tokens of documents by a table."""

    def __init__(self, bert: NumpyBert, table: TokenTable, max_tokens: int | None = None) -> None:
        """`max_tokens`: how many tokens of a document are read, by default all."""
        self._bert, self._table, self._most = bert, table, max_tokens
        self.special = _unknown(bert)
        self._ids = functools.lru_cache(KEPT_TEXTS)(lambda text: tuple(bert.token_ids([text])[0]))
        # Ranking, relevance and evidence ask for the same claim one after the other.
        self.query = functools.lru_cache(KEPT_CLAIMS)(self._query)

    def _query(self, text: str) -> Tokens:
        states, ids = self._bert.claim_states(text), self._ids(text)
        read = ids[: len(states)]
        return Tokens(read, self._table.in_context(read, states), len(ids) > len(states))

    def documents(self, texts: Sequence[str]) -> list[Tokens]:
        read = [self._ids(text) for text in texts]
        kept = [ids[: self._most] for ids in read]
        cut = [self._most is not None and len(ids) > self._most for ids in read]
        # One look into the table for all.
        vectors = np.split(self._table.vectors(list(chain.from_iterable(kept))), np.cumsum(list(map(len, kept)))[:-1])
        return list(map(Tokens, kept, vectors, cut))


class ContextEncoder:
    """Tokens of claims and documents in context. Documents that were read lately are not read again."""

    def __init__(self, bert: NumpyBert) -> None:
        from cachetools import LRUCache

        self._bert = bert
        self.special = _unknown(bert)
        self._kept: LRUCache[str, Tokens] = LRUCache(KEPT_BYTES, lambda one: one.vectors.nbytes + 8 * len(one.ids))

    def query(self, text: str) -> Tokens:
        (tokens,) = self._encode([text])
        return tokens

    def documents(self, texts: Sequence[str]) -> list[Tokens]:
        known = {text: self._kept[text] for text in set(texts) if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for text, tokens in zip(missing, self._encode(missing), strict=True):
            known[text] = tokens
            with contextlib.suppress(ValueError):  # larger than all that is kept
                self._kept[text] = tokens
        return [known[text] for text in texts]

    def _encode(self, texts: Sequence[str]) -> list[Tokens]:
        if not texts:
            return []
        return [
            Tokens(tuple(ids[: len(states)]), unit_length(states).astype(np.float16), len(ids) > len(states))
            for ids, states in zip(self._bert.token_ids(texts), self._bert.encode_tokens(texts), strict=True)
        ]


LateEncoder: TypeAlias = StaticEncoder | ContextEncoder
"""Embeds the tokens of texts, in one thread at a time. `special` are the ids of tokens that are never rare."""


def _unknown(bert: NumpyBert) -> frozenset[int]:
    return frozenset(() if bert.unknown is None else (bert.unknown,))


def load_late_encoder(
    name: str,
    runtime: Runtime,
    *,
    documents: Literal["static", "contextual"] = "static",
    max_tokens: int | None = None,
) -> LateEncoder:
    """Find a model for late interaction (a folder, or a name) and load it.

    `documents`: their tokens by a packaged table, or in context. `max_tokens`: how many tokens of a document are read,
    by default all (static), or as many as the model was made for.

    Raises NotFound if there is no such model or table or it has no safetensors, UsageError for what the model can't do,
    InvalidData for a broken folder.
    """
    found = runtime.find(name)
    if not any(found.path.rglob("*.safetensors")):
        raise without_safetensors(found.path)
    folder = read_bert_folder(found.path)
    if folder is None:
        raise UsageError(f"{found.name} is not a BERT-type embedding model, which late interaction needs")
    if documents == "static":

        def load() -> LateEncoder:
            table = packaged_table(folder.path / "model.safetensors")
            if table is None:  # an optional reranker is left out
                raise NotFound(f'ccheck has no table of the tokens of {found.name}. Set documents = "contextual"')
            return StaticEncoder(load_bert(folder), table, max_tokens)

        # Any number of threads may use it, and the evidence asks for the claim that was just ranked with.
        return runtime.once("late", str(folder.path), str(max_tokens), make=load)
    limit = int(read_settings(folder.path / "config.json", dict)["max_position_embeddings"])
    if max_tokens is not None and max_tokens > limit:
        raise UsageError(f"max_tokens is {max_tokens}: {found.name} reads {limit} tokens at most")
    return ContextEncoder(load_bert(dataclasses.replace(folder, max_tokens=max_tokens or folder.max_tokens)))


# -- tables of tokens


@dataclass(frozen=True, slots=True)
class TokenTable:
    """`codes` (int8, shape [vocabulary, width]) times `scales` (float32, [vocabulary]) are the tokens' vectors, each
    part of a unit vector.

    `claims` (float32, [2 * dimensions + width + 1, width]) estimates a token's vector in its context: by least squares,
    from `NumpyBert.claim_states`, its vector here, and 1.
    """

    codes: NDArray[np.int8]
    scales: Floats
    claims: Floats

    def vectors(self, ids: Sequence[int]) -> Floats:
        """The vectors of tokens, shape [ids, width]."""
        rows = np.asarray(ids, np.intp)
        made: Floats = self.codes[rows] * self.scales[rows, None]
        return made

    def in_context(self, ids: Sequence[int], states: Floats) -> Floats:
        """The vectors of tokens of which the model made these states, shape [ids, width]."""
        made: Floats = np.concatenate([states, self.vectors(ids)], 1) @ self.claims[:-1]
        made += self.claims[-1]
        return made


def packaged_table(weights: Path) -> TokenTable | None:
    """The table of the model that has these weights, if it comes with ccheck. `scripts/token_table.py` makes one."""
    from safetensors import safe_open

    identity = file_hash(weights)
    for file in PACKAGED.glob("*.safetensors"):
        with safe_open(file, framework="numpy") as stored:
            if stored.metadata()["weights"] == identity:
                codes, scales, claims = (stored.get_tensor(name) for name in ("codes", "scales", "claims"))
                return TokenTable(codes, scales, claims.astype(np.float32))
    return None
