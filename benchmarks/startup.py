"""How long `ccheck --help` takes, against an interpreter that does nothing; and what `import ccheck` loads.

    python benchmarks/startup.py

The goal: `ccheck --help` takes at most 0.3 s.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

import click

HEAVY = ("torch", "transformers", "sentence_transformers", "elasticsearch", "tantivy", "numpy", "pydantic", "rich")
GOAL_S = 0.3


@click.command()
@click.option("--runs", default=15, show_default=True, type=click.IntRange(1), help="Number of runs of each command.")
def main(runs: int) -> None:
    """Print the median and the fastest time of each command; the runs are interleaved."""
    program = str(Path(sysconfig.get_path("scripts")) / "ccheck")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import ccheck'": [sys.executable, "-c", "import ccheck"],
        "ccheck --help": [program, "--help"],
        "ccheck query --help": [program, "query", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        seconds(command)  # compiled and in the page cache from here on
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(seconds(command))
    print(f"Python {platform.python_version()}, {platform.machine()}, {runs} interleaved runs")
    print(f"{'':<28}{'median':>9}{'fastest':>9}")
    for name, taken in times.items():
        print(f"{name:<28}{statistics.median(taken):>7.3f} s{min(taken):>7.3f} s")
    print(f"to reach: ccheck --help within {GOAL_S} s")
    found = modules("import ccheck")
    print("import ccheck loads:", ", ".join(f"{name} {'YES' if name in found else 'no'}" for name in HEAVY))


def seconds(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def modules(code: str) -> set[str]:
    """The modules loaded after some code has run."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


if __name__ == "__main__":
    main()
