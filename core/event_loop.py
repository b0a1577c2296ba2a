"""The thread in which requests to language models and reranking servers run.

One event loop for the process: a request in it can be cancelled at once, which a thread that waits for a socket can't.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

R = TypeVar("R")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def submit(work: Coroutine[Any, Any, R]) -> Future[R]:
    """Run it in the loop. Cancelling the future cancels the work."""
    return asyncio.run_coroutine_threadsafe(work, _running())


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run it and wait. An interrupt cancels it."""
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _running() -> asyncio.AbstractEventLoop:
    global _loop, _thread
    with _lock:
        if _loop is None or _thread is None or not _thread.is_alive():  # none yet, or this process was forked
            _loop = asyncio.new_event_loop()
            # A daemon: a server that does not answer must not keep the process from ending.
            _thread = threading.Thread(target=_loop.run_forever, daemon=True, name="ccheck-requests")
            _thread.start()
        return _loop
