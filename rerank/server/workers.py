"""A model in processes of its own, one for each device, so that one server uses them all.

The server has the tokenizer and the queue. A worker gets a batch of ids and returns its scores before it gets another.
One that ends, or takes longer for a batch than a request may, is replaced, and another one does its batch. A batch's
scores are read only from the process that has it, so none come twice.
"""

from __future__ import annotations

import math
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import IO, Any

import orjson

from ...core.closing import Closing
from ...core.errors import CcheckError, InvalidData, NotFound, ServerError, UsageError
from ...core.http import pause
from ...core.runtime import Runtime
from ...core.settings import Settings
from ...core.stages import ModelStage
from ..load import load_scorer
from .canary import Canary, check_scorer
from .guard import Limits

TRIES = 3
"""How often the last worker is started again, and how many may fail over a batch. Those that are killed don't count."""


_ERRORS: dict[str, type[CcheckError]] = {one.__name__: one for one in (UsageError, NotFound, InvalidData, ServerError)}
"""What a worker can say instead of an answer; anything else is a CcheckError."""


class _Ended(ServerError):
    """The worker's process gave no answer, and was ended if it had not ended itself: above 0, by an error."""

    def __init__(self, device: str, code: int) -> None:
        super().__init__(f"the worker on {device} was ended ({code})")
        self.code = code


class _Worker(Closing):
    """A process and what it is told first. For one thread at a time."""

    process: subprocess.Popen[bytes] | None = None

    def __init__(self, device: str, *asked: object) -> None:
        self.device, self._asked = device, (device, *asked)

    def start(self) -> None:
        """Returns when the model is loaded. Raises _Ended, or the CcheckError for which it can't be."""
        # -P: what lies in the current folder is not imported. A session of its own: Ctrl-C is for the server.
        command = [sys.executable, "-P", "-m", __name__]
        self.process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        if isinstance(answer := self.ask(self._asked, threading.TIMEOUT_MAX), CcheckError):
            self.close()
            raise answer

    def ask(self, question: object, seconds: float) -> Any:
        """The process's answer, which may be a CcheckError. Raises _Ended if there is none in time."""
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        late = threading.Timer(seconds, process.kill)
        late.start()
        try:
            _send(question, process.stdin)
            answer = orjson.loads(process.stdout.readline())  # nothing, if it ended
        except (OSError, ValueError) as error:
            self.close()
            raise _Ended(self.device, process.returncode) from error
        finally:
            late.cancel()
        return _ERRORS.get(answer["error"], CcheckError)(answer["said"]) if isinstance(answer, dict) else answer

    def close(self) -> None:
        if self.process is not None:
            with suppress(BrokenPipeError), self.process as process:
                process.kill()


class Workers(Closing):
    """A scorer whose forward pass runs in several processes.

    `failed`: why there are none any more. The server is then told to stop.
    """

    failed: ServerError | None = None

    def __init__(
        self, devices: str, runtime: Runtime, stage: ModelStage, limits: Limits, canary: Canary = "order"
    ) -> None:
        """Loads the model of a stage on each of the `devices`, as in `cuda:0,cuda:1`.

        Raises what `load_scorer` and `check_scorer` raise, and ServerError for a process that ends before.
        """
        names = [name.strip() for name in devices.split(",")]
        if not all(names):
            raise UsageError(f"--devices {devices!r}: a name is missing (example: cuda:0,cuda:1)")
        self._notify, self._seconds = runtime.notify, limits.timeout
        # The server needs only the tokenizer.
        here = load_scorer(stage.model, runtime.using(device="meta"), stage.model_copy(update={"dtype": "bfloat16"}))
        self.scorer = replace(here, forward=self._forward, at_once=len(names))
        asked = stage.model_dump(mode="json"), limits.batch_tokens, canary, names.count("cpu")
        self.workers = [_Worker(name, *asked) for name in names]
        self._free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._starting, self._closed = ThreadPoolExecutor(len(names)), threading.Event()
        try:
            list(self._starting.map(_Worker.start, self.workers))
        except BaseException:
            self.close()
            raise
        self._ready = set(self.workers)
        for worker in self.workers:
            self._free.put(worker)

    def _forward(self, sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]) -> list[tuple[int, float]]:
        tries, until = 0, time.monotonic() + 2 * self._seconds
        while tries < TRIES and time.monotonic() < until:
            worker = self._free.get()
            try:
                scored: Any = self.failed or worker.ask((sequences, prefixes), self._seconds)
            except _Ended as error:
                self._notify(f"{error}; another does its work")
                tries += error.code > 0
                self._ready.discard(worker)
                self._starting.submit(self._replace, worker)
                continue
            self._free.put(worker)
            if isinstance(scored, CcheckError):
                raise scored
            return [(place, math.nan if value is None else value) for place, value in scored]  # JSON has no NaN
        raise ServerError("worker after worker ended over these texts")

    def _replace(self, worker: _Worker) -> None:
        number = 0
        while not self._closed.wait(pause(number := number + 1, longest=60)):
            try:
                worker.start()
            except (CcheckError, OSError) as error:
                why = f"the worker on {worker.device} can't be started again: {error}"
                self._notify(f"{why} (try {number})")
                if number < TRIES or self._ready:
                    continue
                self.failed = ServerError(f"no worker is left: {why}")
                signal.raise_signal(signal.SIGTERM)
            else:
                self._notify(f"the worker on {worker.device} was started again")
                self._ready.add(worker)
            self._free.put(worker)  # if it failed, so that whoever waits is told
            return

    def close(self) -> None:
        """Ends the processes, whatever they do, and one that is just starting."""
        self._closed.set()
        self._end()
        self._starting.shutdown()
        self._end()

    def _end(self) -> None:
        for worker in self.workers:
            worker.close()


def _send(what: object, pipe: IO[bytes]) -> None:
    """A line of JSON: token ids there, scores and errors back."""
    if isinstance(what, CcheckError):
        what = {"error": type(what).__name__, "said": str(what)}
    pipe.write(orjson.dumps(what) + b"\n")
    pipe.flush()


def main() -> None:
    """A worker: loads the model that it is told of, then scores batches until there are no more."""
    import torch

    # A service manager may send SIGTERM to all. It is for the server, which finishes what it took.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    questions, answers, sys.stdout = sys.stdin.buffer, sys.stdout.buffer, sys.stderr
    device, asked, batch_tokens, canary, share = orjson.loads(questions.readline())
    stage = ModelStage.model_validate(asked)
    torch.set_num_threads(max(1, torch.get_num_threads() // max(1, share)))
    answer: object = None
    try:
        scorer = load_scorer(stage.model, Runtime(Settings(device=device)), stage, batch_tokens)
        check_scorer(scorer, canary)
    except CcheckError as error:
        answer = error
    with suppress(BrokenPipeError):
        _send(answer, answers)
        for line in questions:
            sequences, prefixes = orjson.loads(line)
            try:
                answer = list(scorer.forward([tuple(one) for one in sequences], prefixes))
            except torch.OutOfMemoryError as error:
                answer = ServerError(str(error))
            # Whatever else the model raises ends the process, since a failure of CUDA lasts.
            _send(answer, answers)


if __name__ == "__main__":
    main()
