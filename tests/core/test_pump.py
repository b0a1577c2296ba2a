"""Batches that other threads write: the order in which they are settled, and what an error leaves."""

from __future__ import annotations

import threading
import time

import pytest

from ccheck.core.errors import ServerError
from ccheck.core.pump import Pump


def test_batches_are_settled_in_their_order() -> None:
    settled: list[tuple[int, int]] = []
    last_wrote = threading.Event()
    with Pump[int, int]("test", 2, lambda batch, wrote: settled.append((batch, wrote)), pytest.fail) as pump:
        pump.put(1, lambda: 10 * last_wrote.wait(10), 2)
        pump.put(2, lambda: 20, 2)
        pump.settle(2)
        assert settled == [] and not pump.idle
        last_wrote.set()
    assert settled == [(1, 10), (2, 20)] and pump.idle


def test_after_an_error_nothing_is_begun_or_settled() -> None:
    settled: list[int] = []
    failures: list[BaseException] = []
    begun: list[int] = []
    told = threading.Event()

    def failed(error: BaseException) -> None:
        failures.append(error)
        told.set()

    def lost() -> int:
        raise ServerError("gone")

    def waiting() -> int:  # for a server, until it is told
        told.wait(10)
        time.sleep(0.2)
        return 20

    with (
        pytest.raises(ServerError, match="gone"),
        Pump[int, int]("test", 1, lambda batch, wrote: settled.append(batch), failed) as pump,
    ):
        pump.put(1, lost, 3)
        pump.put(2, waiting, 3)
        pump.put(3, lambda: begun.append(3) or 3, 3)
    assert [str(error) for error in failures] == ["gone"] and told.is_set()
    assert settled == begun == []
