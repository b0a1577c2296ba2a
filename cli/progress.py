"""Progress on long work: a line or a bar in a terminal, elsewhere a line from time to time, nothing with --quiet."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ..core.text import per_second
from .common import notice, stderr
from .opt import is_quiet

if TYPE_CHECKING:
    from rich.console import Console

    from ..core.runtime import Runtime
    from ..core.settings import Settings
    from ..ingest import Progress
    from ..pipeline.checker import Checker


class Update(Protocol):
    """Moves a bar: so much of `total` is done. `facts` are shown beside it, `name` is what is being done now."""

    def __call__(self, done: int, total: int | None, *, facts: str = ..., name: str | None = ...) -> None: ...


EVERY = 30
"""The least seconds between two such lines."""
_bars: list[Console] = []
"""The consoles of the bars that are shown now. What is printed on another console would be glued to a bar."""


def notifier() -> Callable[[str], None]:
    """Says on a terminal what takes long, the same thing once; where a bar is shown, above it. Elsewhere, only that a
    server is waited for."""
    console = stderr()
    if is_quiet():
        return lambda message: None
    said: set[str] = set()

    def say(message: str) -> None:
        if message in said:
            return
        said.add(message)
        if not console.is_terminal:
            from ..core.http import Waiting  # here: most commands wait for nobody

            if isinstance(message, Waiting):
                notice(message)
        else:
            (_bars[-1] if _bars else console).print(f"{message} …", style="dim")

    return say


@contextmanager
def progress_bar(name: str, *, unit: str | None = None, shown: bool = True) -> Iterator[Update]:
    """A bar with the time taken and left, on a terminal; it begins again where less is done than before.

    With a `unit` it also shows how many of how many are done. Without a terminal it prints lines. Without `shown`
    there is none.
    """
    if not shown or is_quiet():
        yield lambda done, total, *, facts="", name=None: None
        return
    if not (console := stderr()).is_terminal:
        yield _lines(name, unit)
        return
    from rich.markup import escape
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    *usual, left = Progress.get_default_columns()
    times = (TimeElapsedColumn(), TextColumn("taken,"), left, TextColumn("left"))
    columns = (*usual, TextColumn("{task.fields[facts]}"), *times)
    with contextlib.ExitStack() as stack:
        _bars.append(console)
        stack.callback(_bars.remove, console)
        bar = stack.enter_context(Progress(*columns, console=console, transient=True, redirect_stdout=False))
        task = bar.add_task(escape(name), total=None, facts="")

        def update(done: int, total: int | None, *, facts: str = "", name: str | None = None) -> None:
            if done < bar.tasks[0].completed:
                bar.reset(task)
            facts = _counted(done, total, unit) + facts
            if name is not None:
                bar.update(task, description=escape(name))
            bar.update(task, completed=done, total=total, facts=escape(facts))

        yield update


def _counted(done: int, total: int | None, unit: str | None) -> str:
    return "" if unit is None else f"{done:,}{f'/{total:,}' if total is not None else ''} {unit} "


def _lines(doing: str, unit: str | None) -> Update:
    """Says how far the work is and how long the rest may take, at most once in `EVERY` seconds."""
    began = last = time.monotonic()
    before = 0

    def update(done: int, total: int | None, *, facts: str = "", name: str | None = None) -> None:
        nonlocal began, last, before
        now = time.monotonic()
        began, before = now if done < before else began, done
        if now - last >= EVERY:
            last = now
            left = f"{timedelta(seconds=round((now - began) * (total - done) / done))} left, " if done and total else ""
            share = f"{done / total:.0%}, {left}" if total else ""
            notice(f"{name or doing}: {share}{_counted(done, total, unit)}{facts}".rstrip(" ,:"))

    return update


@contextmanager
def ingest_progress() -> Iterator[Callable[[Progress], None]]:
    """A bar of an ingest with its rate, on a terminal."""
    started = time.monotonic()
    with progress_bar("reading") as update:

        def show(progress: Progress) -> None:
            facts = ""
            if progress.documents:  # they are counted when they are stored, which takes a while at first
                rate = per_second(progress.documents, time.monotonic() - started)
                facts = f"{progress.documents:,} documents, {rate}"
            update(progress.bytes_done, progress.bytes_total, facts=facts, name=progress.phase)

        yield show


def runtime(settings: Settings, *, lines: bool = False) -> Runtime:
    """The runtime of a command: it says on the terminal what takes long. Use it in `with`.

    With `lines`, each of these notices is a line of standard error, wherever that goes.
    """
    from ..core.runtime import Runtime

    shown = not is_quiet()  # asked here: other threads know of no command
    say = notice if lines and shown else notifier()
    return Runtime(settings, say, lambda name, unit: progress_bar(name, unit=unit, shown=shown))


@contextmanager
def checker(settings: Settings, **parts: Any) -> Iterator[Checker]:
    """An open Checker, which says on the terminal what takes long."""
    from ..pipeline.checker import Checker

    with runtime(settings) as shared, Checker(shared, **parts) as made:
        yield made
