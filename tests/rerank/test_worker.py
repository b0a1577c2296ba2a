"""The queue and the thread that runs models: shared batches, turns, what fails and what is no longer wanted."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError

import pytest

from ccheck.core.errors import InvalidData
from ccheck.rerank.server.dialects import Refusal
from ccheck.rerank.server.worker import SICK_AFTER, Batch, Held, Job, Worker


class Model:
    """Makes upper case of texts, and remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.before = lambda: None

    def run(self, items: Sequence[str]) -> list[str]:
        self.batches.append(list(items))
        self.before()
        if "invalid" in items:
            raise InvalidData("not a number")
        if "boom" in items:
            raise RuntimeError("broken")
        return [item.upper() for item in items]

    def job(self, name: str, count: int, cost: int = 10) -> Job:
        return Job([f"{name}{i}" for i in range(count)], [cost] * count)


def results(job: Job) -> list[str]:
    return job.done.result(30)


def enqueue(worker: Worker, job: Job) -> None:
    """As `submit`, of a worker that does not run yet."""
    job.due = sum(job.costs)
    worker._tokens_waiting += job.due
    worker._queue.append(job)


def run_all(worker: Worker, *jobs: Job) -> None:
    """All are in the queue before the first batch."""
    for job in jobs:
        enqueue(worker, job)
    worker.start()
    for job in jobs:
        job.done.exception(30)
    worker.stop(30)


def test_requests_share_a_batch_and_get_their_own_results() -> None:
    model, seen = Model(), list[Batch]()
    jobs = [model.job(name, 2) for name in "abc"]
    run_all(Worker(model.run, 100, seen.append), *jobs)
    assert model.batches == [["a0", "a1", "b0", "b1", "c0", "c1"]]
    assert [results(job) for job in jobs] == [[f"{name}0", f"{name}1"] for name in "ABC"]
    assert [(batch.requests, batch.items, batch.tokens) for batch in seen] == [(3, 6, 60)]


def test_a_small_request_does_not_wait_for_a_huge_one() -> None:
    model = Model()
    huge, small = model.job("h", 100), model.job("s", 2)
    run_all(Worker(model.run, 100), huge, small)
    first = [batch for batch in model.batches if "s0" in batch]
    assert first == model.batches[:1] and "h0" in first[0] and len(model.batches) == 11
    assert results(huge) == [f"H{i}" for i in range(100)] and results(small) == ["S0", "S1"]


def test_a_huge_request_does_not_starve_however_many_small_ones_come() -> None:
    """With every batch another small request comes, which alone would fill it; for ever, if that were needed."""
    model = Model()
    worker = Worker(model.run, 100)
    huge = model.job("h", 100)  # 1,000 tokens: ten batches of its own
    small = [huge]
    model.before = lambda: (
        (small.append(model.job("s", 10)), worker.submit(small[-1])) if not huge.done.done() else None
    )
    run_all(worker, huge)
    assert results(huge) == [f"H{i}" for i in range(100)]
    until = next(i for i, batch in enumerate(model.batches) if "h99" in batch)
    assert until <= 21
    first = next(i for i, batch in enumerate(model.batches) if "s9" in batch)
    assert first <= 2  # nor did the small ones wait for it


def test_batches_keep_to_the_budget_and_texts_of_a_request_stay_together() -> None:
    model, seen = Model(), list[Batch]()
    costs = [[7, 30, 3, 90, 250, 1, 1], [60, 60], [5] * 40]
    jobs = [Job([f"{i}.{j}" for j in range(len(row))], row) for i, row in enumerate(costs)]
    run_all(Worker(model.run, 100, seen.append), *jobs)
    assert all(batch.tokens <= 100 or batch.items == 1 for batch in seen)
    assert sum(batch.items for batch in seen) == 49
    for batch in model.batches:
        owners = [item.partition(".")[0] for item in batch]
        assert len(set(owners)) == 1 + sum(a != b for a, b in itertools.pairwise(owners))


def test_what_is_no_longer_wanted_costs_no_more() -> None:
    model = Model()
    huge, other = model.job("h", 50), model.job("o", 3)
    model.before = lambda: huge.done.cancel()
    worker = Worker(model.run, 40)
    for job in (huge, other):
        enqueue(worker, job)
    worker.start()
    assert results(other) == ["O0", "O1", "O2"]
    worker.stop(30)
    assert sum(item[0] == "h" for batch in model.batches for item in batch) <= 4
    assert worker.waiting == (0, 0)
    with pytest.raises(CancelledError):
        huge.done.result(0)


@pytest.mark.parametrize(("text", "error"), [("boom", RuntimeError), ("invalid", InvalidData)])
def test_what_fails_fails_for_its_own_request_alone(text: str, error: type[Exception]) -> None:
    model = Model()
    good, bad, last = model.job("a", 2), Job(["x", text], [10, 10]), model.job("b", 2)
    worker = Worker(model.run, 100)
    run_all(worker, good, bad, last)
    assert results(good) == ["A0", "A1"] and results(last) == ["B0", "B1"]
    with pytest.raises(error):
        results(bad)


def test_a_model_that_fails_again_and_again_is_not_healthy() -> None:
    model = Model()
    worker = Worker(model.run, 100)
    worker.start()
    for count in range(SICK_AFTER):
        assert worker.healthy, count
        bad = Job(["boom"], [1])
        worker.submit(bad)
        assert isinstance(bad.done.exception(30), RuntimeError)
    assert not worker.healthy
    good = model.job("a", 1)
    worker.submit(good)
    results(good)
    assert worker.healthy
    worker.stop(30)
    assert not worker.healthy


def test_stopping_finishes_what_was_taken_and_takes_no_more() -> None:
    model, entered, go = Model(), threading.Event(), threading.Event()
    model.before = lambda: (entered.set(), go.wait(30))
    worker = Worker(model.run, 20)
    jobs = [model.job("a", 1), model.job("b", 9)]
    worker.start()
    worker.submit(jobs[0])
    assert entered.wait(30)
    worker.submit(jobs[1])
    assert worker.waiting == (1, 90) and worker.seconds_to_wait >= 1
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    while not worker._stopping:
        pass
    with pytest.raises(Refusal, match="stopping") as refused:
        worker.submit(model.job("c", 1))
    assert refused.value.status == 503
    go.set()
    stopping.join(30)
    assert [len(results(job)) for job in jobs] == [1, 9]


def test_what_is_held_is_limited() -> None:
    held = Held(100, "bytes", lambda: 7)
    with held.some(60) as add:
        with pytest.raises(Refusal, match="bytes") as refused, held.some(41):
            raise AssertionError
        assert (refused.value.status, refused.value.retry_after) == (429, 7)
        with pytest.raises(Refusal, match="full"), held.some() as other:
            other(41)
        add(40)
    assert held.used == 0
