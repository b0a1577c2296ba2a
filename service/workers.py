"""Claims that are checked in several processes, so that one server uses more than a few cores.

The server keeps what is shared: jobs, record, limits, papers. A worker gets claims, tells what happens on their way and
returns results. Its standard input is a socket, over which comes a further socket for each question: a line of JSON
there, and lines back. Whoever closes that one stops the check at its next step. The first one ends with the server, in
whatever way that ends, and so does the worker.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import astuple, replace
from io import BufferedRWPair
from typing import Any

from more_itertools import chunked
from pydantic import SecretStr

from ..core import errors
from ..core.answers import built
from ..core.closing import Closing
from ..core.errors import CcheckError, ServerError, UsageError
from ..core.http import pause
from ..core.recipe import Recipe
from ..core.runtime import Runtime
from ..core.settings import Settings
from ..core.telemetry import FAREWELL_SECONDS, finish, join_trace, trace_headers
from ..core.text import json_line
from ..core.types import Claim, Filter, Result
from ..pipeline.checker import Checker
from ..pipeline.run import Tell
from .service import Service
from .types import How

TRIES = 3
"""How many workers may end over a claim."""
CLAIMS = 4
"""How many claims of a file a question has: few, so that all workers have some and the first answers come soon."""
NO_WORKER = "no worker process runs: the server's log says why"
log = logging.getLogger(__name__)


class _Worker:
    """A process. `asked`: how many questions it has now. `failed`: the last one ended before it was ready."""

    control: socket.socket
    process: subprocess.Popen[bytes] | None = None
    ready = failed = False
    asked = 0


class Workers(Closing):
    """Processes that check claims as a `Checker` does. One that ends is replaced, and its claims are checked again."""

    def __init__(self, number: int, settings: Settings, recipe: Recipe) -> None:
        """Starts them, and waits for none. `recipe` is the one to be ready for. Raises UsageError where that can't be,
        or a budget would not hold."""
        if not hasattr(socket, "send_fds"):
            raise UsageError("--workers needs Linux or macOS")
        if settings.llm_max_calls is not None or settings.llm_max_cost is not None:
            raise UsageError(
                "--workers: each process would count its own calls to the language model, so llm_max_calls and "
                "llm_max_cost would not hold. Leave out --workers or these settings"
            )
        share = {"llm_concurrency": max(1, settings.llm_concurrency // number)}
        first = {"settings": sent(settings.model_copy(update=share)), "recipe": recipe.model_dump(mode="json")}
        self._first, self._state, self._closed = json_line(first).encode(), threading.Condition(), threading.Event()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._environment = {"OMP_NUM_THREADS": str(max(1, cores // number)), **os.environ}
        self._workers = [_Worker() for _ in range(number)]
        self._threads = [threading.Thread(target=self._keep, args=(one,), daemon=True) for one in self._workers]
        for thread in self._threads:
            thread.start()

    @property
    def ready(self) -> int:
        """How many can check now."""
        return sum(one.ready for one in self._workers)

    def missing(self) -> str | None:
        """Why nothing can be checked now. Waits until one is ready, or none will be."""
        with self._state:
            self._state.wait_for(
                lambda: self.ready or self._closed.is_set() or all(one.failed for one in self._workers)
            )
            return None if self.ready else NO_WORKER

    def check_many(
        self, checker: Checker, claims: Iterable[Claim], *, k: int, filters: Sequence[Filter], tell: Tell | None
    ) -> Iterator[Result]:
        """See `Checker.check_many`: that checker's answers, and its errors."""
        how = {"recipe": checker.recipe.model_dump(mode="json"), "k": k, "filters": list(map(astuple, filters))}
        how |= {"tells": tell is not None, "trace": trace_headers()}
        answered = False

        def ask(some: Sequence[Claim]) -> Generator[Any, None, None]:
            lines = self._lines(json_line({**how, "claims": list(map(astuple, some))}).encode())
            next(lines, None)
            return lines

        def failed(claim: Claim, error: CcheckError) -> Result:
            return Result(claim, (), None, checker.recipe.name, checker.store.name, error=error)

        def results(some: Sequence[Claim], lines: Generator[Any, None, None], tries: int) -> Iterator[Result]:
            nonlocal answered
            left = deque(some)
            with closing(lines):
                for kind, *said in lines:
                    if kind == "told" and tell is not None:
                        tell(some[said[0]], *said[1:])
                    elif kind == "result":
                        answered = answered or said[1] is None
                        yield replace(built(said[0]), claim=left.popleft(), error=said[1] and _error(*said[1]))
                    elif not answered:  # it would stop every claim
                        raise _error(*said)
                    else:
                        yield from (failed(left.popleft(), _error(*said)) for _ in list(left))
                    if not left:
                        return
            for claim in left:  # each by itself: one of them may be what ends workers
                if tries < TRIES:
                    yield from results([claim], ask([claim]), tries + 1)
                else:
                    yield failed(claim, ServerError(f"{TRIES} worker processes ended while they checked this claim"))

        asked: deque[tuple[list[Claim], Generator[Any, None, None]]] = deque()
        try:
            for some in chunked(claims, CLAIMS):
                asked.append((some, ask(some)))
                if len(asked) > 2 * len(self._workers):  # a worker has the next ones while it checks
                    yield from results(*asked.popleft(), 1)
            while asked:
                yield from results(*asked.popleft(), 1)
        finally:
            for _, lines in asked:
                lines.close()

    def _lines(self, question: bytes) -> Generator[Any, None, None]:
        """Asks the worker that has least to do, and yields None. Then its answers, until it ends."""
        with self._state:
            if (missing := self.missing()) is not None:
                raise ServerError(missing)
            worker = min((one for one in self._workers if one.ready), key=lambda one: one.asked)
            worker.asked += 1
            control, ended = worker.control, False
        try:
            with suppress(OSError), _asked(control, question) as answers:
                yield None
                yield from (json.loads(line) for line in answers if line.endswith(b"\n"))
            ended = True
        finally:
            with self._state:
                worker.asked -= 1
                if ended and worker.control is control:
                    worker.ready = False  # nobody asks it again

    def _keep(self, worker: _Worker) -> None:
        """Have a worker run until `close`."""
        tries = 0
        while not self._closed.wait(pause(tries, longest=60) if tries else 0):
            ready, why = False, "it can't be started"
            worker.control, theirs = socket.socketpair()
            with worker.control, suppress(OSError):
                with theirs, self._state:
                    if self._closed.is_set():
                        return
                    # -P: what lies in the current folder is not imported. A session of its own: Ctrl-C is not for it.
                    command, pipe = [sys.executable, "-P", "-m", __name__], theirs.fileno()
                    worker.process = subprocess.Popen(  # noqa: S603
                        command, stdin=pipe, stdout=2, env=self._environment, start_new_session=True
                    )
                with worker.process as process:
                    with suppress(OSError), _asked(worker.control, self._first) as answers:
                        ready = bool(answers.readline())
                        self._set(worker, ready=ready)
                        answers.readline()  # when it ends
                    self._set(worker)
                    process.kill()
                    why = f"exit code {process.wait()}"
            tries = 0 if ready else tries + 1
            if not ready:
                self._set(worker, failed=True)
            if not self._closed.is_set():
                log.warning("a worker process ended (%s) and is replaced. Its claims are checked again", why)

    def _set(self, worker: _Worker, *, ready: bool = False, failed: bool = False) -> None:
        with self._state:
            worker.ready, worker.failed = ready, failed
            self._state.notify_all()

    def close(self) -> None:
        """Ends the processes, which may still send what they traced."""
        with self._state:
            self._closed.set()
            self._state.notify_all()
            for one in self._workers:
                with suppress(AttributeError, OSError):
                    one.control.shutdown(socket.SHUT_RDWR)
        for thread, one in zip(self._threads, self._workers, strict=True):
            thread.join(FAREWELL_SECONDS + 1)
            if thread.is_alive() and one.process is not None:
                one.process.kill()
            thread.join()


