"""Settings and printing, shared by all commands."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import UsageError
from ..core.redaction import redact
from ..core.text import counted as counted
from ..core.text import is_unicode, json_line, without_controls
from ..core.text import printable as printable
from .opt import LOG, is_quiet

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ..core.settings import Resolved, Settings
    from ..core.types import Usage

NO_WIDTH = 1_000_000
"""Without a terminal, nothing is wrapped: each fact is one line, for grep and the like."""


def replacements(given: Sequence[str]) -> dict[str, str]:
    """The models that `--replace` names, each with its replacement. Raises UsageError."""
    found: dict[str, str] = {}
    for pair in given:
        old, equals, new = pair.partition("=")
        if not equals or not old.strip() or not new.strip():
            raise UsageError(
                f"--replace {pair}: write MODEL=OTHER, where MODEL is a name that ccheck recipes show prints"
            )
        found[old.strip()] = new.strip()
    return found


def settings_from(**flags: Any) -> Settings:
    """The settings in force; a flag that is None was not given."""
    return resolved_from(**flags).settings


def resolved_from(*, show_pending: bool = False, **flags: Any) -> Resolved:
    """The same with what waits for consent. Raises UsageError for that, unless it is to be shown (`show_pending`)."""
    from ..core.settings import resolve

    trusted = bool(click.get_current_context().find_root().params.get("trust_folder"))
    return resolve(flags, trust_folder=trusted, show_pending=show_pending)


SHARED = ("store", "llm", "rerank", "recipe")
"""Options that `ccheck query` and `ccheck serve web` have in common."""


def shared_options(asked: Any) -> dict[str, Any]:
    """What decides, with environment and folder, on a server's store and settings."""
    trusted = click.get_current_context().find_root().params.get("trust_folder")
    return {name: getattr(asked, name) for name in SHARED} | {"trust_folder": trusted}


def stdout() -> Console:
    """For data. Without a terminal, it has neither colours nor wrapped lines."""
    return _console_class()(width=None if sys.stdout.isatty() else NO_WIDTH, highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """For progress and notices."""
    return _console_class()(stderr=True, highlight=False, markup=False, emoji=False)


@functools.cache
def _console_class() -> type[Console]:
    from rich.console import Console

    class Safe(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            """Plain strings lose what could steer a terminal; who makes a `Text` has taken it out."""
            super().print(*(without_controls(one) if isinstance(one, str) else one for one in objects), **options)

        def on_broken_pipe(self) -> None:
            raise  # what rich is handling; left to itself it ends the program with 1, the code of a bug

    return Safe


def notice(*messages: str) -> None:
    """Say something on standard error."""
    for message in messages:
        click.echo(f"ccheck: {redact(without_controls(message))}", err=True)


def inform(*messages: str) -> None:
    """`notice`, unless the command is to be quiet."""
    if not is_quiet():
        notice(*messages)


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask for a yes, unless it was given as `--yes`. Raises UsageError if nobody can answer."""
    if yes:
        return True
    try:
        return click.confirm(question, err=True)
    except click.Abort:  # an interrupt, or the end of standard input
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise UsageError(
            "the question was not answered, so nothing was changed. Use --yes to agree beforehand"
        ) from None


@contextmanager
def warnings_said() -> Iterator[None]:
    """Prints ccheck's log warnings as notices: for example, that it waits for a server."""

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            notice(said.format(record))

    said = logging.Formatter()  # with the traceback of a bug
    log, handler = logging.getLogger(LOG), Notices(logging.WARNING)
    log.addHandler(handler)
    above, log.propagate = log.propagate, False  # MCP's server has every warning printed again
    for waits in ("elastic_transport", "opentelemetry"):  # ccheck itself says what it waits for
        logging.getLogger(waits).setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = above


def cost_said(settings: Settings, prompt_tokens: int, completion_tokens: int) -> str:
    """`, about 0.42 at your prices`; nothing if the settings have no prices."""
    from ..llm.budget import price_of

    price = price_of(settings)
    if price is None:
        return ""
    cost = price.of(prompt_tokens, completion_tokens)
    return f", about {cost:,.2f} at your prices" if cost >= 0.01 or not cost else ", less than 0.01 at your prices"


def usage_said(by_stage: Mapping[str, Usage], settings: Settings | None = None) -> Iterator[str]:
    """Yields a line about the calls to language models, by stage if there are several. Nothing if there were none.

    The settings say what they cost.
    """
    from ..core.types import Usage

    usage = sum(by_stage.values(), Usage())
    if usage.llm_calls or usage.cached:
        tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
        each = [f"{stage} {one.prompt_tokens:,} + {one.completion_tokens:,}" for stage, one in by_stage.items()]
        stages = f" ({', '.join(each)})" if len(each) > 1 else ""
        cached = f"; {counted(usage.cached, 'answer')} from the cache, at no cost" if usage.cached else ""
        cost = "" if settings is None else cost_said(settings, usage.prompt_tokens, usage.completion_tokens)
        yield f"language model: {counted(usage.llm_calls, 'call')}, {tokens}{stages}{cost}{cached}"


def user_name() -> str | None:
    """Who is logged in, for the record; None if the system does not say."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


def argument_text(text: str) -> str:
    """An argument as Unicode text: in a locale that can't read it, it comes with its bytes as lone surrogates."""
    return text if is_unicode(text) else os.fsencode(text).decode("utf-8", "replace")


def print_json(data: Any) -> None:
    """One line of JSON on standard output, at once."""
    sys.stdout.write(json_line(data))
    sys.stdout.flush()


def print_hanging(console: Console, first: str | Text, text: str | Text, indent: int) -> None:
    """`first`, then the text, whose further lines are indented; no blanks at the ends of lines."""
    from rich.text import Text

    text = Text(text) if isinstance(text, str) else text
    lines = text.wrap(console, max(20, console.width - indent)) or [Text()]
    for i, line in enumerate(lines):
        whole = Text.assemble(first if i == 0 else " " * indent, line)
        whole.rstrip()
        console.print(whole, soft_wrap=True)


def print_fields(console: Console, fields: Mapping[str, str]) -> None:
    """Names and values under each other; fields without a value are left out."""
    from rich.text import Text

    width = max(map(len, fields), default=0) + 2
    for name, value in fields.items():
        if value:
            print_hanging(console, Text(f"{printable(name):<{width}}", "bold"), printable(value), width)


def print_answer(as_json: bool, data: Mapping[str, Any] | list[dict[str, Any]], fields: Mapping[str, str]) -> None:
    """An answer as one object of JSON, or several, one a line; or as fields for people to read."""
    if not as_json:
        print_fields(stdout(), fields)
    for one in (data if isinstance(data, list) else [data]) if as_json else ():
        print_json(one)
