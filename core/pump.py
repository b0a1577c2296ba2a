"""Batches that the calling thread makes, other threads write, and the calling thread settles in their order.

Ingests, enrichments and migrations go through it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

B = TypeVar("B")
W = TypeVar("W")


REMEMBERED_AFTER = 10.0
"""Seconds of work that a killed run may have to look at again."""


class Pump(Generic[B, W]):
    """Use it in `with`: at the end everything is settled, or after an error what no thread has begun is dropped.

    `settled` is told each batch and the outcome of its write. `failed` is told an error or an interrupt, before the
    threads are waited for, so that they need not wait for a server any longer. `remember` notes now and then how far
    the settled batches go.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        settled: Callable[[B, W], None],
        failed: Callable[[BaseException], None],
        remember: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._settled, self._failed, self._remember = settled, failed, remember
        self._remembered = time.monotonic()
        self._pending: deque[tuple[B, Future[W]]] = deque()

    @property
    def idle(self) -> bool:
        return not self._pending

    def put(self, batch: B, write: Callable[[], W], most: int) -> None:
        """Have a batch written, once at most so many others are under way. Raises what writing others raised."""
        self.settle(most)
        self._pending.append((batch, self._pool.submit(write)))

    def settle(self, most: int = 0) -> None:
        """Settle what was written, and wait until at most so many batches are left. Raises what writing raised."""
        while self._pending and (len(self._pending) > most or self._pending[0][1].done()):
            batch, future = self._pending[0]
            outcome = future.result()
            self._pending.popleft()
            self._settled(batch, outcome)
            if time.monotonic() - self._remembered >= REMEMBERED_AFTER:
                self._remember()
                self._remembered = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.settle()
        except BaseException as raised:
            error = raised
            raise
        finally:
            if error is not None:
                self._failed(error)
            self._pool.shutdown(wait=True, cancel_futures=True)
