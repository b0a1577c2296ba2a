"""Reranking by late interaction: each token of the claim is compared with the most similar token of the document.

MaxSim is ColBERT's (Khattab and Zaharia, SIGIR 2020, equation 3). `encode/late.py` embeds the tokens.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence, Set
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..encode.late import LateEncoder
from .types import Scores, not_finite

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
        values = [maxsim(claim.vectors, one.vectors, weights, self._window) for one in read]
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


def maxsim(claim: Vectors, passage: Vectors, weights: Sequence[float], window: int = 0) -> float:
    """The weighted mean over a claim's tokens of the largest product with a token of the passage.

    Shapes: [claim tokens, dimensions], [passage tokens, dimensions]; of unit length. With a `window` it is the largest
    over stretches of so many tokens, each half a window after the one before. 0 where one of them has no tokens.
    """
    if not len(claim) or not len(passage):
        return 0.0
    products = claim.astype(np.float32, copy=False) @ passage.astype(np.float32, copy=False).T
    size = min(window or len(passage), len(passage))
    # [claim tokens, stretches]; the last stretches may be shorter.
    starts = range(0, len(passage), max(1, size // 2)) if size < len(passage) else (0,)
    best = np.stack([products[:, start : start + size].max(1) for start in starts], 1)
    share = np.asarray(weights, np.float32)
    return float((share @ best).max() / share.sum())
