"""One queue and one thread that runs models: the texts of many requests share its batches, and none starves.

A request is due at the tokens that the worker had done when it came, plus its own; who is due first goes first. So a
small request overtakes a huge one, but a huge one waits for no more than came before it and its own size; equal ones
are done in the order in which they came, which keeps the mean latency low (as Friedman and Henderson's fair sojourn
protocol, SIGMETRICS 2003).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...core.errors import CcheckError
from .dialects import Refusal

SICK_AFTER = 3
"""After this many failures of the model in a row that were not caused by the texts, the server is unhealthy."""
MOST_SECONDS_TO_WAIT = 60
_log = logging.getLogger(__name__)
Run: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Work that ran at once: its items and tokens, the number of requests that they belong to, and its seconds."""

    requests: int
    items: int
    tokens: int
    seconds: float


class Job:
    """The items of one request, and what a model makes of them. Cancel `done` to have no more work spent on it."""

    __slots__ = ("_missing", "costs", "done", "due", "items", "next", "results")

    def __init__(self, items: Sequence[Any], costs: Sequence[int]) -> None:
        """`costs`: tokens of each item."""
        self.items, self.costs = items, costs
        self.due = 0
        self.next = 0
        self.results: list[Any] = [None] * len(items)
        self.done: Future[list[Any]] = Future()
        self._missing = len(items)

    def put(self, start: int, results: Sequence[Any]) -> None:
        self.results[start : start + len(results)] = results
        self._missing -= len(results)
        if self._missing == 0 and self._still_wanted():
            self.done.set_result(self.results)

    def fail(self, error: BaseException) -> None:
        if self._still_wanted():
            self.done.set_exception(error)

    def _still_wanted(self) -> bool:
        return not self.done.done() and self.done.set_running_or_notify_cancel()

    @property
    def taken(self) -> bool:
        """Whether every item was given to the model."""
        return self.next == len(self.items)


Turn = tuple[Job, int, int]
"""A job, and its items from the first number to before the second one."""


class Worker:
    """The thread and its queue."""

    def __init__(self, run: Run, batch_tokens: int, observe: Callable[[Batch], None] = lambda batch: None) -> None:
        """In the worker's thread, `run` makes a result of each item, in order, and `observe` is told of each batch."""
        self.batch_tokens = batch_tokens
        self._run_model = run
        self._observe = observe
        self._queue: list[Job] = []
        self._tokens_done = 0
        self._tokens_waiting = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._failures = 0
        self._tokens_per_second = 0.0
        # A daemon, so that a model that hangs can't keep the program from ending.
        self._thread = threading.Thread(target=self._work, name="ccheck-rerank-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Finish what was accepted, and accept no more."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout)

    @property
    def healthy(self) -> bool:
        return self._thread.is_alive() and self._failures < SICK_AFTER

    def submit(self, job: Job) -> None:
        """Raises Refusal if the worker is stopping."""
        with self._changed:
            if self._stopping or not self._thread.is_alive():
                raise Refusal(503, "the server is stopping", 1)
            tokens = sum(job.costs)
            job.due = self._tokens_done + tokens
            self._tokens_waiting += tokens
            self._queue.append(job)
            self._changed.notify()

    @property
    def waiting(self) -> tuple[int, int]:
        """Requests and tokens that wait; those of a caller who hung up until the next batch."""
        with self._changed:
            return len(self._queue), self._tokens_waiting

    @property
    def seconds_to_wait(self) -> int:
        """How long what waits will take, from what the last batches took; at least 1."""
        tokens = self.waiting[1]
        expected = tokens / self._tokens_per_second if self._tokens_per_second else 1
        return max(1, min(MOST_SECONDS_TO_WAIT, math.ceil(expected)))

    def _work(self) -> None:
        while turns := self._next_batch():
            self._run(turns)

    def _next_batch(self) -> list[Turn]:
        """Waits for work; empty when there is none and there will be none."""
        with self._changed:
            while True:
                # Work that nobody waits for any more is dropped.
                for job in [job for job in self._queue if job.done.done()]:
                    self._queue.remove(job)
                    self._tokens_waiting -= sum(job.costs[job.next :])
                if self._queue:
                    return self._take()
                if self._stopping:
                    return []
                self._changed.wait()

    def _take(self) -> list[Turn]:
        """A batch of the requests that are due first."""
        self._queue.sort(key=lambda job: job.due)
        starts: dict[Job, int] = {}
        room = self.batch_tokens
        for job in self._queue:
            # The first text goes in any case, however long it is.
            while not job.taken and (not starts or job.costs[job.next] <= room):
                starts.setdefault(job, job.next)
                room -= job.costs[job.next]
                job.next += 1
        self._queue = [job for job in self._queue if not job.taken]
        self._tokens_done += self.batch_tokens - room
        self._tokens_waiting -= self.batch_tokens - room
        return [(job, start, job.next) for job, start in starts.items()]

    def _run(self, turns: Sequence[Turn]) -> None:
        """Run the model on a batch; where that fails, on each request's part, so that none fails for another's."""
        try:
            results = self._results(turns)
        except Exception as error:  # noqa: BLE001 - given to the request whose texts these are
            if len(turns) > 1:
                for turn in turns:
                    if not turn[0].done.done():
                        self._run([turn])
                return
            if isinstance(error, CcheckError):
                _log.warning("the model: %s", error)
            else:
                self._failures += 1
                _log.exception("the model failed")
            turns[0][0].fail(error)
            return
        self._failures = 0
        done = 0
        for job, start, end in turns:
            job.put(start, results[done : done + end - start])
            done += end - start

    def _results(self, turns: Sequence[Turn]) -> Sequence[Any]:
        items = [item for job, start, end in turns for item in job.items[start:end]]
        tokens = sum(sum(job.costs[start:end]) for job, start, end in turns)
        started = time.perf_counter()
        results = self._run_model(items)
        seconds = time.perf_counter() - started
        rate = tokens / max(seconds, 1e-6)
        self._tokens_per_second = 0.8 * self._tokens_per_second + 0.2 * rate if self._tokens_per_second else rate
        self._observe(Batch(len(turns), len(items), tokens, seconds))
        return results


class Held:
    """Limits what is in progress: requests, or their bytes. For use in the event loop's thread only."""

    def __init__(self, most: int, unit: str, seconds_to_wait: Callable[[], int]) -> None:
        self.used = 0
        self._most, self._unit, self._seconds_to_wait = most, unit, seconds_to_wait

    @contextmanager
    def some(self, count: int = 0) -> Iterator[Callable[[int], None]]:
        """Holds `count` until the end, and what the function that it gives is told of.

        Raises Refusal where too much is held; so does that function.
        """
        held = 0

        def add(more: int) -> None:
            nonlocal held
            if self.used + more > self._most:
                raise Refusal(429, f"the queue is full ({self._most:,} {self._unit})", self._seconds_to_wait())
            held += more
            self.used += more

        try:
            add(count)
            yield add
        finally:
            self.used -= held
