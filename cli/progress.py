"""Progress on long work: a line or a bar in a terminal, nothing elsewhere or with --quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from .common import stderr

if TYPE_CHECKING:
    from ..pipeline.checker import Checker
    from ..settings import Settings


class Update(Protocol):
    """Moves a bar: so much of `total` is done. `facts` are shown beside it, `name` is what is being done now."""

    def __call__(self, done: int, total: int | None, *, facts: str = ..., name: str | None = ...) -> None: ...


def _silent(message: str) -> None:
    """Nobody looks."""


def notifier(quiet: bool) -> Callable[[str], None]:
    """Says on a terminal what takes long."""
    console = stderr()
    if quiet or not console.is_terminal:
        return _silent
    return lambda message: console.print(f"{message} …", style="dim", markup=False)


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
    times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
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
def checker(settings: Settings, *, quiet: bool, **parts: Any) -> Iterator[Checker]:
    """An open Checker, which says on the terminal what takes long."""
    from ..pipeline.checker import Checker

    with Checker(settings, notify=notifier(quiet), **parts) as made:
        yield made
