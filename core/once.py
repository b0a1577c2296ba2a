"""Loading once what several threads ask for at the same time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """Over a cached function: without this, each of several threads would load what the first one is loading."""
    lock = threading.RLock()

    @functools.wraps(function)
    def call(*args: P.args, **how: P.kwargs) -> R:
        with lock:
            return function(*args, **how)

    return call
