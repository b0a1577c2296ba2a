"""A training of a reranker in a process of its own that is killed in the middle."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tiny_training as tiny
import torch
from paths import FOLDERS

from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.lab.train.loop import Output
from ccheck.lab.train.options import RerankerOptions
from ccheck.lab.train.reranker import train_reranker


def deadly(phase: str, step: int, end: Callable[[], object]) -> Runtime:
    """A runtime that ends a training at a step of a phase."""

    @contextmanager
    def bar(name: str, unit: str | None = None) -> Iterator[Callable[[int, int | None], None]]:
        yield lambda done, total: end() if (name, done) == (phase, step) else None

    return Runtime(Settings(device="cpu"), progress=bar)


def kill_training(chosen: RerankerOptions, output: Path, phase: str, step: int) -> None:
    """Trains in a process that dies at that step, with as many threads as this one: it computes the same weights."""
    command = [sys.executable, __file__, chosen.model_dump_json(), output, phase, str(step)]
    own = {"PYTHONPATH": os.pathsep.join(FOLDERS), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    killed = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


if __name__ == "__main__":
    chosen, output, phase, step = sys.argv[1:]
    runtime = deadly(phase, int(step), lambda: os.kill(os.getpid(), signal.SIGKILL))
    options = RerankerOptions.model_validate_json(chosen)
    train_reranker(options, tiny.DATA, Output(Path(output)), runtime, tiny.candidates)
