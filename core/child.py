"""Strangers' files, read in a process of its own that can be ended: one limit of time and memory for every parser.

A parser can be made slow or greedy by a file of a few kilobytes, in C code that no exception interrupts. So whatever
reads more than lines runs in another process: it may address `MEMORY` bytes (where the system has such a limit), and is
killed if it takes longer than the file's size allows. What it answered until then stands. One process reads many files,
since starting it takes longer than most of them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .closing import Closing

MEMORY = 3 << 30
"""Bytes that the other process may address. pyarrow alone takes about a sixth of it."""
SECONDS, SECONDS_A_MIB = 30.0, 10.0
"""A file may take so long, and so much longer for each MiB of it: ten times what slow parsers take for honest files."""
START_SECONDS = 120.0
ANSWER_SECONDS = 120.0
"""The longest wait for one answer, such as a row, or the only document of a file."""
ANSWER_BYTES = 64 << 20
"""The longest answer, as JSON."""


class Ended(Exception):
    """The process ended before it had answered everything. The message says why, for the reader of a reject."""


class Child(Closing):
    """Calls a generator function in another process, which starts at the first call. Use it in `with`."""

    def __init__(self, function: str, seconds: float = ANSWER_SECONDS) -> None:
        """`function` is `module:name`. It takes and yields what JSON can hold, each answer within so many seconds."""
        self._function, self._seconds = function, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._until: float | None = None
        self._late = False

    def ask(self, size: int, /, **arguments: Any) -> Iterator[Any]:
        """What the function yields for these arguments, about a file of `size` bytes; None for what is too long.

        Raises Ended if the process was killed, crashed or raised. The next call starts another.
        """
        process = self._running()
        assert process.stdin is not None
        left = SECONDS + SECONDS_A_MIB * size / (1 << 20)
        complete = False
        try:
            process.stdin.write(json.dumps(arguments).encode() + b"\n")
            process.stdin.flush()
            while True:
                started = time.monotonic()
                # Only waiting counts: while the answer is used, the other process stands still.
                line = self._line(process, min(left, self._seconds))
                left -= time.monotonic() - started
                kind, value = line[:1], line[1:]
                if kind == b"=":
                    yield json.loads(value, parse_constant=lambda name: None)
                elif kind == b"!":
                    raise Ended(json.loads(value))
                else:
                    complete = kind == b"."
                    return
        except OSError as error:
            raise Ended(self._why(process)) from error
        finally:
            if not complete:
                self.close()

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        assert process.stdout is not None
        self._until = time.monotonic() + seconds
        line = process.stdout.readline(ANSWER_BYTES + 1)
        self._until = None
        if not line.endswith(b"\n"):
            raise Ended(self._why(process))
        return line

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # -P: what lies in the current folder is not imported in place of a library.
            command = [sys.executable, "-P", "-m", __name__, self._function, str(MEMORY)]
            # malloc says when there is no more memory; pyarrow's other pools reserve more than they use.
            own = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            self._late = False
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env={**os.environ, **own}
            )
            threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()
            try:
                self._line(self._process, START_SECONDS)  # what starting takes is not the file's
            except Ended:
                self.close()
                raise
        return self._process

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            time.sleep(0.1)
            if (until := self._until) is not None and time.monotonic() > until:
                self._late = True
                process.kill()

    def _why(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        if self._late:
            return "reading it takes too long"
        self._errors.seek(0)
        said = self._errors.read(1 << 16).decode("utf-8", "replace").strip().rpartition("\n")[2]
        return said[:200] if code == 1 and said else "it made the reader crash"

    def close(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was to be written has no reader any more
                pipe.close()
        process.wait()
        self._errors.close()


def _peak() -> int:
    """The most bytes that this process has had in memory; 0 where the system does not say."""
    with contextlib.suppress(OSError, IndexError):  # not Linux
        # getrusage begins with the peak of the process that started this one.
        status = Path("/proc/self/status").read_bytes()
        return int(status.partition(b"VmHWM:")[2].split()[0]) << 10
    try:
        import resource
    except ModuleNotFoundError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Answers questions until there are no more. `=` begins an answer, `!` an error, `.` and `,` end the answers."""
    memory = int(sys.argv[2])
    with contextlib.suppress(ModuleNotFoundError, OSError, ValueError):  # Windows, macOS
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # what libraries write to standard error
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    # Above it the process has become so large that the next file should have a fresh one.
    large = max(memory // 4, _peak())
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints is no answer
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    from .errors import why_unread

    answers.write(b".\n")
    answers.flush()
    for question in sys.stdin.buffer:
        ended = b".\n"
        try:
            for value in function(**json.loads(question)):
                line = json.dumps(value).encode()
                answers.write(b"=%b\n" % (line if len(line) < ANSWER_BYTES - 1 else b"null"))
                answers.flush()  # what comes before a value that takes too long stands
        except BrokenPipeError:
            break  # nobody reads any more
        except Exception as error:  # noqa: BLE001 - the other side raises it
            ended = b"!%b\n" % json.dumps(why_unread(error)).encode()
        answers.write(ended if ended[:1] == b"!" or _peak() <= large else b",\n")
        answers.flush()
    # Threads of a library that crash while the interpreter ends must not make an answer look cut off.
    os._exit(0)


if __name__ == "__main__":
    main()
