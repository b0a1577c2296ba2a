"""The other process: it answers, and whatever it does, it ends with a reason and the next question gets a fresh one."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from ccheck.core import child as children
from ccheck.core.child import Child, Ended
from ccheck.core.errors import ServerError
from ccheck.core.pump import Pump

FUNCTIONS = """
import os, sys

def answers(what):
    print("what a library prints")
    yield os.getpid()
    if what == "endless":
        while True:
            pass
    if what == "memory":
        yield len(bytearray(1 << 40))
    if what == "large":
        len(b"x" * (300 << 20))
    if what == "crash":
        os.kill(os.getpid(), 9)
    if what == "deep":
        def deep(): deep()
        deep()
    if what == "error":
        raise KeyError("x")
    if what == "noise":
        for _ in range(2_000): sys.stderr.write("x" * 1_000)
    yield float("nan")
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "hostile_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Child("hostile_functions:answers") as one:
        yield one


def test_one_process_answers_many_questions_and_what_a_library_writes_does_not_fill_the_disk(child: Child) -> None:
    first, second = list(child.ask(0, what="")), list(child.ask(0, what=""))
    assert first == second and first[0] != os.getpid() and first[1] is None  # JSON has no NaN
    with pytest.raises(Ended, match="OSError"):
        list(child.ask(0, what="noise"))


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say how large a process was")
def test_a_process_that_became_large_answers_no_more_questions(child: Child, monkeypatch) -> None:
    monkeypatch.setattr(children, "MEMORY", 1 << 30)
    assert len(b"x" * (500 << 20))  # how large this process was does not count
    first, second, large, fresh = (next(iter(list(child.ask(0, what=what)))) for what in ("", "", "large", ""))
    assert first == second == large != fresh


@pytest.mark.parametrize(
    ("what", "why"),
    [("memory", "memory"), ("crash", "crash"), ("deep", "nested"), ("error", "KeyError"), ("endless", "too long")],
)
def test_what_ends_it_is_said_and_costs_one_question(child: Child, monkeypatch, what: str, why: str) -> None:
    if what == "memory" and sys.platform != "linux":
        pytest.skip("no limit of memory here")
    pid, _ = child.ask(0, what="")
    monkeypatch.setattr(children, "SECONDS", 3.0)  # for two processors that ten others want, too
    asked = child.ask(0, what=what)
    assert next(asked) == pid  # what came before stands
    with pytest.raises(Ended, match=why):
        next(asked)
    monkeypatch.setattr(children, "SECONDS", 30.0)
    assert len(list(child.ask(0, what=""))) == 2


def test_time_that_the_caller_takes_does_not_count(child: Child, monkeypatch) -> None:
    monkeypatch.setattr(children, "SECONDS", 1.0)
    asked = child.ask(0, what="")
    next(asked)
    time.sleep(1.5)
    assert next(asked) is None


def test_a_larger_file_may_take_longer(child: Child, monkeypatch) -> None:
    monkeypatch.setattr(children, "SECONDS", 0.0)
    list(child.ask(10 << 20, what=""))
    with pytest.raises(Ended, match="too long"):
        list(child.ask(0, what="endless"))


def test_a_process_that_nobody_reads_ends(child: Child) -> None:
    asked = child.ask(0, what="endless")
    pid = next(asked)
    asked.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


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
    settled, begun = [], []
    failures: list[BaseException] = []
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
