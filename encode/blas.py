"""The threads of the library that multiplies numpy's matrices."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_running = threading.Lock()
"""How many threads a matrix product takes is a setting of the process."""


@functools.cache
def _library() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Matrix products take one thread each: several wait for each other, busily, longer than they calculate."""
    with _running, _library().limit(limits=1):
        yield


def in_threads(run: Callable[[list[int]], None], batches: Sequence[list[int]]) -> None:
    """Each batch in one thread."""
    from concurrent.futures import ThreadPoolExecutor

    workers = min(
        len(batches), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with one_thread_each():
        if workers < 2:
            for batch in batches:
                run(batch)
            return
        with ThreadPoolExecutor(workers, "ccheck-embed") as pool:
            for _ in pool.map(run, batches):
                pass
