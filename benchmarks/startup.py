"""How long `ccheck --help` takes, against an interpreter that does nothing; what `import ccheck` loads; and how much
CPU the first answer takes, against importing numpy and tantivy alone.

    python benchmarks/startup.py

The goals: `ccheck --help` takes at most 0.3 s, and `ccheck query` over the sample corpus at most 1.0 s of CPU. Runs are
interleaved. The store and the caches are temporary ones, which `ccheck demo` fills before.
The answer must be hybrid and have a verdict, and each paper a stance.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from common import machine

HEAVY = ("torch", "transformers", "sentence_transformers", "elasticsearch", "tantivy", "numpy", "pydantic", "rich")
GOAL_S = 0.3
GOAL_CPU_S = 1.0
CLAIM = "sea level has risen 20 cm since 1900"


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
    print(machine(f"{runs} interleaved runs"))
    print(f"{'':<28}{'median':>9}{'fastest':>9}")
    for name, taken in times.items():
        print(f"{name:<28}{statistics.median(taken):>7.3f} s{min(taken):>7.3f} s")
    print(f"to reach: ccheck --help within {GOAL_S} s")
    found = modules("import ccheck")
    print("import ccheck loads:", ", ".join(f"{name} {'YES' if name in found else 'no'}" for name in HEAVY))
    first_answer(program, runs)


def first_answer(program: str, runs: int) -> None:
    """CPU time of a whole `ccheck query`, and of what it can't do without."""
    query = [program, "query", "--store", "local:demo", CLAIM]
    commands = {
        "import numpy, tantivy": [sys.executable, "-c", "import numpy, tantivy"],
        "ccheck query": query,
        "the same, --json": [*query, "--json"],
    }
    with tempfile.TemporaryDirectory() as scratch:
        names = ("CCHECK_DATA_DIR", "CCHECK_CACHE_DIR", "XDG_CONFIG_HOME")
        environment = os.environ | {name: f"{scratch}/{name}" for name in names}
        subprocess.run([program, "demo", "-q"], env=environment, stdout=subprocess.DEVNULL, check=True)
        said = subprocess.run(commands["the same, --json"], env=environment, capture_output=True, check=True).stdout
        answer = json.loads(said)
        assert set(answer["evidence"][0]["ranks"]) >= {"bm25", "dense"}, "this is not a hybrid answer"
        assert answer["verdict"]["label"] and not answer["verdict"]["error"], "this answer has no verdict"
        assert all(one["stance"]["label"] for one in answer["evidence"]), "a paper has no stance"
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                taken[name].append(cpu_seconds(command, environment))
    least = statistics.median(taken["import numpy, tantivy"])
    print(f"\n{'CPU of the whole process':<28}{'median':>9}{'least':>9}{'ratio':>9}")
    for name, times in taken.items():
        middle = statistics.median(times)
        print(f"{name:<28}{middle:>7.3f} s{min(times):>7.3f} s{middle / least:>9.2f}")
    print(f"to reach: ccheck query within {GOAL_CPU_S} s")


def cpu_seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """User and system time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
