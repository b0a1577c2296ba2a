"""A process for each side of a benchmark, so that neither leaves memory or settings to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

import click


@contextmanager
def processes(
    context: BaseContext, names: Sequence[str], serve: Callable[..., None], *given: Any
) -> Iterator[dict[str, Callable[..., Any]]]:
    """Processes that run `serve(name, *given, pipe)`. The functions send their arguments and return the answer."""
    started = []
    ask: dict[str, Callable[..., Any]] = {}
    for name in names:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(name, *given, there), daemon=True)  # type: ignore[attr-defined]
        process.start()
        there.close()
        started.append((process, here))

        def call(*sent: Any, pipe: Connection = here, name: str = name) -> Any:
            pipe.send(sent)
            try:
                return pipe.recv()
            except EOFError:
                raise click.ClickException(f"{name} failed: its error is above") from None

        ask[name] = call
    try:
        yield ask
    finally:
        for process, pipe in started:
            pipe.close()
            process.join(10)
            process.terminate()


def received(pipe: Connection) -> Iterator[tuple[Any, ...]]:
    """What is sent through the pipe, until it is closed."""
    while True:
        try:
            yield pipe.recv()
        except EOFError:
            return
