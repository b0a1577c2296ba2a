"""Loading once what several threads ask for at the same time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


def loaded_once(function: Callable[..., R]) -> Callable[..., R]:
    """`functools.lru_cache` that keeps one value, and whose value one thread makes while the others wait for it.

    With the cache of the library alone, each of several threads would load what the first one is loading.
    """
    lock, made = threading.RLock(), functools.lru_cache(maxsize=1)(function)

    @functools.wraps(function)
    def wait(*given: object) -> R:
        with lock:
            return made(*given)

    found: Callable[..., R] = functools.lru_cache(maxsize=1)(wait)  # so that what is loaded costs no lock
    return found
