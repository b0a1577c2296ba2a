"""A training in a process of its own that is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from paths import FOLDERS

from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings


def deadly(phase: str, step: int, end: Callable[[], object]) -> Runtime:
    """A runtime that ends a training at a step of a phase."""

    @contextmanager
    def bar(name: str, unit: str | None = None) -> Iterator[Callable[[int, int | None], None]]:
        yield lambda done, total: end() if (name, done) == (phase, step) else None

    return Runtime(Settings(device="cpu"), progress=bar)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_training(train: str, options: str, output: Path, phase: str, step: int) -> None:
    """Runs the statements of `train` in a process that dies at that step.

    They know `options` (JSON), `output` and a `runtime`. The process has as many threads as this one, so that it
    computes the same weights.
    """
    code = f"""
import sys
from pathlib import Path
from ccheck.lab.train.folders import Output
from killed import deadly, kill
options, output, runtime = sys.argv[1], Output(Path(sys.argv[2])), deadly(sys.argv[3], int(sys.argv[4]), kill)
{train}
"""
    killed = subprocess.run(
        [sys.executable, "-c", code, options, str(output), phase, str(step)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(FOLDERS), "OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
