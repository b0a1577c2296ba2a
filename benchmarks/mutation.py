"""How many one-place changes of the code do the tests notice? Samples cosmic-ray's mutants of each file, with a seed.

    make mutants MUTANTS="--sample 40"                # all files
    make mutants MUTANTS="core/fusion.py --sample 0"  # one file, all of its places

The script draws places, and one of cosmic-ray's changes at each. It runs the file's own tests on a copy of the tree,
with the rooms as packages of `ccheck`. A mutant is killed if the tests fail, take three times the CPU time that they
take without it, or do not end. Other work on the same cores kills no mutant. The script prints each file's score, how
many mutants time alone killed, and the survivors. Mutants without a visible effect still count. Annotations are not
mutated because nothing runs them. Tests that need Elasticsearch use ELASTICSEARCH_URL: start a node first
(tests/elasticsearch_host), or each mutant waits for its own.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
HANGS = 60.0
"""Seconds, besides ten times its CPU time, after which a run of tests is not waited for."""
LOCAL = [
    "search/test_store.py",
    "search/test_store_filters.py",
    "search/test_store_fields.py",
    "search/test_store_units.py",
    "search/test_local_indices.py",
    "search/test_local_damage.py",
    "search/test_local_store.py",
    "search/test_local_survival.py",
    "-k",
    "local",  # of the tests that all stores must pass
    "-m",
    "not slow",
]
ELASTIC = [
    "search/test_elastic_client.py",
    "search/test_elastic_reading.py",
    "search/test_elastic_fields.py",
    "search/test_elastic_store.py",
]
TESTS = {
    "core/fusion.py": ["core/test_fusion.py"],
    "lab/measure/metrics.py": ["measure/test_metrics.py"],
    "verdict/judge.py": ["verdict/test_conclude.py"],
    "verdict/evidence.py": ["verdict/test_evidence.py"],
    "verdict/quotes.py": ["verdict/test_quotes.py"],
    "rerank/tokens.py": ["rerank/test_apply.py"],
    "search/filters.py": [
        "core/test_fusion.py",
        "cli/test_index.py",
        "search/test_store_filters.py",
        "-k",
        "not elasticsearch",
    ],
    **dict.fromkeys(
        [
            "search/local/bm25.py",
            "search/local/database.py",
            "search/local/files.py",
            "search/local/filtering.py",
            "search/local/snapshot.py",
            "search/local/store.py",
            "search/local/upkeep.py",
            "search/local/vectors.py",
        ],
        LOCAL,
    ),
    "search/elastic/errors.py": ["search/test_elastic_patience.py", "search/test_elastic_hostile.py"],
    "search/elastic/found.py": ["search/test_elastic_found.py"],
    "search/elastic/ownership.py": ["search/test_elastic_swaps.py"],
    "search/elastic/queries.py": ELASTIC[:2],
    "search/elastic/reading.py": ["search/test_elastic_reading.py"],
    "search/elastic/search.py": ELASTIC,
    "search/elastic/client.py": ["search/test_elastic_patience.py", "search/test_elastic_hostile.py"],
}
"""Which tests are to notice a change of a file, and options of pytest."""


@click.command()
@click.argument("files", nargs=-1)
@click.option("--sample", default=20, show_default=True, help="Mutants per file; 0: one at each place.")
@click.option("--seed", default=0, show_default=True)
@click.option("--least", default=0.0, show_default=True, help="Fail if a smaller share is killed.")
def main(files: tuple[str, ...], sample: int, seed: int, least: float) -> None:
    killed = made = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        places = copied(tree)
        for file in files or TESTS:
            tests = [str(tree / "tests" / name) if name.endswith(".py") else name for name in TESTS[file]]
            path = places / file.removeprefix("core/") if file.startswith("core/") else places / file
            code = path.read_text(encoding="utf-8")
            unchanged = run(tree, tests)
            if not unchanged.passed:
                raise click.ClickException(f"{file}: its tests fail without a change\n{unchanged.output[-3000:]}")
            survivors, late = [], 0
            drawn = mutants(code, sample, random.Random(f"{seed} {file}"))
            for line, operator, mutant in drawn:
                write(path, mutant)
                try:
                    ended = run(tree, tests, most_cpu=3 * unchanged.cpu + 10)
                    late += ended.too_long
                    if ended.passed:
                        survivors.append(f"  {file}:{line} {operator}\n{changed(code, mutant)}")
                finally:
                    write(path, code)
            killed += len(drawn) - len(survivors)
            made += len(drawn)
            by_time = f", {late} of them by time" if late else ""
            score = f"{file}: {len(drawn) - len(survivors)} of {len(drawn)} killed{by_time}"
            print(score, *survivors, sep="\n", flush=True)
    print(f"{killed} of {made} killed, {killed / max(1, made):.0%}; seed {seed}")
    if killed < least * made:
        raise SystemExit(1)


def copied(tree: Path) -> Path:
    """The rooms as packages of `ccheck` in the tree, and the tests; returns the package's folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    skip = shutil.ignore_patterns("__pycache__")
    for package in sorted(project["tool"]["setuptools"]["packages"])[1:]:
        parts = package.split(".")
        shutil.copytree(ROOT.joinpath(*parts[1:]), tree.joinpath(*parts), ignore=skip, dirs_exist_ok=True)
    for name in ("__init__.py", "__main__.py", "py.typed"):
        shutil.copy(ROOT / name, tree / "ccheck")
    for name in ("tests", "benchmarks", "es_mappings", "recipes", "demo", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree / "ccheck"


def write(path: Path, code: str) -> None:
    """Write a module, and remove what Python compiled of it: it might keep that for a file of the same size."""
    path.write_text(code, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


@dataclass(frozen=True)
class Ended:
    passed: bool
    cpu: float
    output: str
    too_long: bool = False


def run(tree: Path, tests: list[str], most_cpu: float | None = None) -> Ended:
    """Run the tests, in a folder for temporary files that no other run has."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    environment.setdefault("CCHECK_SHARED_DATA", str(ROOT.parent / "shared" / "data"))
    options = ["-q", "-x", "-p", "no:cacheprovider", f"--basetemp={tree / 'temporary'}"]
    command = [sys.executable, "-m", "pytest", *options, *tests]

    def limited() -> None:
        if most_cpu is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(most_cpu), math.ceil(most_cpu)))

    before = children_cpu()
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=None if most_cpu is None else HANGS + 10 * most_cpu,
            preexec_fn=limited,
        )
    except subprocess.TimeoutExpired:
        return Ended(False, children_cpu() - before, "", too_long=True)
    too_long = done.returncode in (-signal.SIGKILL, -signal.SIGXCPU)
    return Ended(done.returncode == 0, children_cpu() - before, done.stdout, too_long)


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def mutants(code: str, sample: int, draw: random.Random) -> list[tuple[int, str, str]]:
    """(line, operator, mutated code) of places that are drawn, at each one of the changes that cosmic-ray knows."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code

    within = annotations(code)
    found: dict[tuple[tuple[int, int], tuple[int, int]], list[tuple[str, int]]] = {}
    nodes = list(ast_nodes(get_ast(code)))
    for name in plugins.operator_names():
        with contextlib.suppress(TypeError):  # one that needs arguments
            operator = plugins.get_operator(name)()
            positions = [position for node in nodes for position in operator.mutation_positions(node)]
            for occurrence, position in enumerate(positions):
                if not any(first <= position[0] and position[1] <= last for first, last in within):
                    found.setdefault(position, []).append((name, occurrence))
    places = sorted(found)
    if sample:
        places = sorted(draw.sample(places, min(sample, len(places))))
    made = []
    for place in places:
        name, occurrence = draw.choice(found[place])
        mutant = mutate_code(code, plugins.get_operator(name)(), occurrence)
        if mutant is not None and mutant != code:
            made.append((place[0][0], name.removeprefix("core/"), mutant))
    return made


def annotations(code: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations and decorators stand: the first nobody runs, and the second are dataclasses' here."""
    found = []
    for node in ast.walk(ast.parse(code)):
        for one in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if one is not None:
                found.append(((one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset)))
        for one in getattr(node, "decorator_list", ()):
            found.append(((one.lineno, 0), (one.end_lineno, one.end_col_offset)))
    return found


def changed(before: str, after: str) -> str:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return "\n".join(f"    {line[0]} {line[2:].strip()}" for line in lines if line[0] in "+-")


if __name__ == "__main__":
    main()
