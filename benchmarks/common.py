"""Shared by the benchmarks: data sets as their files have them, the machine, sides that take turns, their ratios."""

from __future__ import annotations

import gzip
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
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


def in_turns(sides: Sequence[Callable[[], Any]], turn: int) -> list[Spent]:
    """What each side took. Each of them goes first equally often, since the next one finds caches warm."""
    order = [(place + turn) % len(sides) for place in range(len(sides))]
    found = {place: spent(sides[place]) for place in order}
    return [found[place] for place in range(len(sides))]


def spread(values: Sequence[float]) -> str:
    """The median with the smallest and the largest."""
    return f"{statistics.median(values):.3f} (median of {len(values)}; {min(values):.3f} to {max(values):.3f})"
