"""How long `ccheck --help` takes, against an interpreter that does nothing; what `import ccheck` loads; and how much
CPU the first answer takes, against importing numpy and tantivy alone.

    python benchmarks/startup.py

The goals: `ccheck --help` takes at most 0.3 s, and `ccheck query` over the sample corpus at most 1.0 s of CPU. The
store and the caches are temporary ones, which `ccheck demo` fills before.
The answer must be hybrid and have a verdict, and each paper a stance.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from common import Row, in_rounds, told

HEAVY = ("torch", "transformers", "sentence_transformers", "elasticsearch", "tantivy", "numpy", "pydantic", "rich")
GOAL_S = 0.3
GOAL_CPU_S = 1.0
CLAIM = "sea level has risen 20 cm since 1900"
ROWS = (
    Row(
        ", first answer of `ccheck query` with its verdict",
        "ccheck query",
        "import numpy, tantivy",
        "`import numpy, tantivy`, CPU time",
        "cpu",
        goal=GOAL_CPU_S,
        seconds=True,
    ),
)


@click.command()
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(1), help="Number of runs of each command.")
def main(rounds: int) -> None:
    """Print the wall and CPU time of each command; the commands of a round come in random order."""
    program = str(Path(sysconfig.get_path("scripts")) / "ccheck")
    query = [program, "query", "--store", "local:demo", CLAIM]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import ccheck": [sys.executable, "-c", "import ccheck"],
        "ccheck --help": [program, "--help"],
        "ccheck query --help": [program, "query", "--help"],
        "import numpy, tantivy": [sys.executable, "-c", "import numpy, tantivy"],
        "ccheck query": query,
        "ccheck query --json": [*query, "--json"],
    }
    with tempfile.TemporaryDirectory() as scratch:
        names = ("CCHECK_DATA_DIR", "CCHECK_CACHE_DIR", "XDG_CONFIG_HOME")
        environment = os.environ | {name: f"{scratch}/{name}" for name in names}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody compiles at each start
        subprocess.run([program, "demo", "-q"], env=environment, stdout=subprocess.DEVNULL, check=True)
        said = subprocess.run(commands["ccheck query --json"], env=environment, capture_output=True, check=True).stdout
        answer = json.loads(said)
        assert set(answer["evidence"][0]["ranks"]) >= {"bm25", "dense"}, "this is not a hybrid answer"
        assert answer["verdict"]["label"] and not answer["verdict"]["error"], "this answer has no verdict"
        assert all(one["stance"]["label"] for one in answer["evidence"]), "a paper has no stance"
        # Compiled and in the page cache after the first round, which doesn't count.
        sides = {name: partial(seconds, command, environment) for name, command in commands.items()}
        taken = in_rounds(sides, rounds + 1, warm=1)
    found = modules("import ccheck")
    print("import ccheck loads:", ", ".join(f"{name} {'YES' if name in found else 'no'}" for name in HEAVY))
    told(taken, ROWS)
    print(f"to reach: ccheck --help within {GOAL_S} s of wall-clock time on an idle machine")


def seconds(command: Sequence[str], environment: dict[str, str], _round: int) -> dict[str, float]:
    """Wall-clock time, and user and system time of the whole process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": wall, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def modules(code: str) -> set[str]:
    """The modules loaded after some code has run."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


if __name__ == "__main__":
    main()
