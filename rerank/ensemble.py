"""Several rerankers as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..fusion import fuse
from ..stages import Fusion
from .types import Reranker, Scores


class EnsembleReranker:
    """Rerankers that read the same passages, and whose rankings become one.

    `rrf`: the sum of 1 / (k + rank) (Cormack, Clarke and Büttcher, SIGIR 2009). `mean`: the mean of each one's scores
    scaled to 0..1 over the passages. A passage counts as cut where one of them cut it. What one raises is raised.
    """

    def __init__(self, rerankers: Sequence[Reranker], method: Literal["rrf", "mean"] = "rrf", k: int = 60) -> None:
        self._rerankers, self._method, self._k = tuple(rerankers), method, k
        self.name = f"{method} of {', '.join(reranker.name for reranker in rerankers)}"

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        every = [reranker(query, passages) for reranker in self._rerankers]
        rankings = {
            str(number): sorted(enumerate(scores.values), key=lambda item: (-item[1], item[0]))
            for number, scores in enumerate(every)
        }
        fusion = Fusion(method="rrf" if self._method == "rrf" else "minmax", k=self._k)
        share = 1.0 if self._method == "rrf" else 1 / len(every)
        fused = dict(fuse(rankings, dict.fromkeys(rankings, share), fusion))
        cut = tuple(any(scores.cut[i] for scores in every) for i in range(len(passages)))
        return Scores(tuple(fused[i] for i in range(len(passages))), cut, logits=False)
