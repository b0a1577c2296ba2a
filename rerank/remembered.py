"""A reranker that keeps its scores, so that the same weights never score a pair twice."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..core.errors import CcheckError
from ..core.memory import Memory, memory_key
from .apply import score_many
from .types import Request, Reranker, Scores, only


class RememberedReranker:
    """Asks another reranker only for the pairs that the memory does not have.

    `identity` stands for everything that its scores depend on beside the texts: weights and options. `together`: they
    depend on the other passages too.
    """

    def __init__(self, reranker: Reranker, memory: Memory, identity: str, *, together: bool = False) -> None:
        self.name = reranker.name
        self._reranker, self._memory, self._identity, self._together = reranker, memory, identity, together

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """See the reranker's own. Raises what it raises."""
        return only(self.many([(query, passages)]))

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        keys = [
            [memory_key("rerank", self._identity, query, text, *beside) for text in passages]
            for query, passages in requests
            for beside in [[memory_key(*passages)] if self._together else []]
        ]
        known = self._memory.get("rerank", [key for some in keys for key in some])
        missing = [
            (query, [text for text, key in zip(passages, some, strict=True) if key not in known])
            for (query, passages), some in zip(requests, keys, strict=True)
        ]
        asked = [place for place, (_, passages) in enumerate(missing) if passages]
        fresh = dict(zip(asked, score_many(self._reranker, [missing[place] for place in asked]), strict=True))
        made: dict[bytes, bytes] = {}
        for place, scores in fresh.items():
            if not isinstance(scores, CcheckError):
                new = [key for key in keys[place] if key not in known]
                for key, value, cut in zip(new, scores.values, scores.cut, strict=True):
                    made[key] = json.dumps([value, cut, scores.logits]).encode()
        self._memory.put("rerank", made)
        known |= made
        answers: list[Scores | CcheckError] = []
        for place, some in enumerate(keys):
            failed = fresh.get(place)
            if isinstance(failed, CcheckError):
                answers.append(failed)
                continue
            rows = [json.loads(known[key]) for key in some]
            logits = bool(rows[0][2]) if rows else True
            answers.append(Scores(tuple(row[0] for row in rows), tuple(row[1] for row in rows), logits))
        return answers
