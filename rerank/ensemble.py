"""Several rerankers as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..core.errors import CcheckError
from ..core.fusion import fuse
from ..core.stages import Fusion
from .apply import score_many
from .types import Request, Reranker, Scores, only


class EnsembleReranker:
    """Rerankers that read the same passages, and whose rankings become one.

    `rrf`: the sum of 1 / (k + rank) (Cormack, Clarke and Büttcher, SIGIR 2009). `mean`: the mean of each one's scores
    scaled to 0..1 over the passages. A passage counts as cut where one of them cut it. What one raises is raised.
    """

    def __init__(self, rerankers: Sequence[Reranker], method: Literal["rrf", "mean"] = "rrf", k: int = 60) -> None:
        self._rerankers, self._method, self._k = tuple(rerankers), method, k
        self.notice = "; ".join(filter(None, (getattr(one, "notice", None) for one in rerankers))) or None
        self.name = f"{method} of {', '.join(reranker.name for reranker in rerankers)}"

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        return only(self.many([(query, passages)]))

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        """One model after the other, each for all queries."""
        by_model = [score_many(reranker, requests) for reranker in self._rerankers]
        return [
            self._joined(list(every), len(passages))
            for every, (_, passages) in zip(zip(*by_model, strict=True), requests, strict=True)
        ]

    def _joined(self, found: Sequence[Scores | CcheckError], count: int) -> Scores | CcheckError:
        every: list[Scores] = []
        for scores in found:
            if isinstance(scores, CcheckError):
                return scores
            every.append(scores)
        rankings = {
            str(number): sorted(enumerate(scores.values), key=lambda item: (-item[1], item[0]))
            for number, scores in enumerate(every)
        }
        fusion = Fusion(method="rrf" if self._method == "rrf" else "minmax", k=self._k)
        share = 1.0 if self._method == "rrf" else 1 / len(every)
        fused = dict(fuse(rankings, dict.fromkeys(rankings, share), fusion))
        cut = tuple(any(scores.cut[i] for scores in every) for i in range(count))
        return Scores(tuple(fused[i] for i in range(count)), cut, logits=False)
