"""A training in a process of its own that is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from paths import FOLDERS

from ccheck.lab.train.loop import Silent


class Deadly(Silent):
    """Kills its process at a step of a phase."""

    def __init__(self, phase: str, step: int) -> None:
        self.at = phase, step

    def step(self, phase: str, step: int, *_: object) -> None:
        if (phase, step) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def kill_training(train: str, options: str, output: Path, phase: str, step: int) -> None:
    """Runs the statements of `train` in a process that dies at that step.

    They know `options` (JSON), `output` and a `listener`. The process has as many threads as this one, so that it
    computes the same weights.
    """
    code = f"""
import sys
from pathlib import Path
from killed import Deadly
options, output, listener = sys.argv[1], Path(sys.argv[2]), Deadly(sys.argv[3], int(sys.argv[4]))
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
