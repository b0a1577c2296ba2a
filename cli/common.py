"""What the commands share: options, settings, consoles."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipeline import Checker
    from ..settings import Settings

P = ParamSpec("P")
R = TypeVar("R")

store_option = click.option(
    "--store",
    metavar="STORE",
    help="A folder, local:NAME, https://host:9200/INDEX or elasticsearch:INDEX.  "
    "[env: CCHECK_STORE; default: local:papers]",
)
model_option = click.option(
    "--model",
    metavar="NAME",
    help="The embedding model: a folder or a name.  [env: CCHECK_EMBEDDING_MODEL; default: the store's, "
    "else all-MiniLM-L6-v2]",
)
device_option = click.option("--device", metavar="NAME", help="Where models run: cpu, cuda, mps.  [env: CCHECK_DEVICE]")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No progress and no notices.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")


def options(*decorators: Callable[[Callable[P, R]], Callable[P, R]]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Several click options as one decorator, shown in this order."""
    return lambda command: functools.reduce(lambda inner, decorate: decorate(inner), reversed(decorators), command)


def settings_from(**flags: Any) -> Settings:
    """The settings in force; a flag that is None was not given."""
    from ..settings import resolve

    return resolve(flags).settings


def stdout() -> Console:
    """For data. No colours where it is no terminal; there a line is as long as it needs to be, up to 120."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, soft_wrap=False)


def stderr() -> Console:
    """For progress and notices."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def notice(message: str) -> None:
    click.echo(f"ccheck: {message}", err=True)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Text from elsewhere without what could steer the terminal."""
    return _CONTROL.sub("", text).replace("\n", " ").replace("\t", " ")


@contextmanager
def checker(settings: Settings, *, quiet: bool, **parts: Any) -> Iterator[Checker]:
    """An open Checker, with a spinner on the terminal while a model loads."""
    from ..pipeline import Checker

    console = stderr()
    show = console.is_terminal and not quiet
    with Checker(
        settings, notify=(lambda message: console.print(f"[dim]{message} …[/]")) if show else _silent, **parts
    ) as made:
        yield made


def _silent(message: str) -> None:
    """No progress wanted."""