def _asked(control: socket.socket, question: bytes) -> BufferedRWPair:
    """Sends a worker a socket with a question. Raises OSError if it has ended."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(control, [b"?"], [theirs.fileno()])
        stream = ours.makefile("rwb")
    stream.write(question)
    stream.flush()
    return stream


def _said(error: CcheckError) -> tuple[str, str]:
    return next(one.__name__ for one in type(error).__mro__ if hasattr(errors, one.__name__)), str(error)


def _error(name: str, text: str) -> CcheckError:
    """The error of that name in `core/errors.py`. Raises RuntimeError for a bug, which has none."""
    if not name:
        raise RuntimeError("a bug in a worker process; its lines in the log have the details")
    kind: type[CcheckError] = getattr(errors, name)
    return kind.__new__(kind, text)  # a MissingExtra is made of something else


def sent(settings: Settings) -> dict[str, Any]:
    """JSON values of settings, secrets included, and of what the user chose among them."""

    def plain(value: object) -> str:
        return value.get_secret_value() if isinstance(value, SecretStr) else str(value)

    said = {"values": settings.model_dump(exclude_unset=True), "yours": settings._yours}
    values: dict[str, Any] = json.loads(json.dumps(said, default=plain))
    return values


def received(said: Mapping[str, Any]) -> Settings:
    """The settings that were `sent`."""
    settings = Settings.model_validate(said["values"])
    settings._yours = said["yours"]
    return settings


# -- in a worker


def _load(loaded: Future[Service], asked: BufferedRWPair) -> None:
    """Loads the models: the first question says which."""
    try:
        first = json.loads(asked.readline())
        checker = Checker(Runtime(received(first["settings"])), recipe=Recipe.model_validate(first["recipe"]))
        service = Service(checker, record=False)
        service.describe()
        loaded.set_result(service)
        asked.write(b"ready\n")
        asked.flush()
        threading.Event().wait()  # the socket stays open: the server sees from it when this process ends
    except BaseException:
        log.exception("a worker process can't start")
        os._exit(1)


def _answer(loaded: Future[Service], asked: BufferedRWPair) -> None:
    """Answers a question. Once nobody listens, the next step is the last."""

    def say(*what: Any) -> None:
        asked.write(json_line(what).encode())
        asked.flush()

    with suppress(BrokenPipeError, ConnectionResetError), asked:
        question = json.loads(asked.readline())
        join_trace(question["trace"])
        claims, filters = [Claim(*one) for one in question["claims"]], [Filter(*one) for one in question["filters"]]
        tell: Tell = lambda claim, *what: say("told", claims.index(claim), *what)  # noqa: E731
        how = How(k=question["k"], filters=filters, recipe=Recipe.model_validate(question["recipe"]))
        try:
            for result in loaded.result().results(claims, tell if question["tells"] else None, **how):
                say("result", result.to_dict(), None if result.error is None else _said(result.error))
        except CcheckError as error:
            say("error", *_said(error))
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception:
            log.exception("a bug in a worker process")
            say("error", "", "")


def main() -> None:
    """A worker: answers each question in a thread of its own, until the server has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a service manager may send it to all: the server ends this one
    gc.set_threshold(50_000)  # as in `cli`
    control, loaded, work = socket.socket(fileno=0), Future[Service](), _load
    with suppress(ConnectionResetError):
        while (found := socket.recv_fds(control, 1, 1))[0]:
            with socket.socket(fileno=found[1][0]) as asked:
                stream = asked.makefile("rwb")
            threading.Thread(target=work, args=(loaded, stream), daemon=True).start()
            work = _answer
    finish()
    os._exit(0)


if __name__ == "__main__":
    main()
