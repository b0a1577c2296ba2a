"""Progress on long work: a line or a bar in a terminal, nothing elsewhere or with --quiet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from .common import stderr

if TYPE_CHECKING:
    from ..ingest import Progress
    from ..pipeline.checker import Checker
    from ..settings import Settings


class Update(Protocol):
    """Moves a bar: so much of `total` is done. `facts` are shown beside it, `name` is what is being done now."""

    def __call__(self, done: int, total: int | None, *, facts: str = ..., name: str | None = ...) -> None: ...


def _silent(message: str) -> None:
    """Nobody looks."""


def notifier(quiet: bool) -> Callable[[str], None]:
    """Says on a terminal what takes long, the same thing once."""
    console = stderr()
    if quiet or not console.is_terminal:
        return _silent
    said: set[str] = set()

    def say(message: str) -> None:
        if message not in said:
            said.add(message)
            console.print(f"{message} …", style="dim", markup=False)

    return say


@contextmanager
def progress_bar(name: str, quiet: bool, *, unit: str | None = None) -> Iterator[Update]:
    """A bar with the time taken and left, on a terminal; it begins anew where less is done than before.

    With a `unit` it also shows how many of how many are done.
    """
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = stderr()
    if quiet or not console.is_terminal:
        yield lambda done, total, *, facts="", name=None: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[facts]}"))
    times = TimeElapsedColumn(), TextColumn("·"), TimeRemainingColumn(), TextColumn("left")
    with Progress(*columns, *times, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(escape(name), total=None, facts="")

        def update(done: int, total: int | None, *, facts: str = "", name: str | None = None) -> None:
            if done < bar.tasks[0].completed:
                bar.reset(task)
            if unit is not None:
                facts = f"{done:,}{f'/{total:,}' if total is not None else ''} {unit} {facts}"
            if name is not None:
                bar.update(task, description=escape(name))
            bar.update(task, completed=done, total=total, facts=escape(facts))

        yield update


@contextmanager
def ingest_progress(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar of an ingest with its rate, on a terminal."""
    started = time.monotonic()
    with progress_bar("reading", quiet) as update:

        def show(progress: Progress) -> None:
            rate = progress.documents / max(1e-9, time.monotonic() - started)
            facts = f"{progress.documents:,} documents, {rate:,.0f}/s"
            update(progress.bytes_done, progress.bytes_total, facts=facts, name=progress.phase)

        yield show


@contextmanager
def checker(settings: Settings, *, quiet: bool, **parts: Any) -> Iterator[Checker]:
    """An open Checker, which says on the terminal what takes long."""
    from ..pipeline.checker import Checker

    with Checker(settings, notify=notifier(quiet), **parts) as made:
        yield made
