"""Several servers with the same reranker as one: each piece of work goes to the server that has the least."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from more_itertools import chunked

from ..core.errors import CcheckError, InvalidData, ServerError
from ..core.http import LeftAlone, MayPass, Patience, pause
from .remote import RemoteReranker
from .several import Row, joined, rows_of
from .types import BatchReranker, Request, Scores

PIECE = 16
"""Passages that go to a server together: few enough that the servers end at about the same time."""
AT_ONCE = 4
"""Pieces that a server has at once: it reads the next while it scores one."""


@dataclass(slots=True)
class _Server:
    """A server with the passages that it has now."""

    reranker: RemoteReranker
    passages: int = 0
    away: LeftAlone = field(default_factory=LeftAlone)


class SharedReranker(BatchReranker):
    """Servers that serve the same model. What one fails to score, another does; no piece has two answers.

    A server that is busy or gone is left alone for a while. If all are, they are waited for, as long as `patience`
    says. Safe to use from several threads.
    """

    def __init__(self, rerankers: Sequence[RemoteReranker], patience: Patience) -> None:
        """`rerankers` wait for nothing themselves (`retry_seconds=0`)."""
        self.name = ", ".join(one.name for one in rerankers)
        self.notice = "; ".join(one.notice for one in rerankers if one.notice) or None
        self._servers = [_Server(one) for one in rerankers]
        self._patience = patience
        self._changed = threading.Condition()

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        """The passages of all queries, in pieces, on all servers at once."""
        pieces = [
            (place, query, part)
            for place, (query, passages) in enumerate(requests)
            for part in chunked(passages, PIECE)
        ]
        with ThreadPoolExecutor(max(1, min(len(pieces), AT_ONCE * len(self._servers))), "ccheck-rerank") as threads:
            answers = list(threads.map(lambda piece: self._scored(*piece[1:]), pieces))
        found: list[list[Row | CcheckError]] = [[] for _ in requests]
        for (place, _, part), answer in zip(pieces, answers, strict=True):
            found[place] += rows_of(answer, len(part))
        return [joined(some) for some in found]

    def _scored(self, query: str, passages: Sequence[str]) -> Scores | CcheckError:
        """The scores of the first server that gives them; the last error, if all of them fail for good."""
        refused: list[_Server] = []
        begun = time.monotonic()
        while True:
            server = self._take(len(passages), refused, begun)
            if isinstance(server, CcheckError):
                return server
            error: CcheckError | None = None
            try:
                scores = server.reranker(query, passages)
                self._refuse_others()
                return scores
            except InvalidData as said:  # about these passages: another server would say the same
                return said
            except ServerError as said:
                error = said
            finally:
                self._give_back(server, len(passages), error)
            if not isinstance(error, MayPass):
                refused.append(server)
                if len(refused) == len(self._servers):
                    return error

    def _take(self, passages: int, refused: Sequence[_Server], begun: float) -> _Server | CcheckError:
        """The server with the least work, of those that are there and did not refuse this piece."""
        with self._changed:
            while True:
                now = time.monotonic()
                able = [one for one in self._servers if one not in refused]
                ready = [one for one in able if not one.away]
                if ready:
                    server = min(ready, key=lambda one: one.passages)
                    server.passages += passages
                    return server
                back = min(one.away.until for one in able)
                if back > begun + self._patience.seconds:
                    self._patience.reached = False  # they were waited for once: the next piece need not wait as long
                    names = " and ".join(one.reranker.name for one in able)
                    return ServerError(f"no reranking server was there for {now - begun:.0f} s ({names})")
                self._patience.say("no reranking server is there")
                self._changed.wait(back - now)

    def _give_back(self, server: _Server, passages: int, error: CcheckError | None) -> None:
        with self._changed:
            server.passages -= passages
            if error is None:
                server.away.failures = 0
                self._patience.reached = True
            else:
                after = error.retry_after if isinstance(error, MayPass) else None
                server.away.failed(pause(server.away.failures + 1, after))
            self._changed.notify_all()

    def _refuse_others(self) -> None:
        """Raises InvalidData where two servers say that they serve different models."""
        models = {one.reranker.model for one in self._servers} - {None}
        if len(models) > 1:
            said = " and ".join(sorted(filter(None, models)))
            raise InvalidData(f"the reranking servers {self.name} serve different models: {said}. Name those of one")
