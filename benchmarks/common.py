"""Shared by the benchmarks: data sets as their files have them, the machine, sides that take turns, their ratios.

A benchmark that `run.py` knows has `ROWS`, what the page on benchmarks shows of it, and ends in `told`.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ccheck.core.types import Document


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON Lines, plain or compressed."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def documents(path: Path) -> dict[str, Document]:
    """The documents of a corpus in BEIR's format, by id."""
    return {row["_id"]: Document(row["_id"], row["title"], row["text"]) for row in rows(path)}


def machine(*more: object) -> str:
    """A line that says where figures are from, for example with modules whose versions matter."""
    said = [f"{one.__name__} {one.__version__}" if hasattr(one, "__version__") else str(one) for one in more]
    return ", ".join([platform.machine(), f"{os.cpu_count()} cores", f"Python {platform.python_version()}", *said])


class Spent(NamedTuple):
    """What a run took, in seconds, and what it returned."""

    wall: float
    cpu: float
    answer: Any


def spent(run: Callable[[], Any]) -> Spent:
    """Run it, and measure the wall-clock time and this process's CPU time."""
    started, before = time.perf_counter(), time.process_time()
    answer = run()
    return Spent(time.perf_counter() - started, time.process_time() - before, answer)


def in_turns(sides: Sequence[Callable[[], Any]]) -> list[Spent]:
    """What each side took, in an order drawn anew, since the next one finds caches warm."""
    found = {place: spent(sides[place]) for place in random.sample(range(len(sides)), len(sides))}
    return [found[place] for place in range(len(sides))]


def spread(values: Sequence[float]) -> str:
    """The median with the smallest and the largest."""
    return f"{statistics.median(values):.3f} (median of {len(values)}; {min(values):.3f} to {max(values):.3f})"


Side = Callable[[int], Mapping[str, float]]
"""Does its work of a round, and returns what it measured, by name."""
Taken = dict[str, dict[str, list[float]]]
"""By side and name, what was measured in each round."""
RESULTS = "CCHECK_BENCHMARK_RESULTS"
"""Where `run.py` waits for what a benchmark measured."""


class Row(NamedTuple):
    """A row of the page: the measure `of` of one side over a plain side's, as the ratio in each round."""

    what: str
    side: str
    plain: str
    said: str
    """What the page calls the plain side."""
    of: str
    throughput: bool = False
    """The ratio is the plain side's time over the other's, and the goal a lower limit."""
    goal: float | None = None
    seconds: bool = False
    """The goal is of the side's seconds, which are shown with the plain side's."""

    def ratios(self, taken: Taken) -> list[float]:
        pairs = zip(taken[self.side][self.of], taken[self.plain][self.of], strict=True)
        return [plain / ours if self.throughput else ours / plain for ours, plain in pairs]

    def cells(self, taken: Taken) -> list[str]:
        """The plain side, the ratio with its spread, and the goal with what became of it."""
        low, middle, high = spread_of(self.ratios(taken))
        ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        reached = middle
        if self.seconds:
            reached, least = (statistics.median(taken[side][self.of]) for side in (self.side, self.plain))
            digits = 3 if reached < 0.1 else 2
            ratio += f"; {reached:.{digits}f} s against {least:.{digits}f} s"
        if self.goal is None:
            return [self.said, ratio, "–"]
        missed = reached < self.goal if self.throughput else reached > self.goal
        goal = f"{self.goal:g}{' s' if self.seconds else ''} at {'least' if self.throughput else 'most'}"
        return [self.said, ratio, goal + (", missed" if missed else "")]


def spread_of(values: Sequence[float]) -> tuple[float, float, float]:
    """The median between the quartiles of 20 values and more, or between the smallest and the largest of fewer."""
    if len(values) < 20:
        return min(values), statistics.median(values), max(values)
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def in_rounds(sides: Mapping[str, Side], rounds: int, warm: int = 0) -> Taken:
    """What the sides measured in each round, as `in_turns` has them; the first `warm` rounds don't count."""
    taken: Taken = {name: {} for name in sides}
    for number in range(rounds):
        runs = in_turns([partial(side, number) for side in sides.values()])
        for measures, run in zip(taken.values(), runs, strict=True):
            for measure, value in run.answer.items():
                measures.setdefault(measure, []).extend([value] if number >= warm else [])
    return taken


def told(taken: Taken, rows: Sequence[Row], *more: object, table: Sequence[str] = ()) -> None:
    """Print the spread of each measure of each side and the rows of the page, and hand the figures to `run.py`.

    `table`: the lines of a table of its own that the page has of this benchmark.
    """
    where = machine(processor(), *more, f"load {os.getloadavg()[0]:.1f}")
    print(where)
    for side, measures in taken.items():
        for measure, values in measures.items():
            low, middle, high = spread_of(values)
            print(f"{side:<24}{measure:<10}{middle:>10.4g} ({low:.4g} to {high:.4g}), {len(values)} rounds")
    shown = [row for row in rows if all(row.of in taken.get(side, {}) for side in (row.side, row.plain))]
    for row in shown:
        print(" | ".join([row.what.removeprefix(", ") or row.side, *row.cells(taken)]))
    print("\n".join(table))
    if os.environ.get(RESULTS):
        kept = {
            side: {measure: [float(f"{one:.4g}") for one in values] for measure, values in measures.items()}
            for side, measures in taken.items()
        }
        said = {"machine": where, "rows": [row._asdict() for row in shown], "table": list(table), "taken": kept}
        Path(os.environ[RESULTS]).write_text(json.dumps(said), encoding="utf-8")


def processor() -> str:
    """The processor's name, where Linux tells it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "processor unknown")
