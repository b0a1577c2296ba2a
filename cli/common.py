"""What the commands share: options, settings, and how things are printed."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import UsageError
from ..redaction import redact
from ..text import json_line, without_controls
from ..text import printable as printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ..settings import Resolved, Settings
    from ..types import Usage

Command = TypeVar("Command", bound=Callable[..., Any])

LOG = "ccheck"
"""The logger above those of all modules."""
NO_WIDTH = 1_000_000
"""Without a terminal, nothing is wrapped: each fact is one line, for grep and the like."""


def completed(what: str) -> Callable[..., list[Any]]:
    """An option's `shell_complete`: a function of `completion.py`, which nothing else needs to import."""
    return lambda *given: getattr(importlib.import_module(".completion", __package__), what)(*given)


STORE_FORMS = "a folder, local:NAME, https://host:9200/INDEX or elasticsearch:INDEX"
store_option = click.option(
    "--store",
    metavar="STORE",
    shell_complete=completed("stores"),
    help=f"Store with the documents: {STORE_FORMS}.  [env: CCHECK_STORE; default: local:papers]",
)
model_option = click.option(
    "--model",
    metavar="NAME",
    help="Embedding model: a folder or a name.  [env: CCHECK_EMBEDDING_MODEL; default: the store's, "
    "else all-MiniLM-L6-v2]",
)
device_option = click.option(
    "--device", metavar="NAME", help="Device that models run on: cpu, cuda or mps.  [env: CCHECK_DEVICE]"
)
llm_option = click.option(
    "--llm", metavar="MODEL", help="Language model, on the server at OPENAI_BASE_URL.  [env: CCHECK_LLM_MODEL]"
)
stance_option = click.option(
    "--stance", metavar="MODEL", help="Stance classifier: a folder or a name.  [env: CCHECK_STANCE_MODEL]"
)
strategy_option = click.option(
    "--strategy",
    type=click.Choice(["one-step", "two-step", "few-shot", "hybrid", "batch"]),
    help="Prompting strategy for the language model.",
)
replace_option = click.option(
    "--replace",
    multiple=True,
    metavar="MODEL=OTHER",
    help="Use OTHER wherever the recipe names MODEL. The output says so. Repeatable.",
)
max_calls_option = click.option(
    "--max-calls", type=click.IntRange(0), metavar="N", help="Largest number of calls to the language model."
)
max_cost_option = click.option(
    "--max-cost",
    type=click.FloatRange(0),
    metavar="X",
    help="Most to spend on the language model, at the prices in the settings llm_prompt_price and "
    "llm_completion_price.",
)


def _quieted(context: click.Context, option: click.Parameter, quiet: bool) -> bool:
    """Without what is logged: `warnings_said` makes notices of it."""
    if quiet:
        log, level = logging.getLogger(LOG), logging.getLogger(LOG).level
        log.setLevel(logging.ERROR)
        context.call_on_close(lambda: log.setLevel(level))
    return quiet


quiet_option = click.option("--quiet", "-q", is_flag=True, callback=_quieted, help="Show no progress and no notices.")
remote_code_option = click.option(
    "--trust-remote-code",
    is_flag=True,
    default=None,
    help="Let models run the Python code that comes with their weights. That code can do anything you can do.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line.")


def options(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several click options as one decorator, shown in this order."""
    return lambda command: functools.reduce(lambda inner, decorate: decorate(inner), reversed(decorators), command)


def replacements(given: Sequence[str]) -> dict[str, str]:
    """What `--replace` says. Raises UsageError."""
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
    from ..settings import resolve

    trusted = bool(click.get_current_context().find_root().params.get("trust_folder"))
    return resolve(flags, trust_folder=trusted, show_pending=show_pending)


def stdout() -> Console:
    """For data. Without a terminal, it has neither colours nor wrapped lines."""
    return _console_class()(width=None if sys.stdout.isatty() else NO_WIDTH, highlight=False)


def stderr() -> Console:
    """For progress and notices."""
    return _console_class()(stderr=True, highlight=False)


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


def notice(message: str) -> None:
    """Say something on standard error."""
    click.echo(f"ccheck: {redact(without_controls(message))}", err=True)


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask for a yes, unless it was given as `--yes`. Raises UsageError where nobody can answer."""
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


def notice_new(name: str, messages: Iterable[str], seen: set[str]) -> None:
    """Print the messages that are not in `seen`, each after the name of what it is about, and add them to `seen`."""
    for message in messages:
        if message not in seen:
            seen.add(message)
            notice(f"{name}: {message}")


@contextmanager
def warnings_said() -> Iterator[None]:
    """What ccheck logs as a warning (it waits for a server, say) is a notice."""

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            notice(record.getMessage())

    log, handler = logging.getLogger(LOG), Notices(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def counted(count: int, what: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def usage_said(by_stage: Mapping[str, Usage]) -> Iterator[str]:
    """What language models were asked, in words; with the stages where there are several. Nothing where nobody was."""
    from ..types import Usage

    usage = sum(by_stage.values(), Usage())
    if usage.llm_calls or usage.cached:
        tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
        each = [f"{stage} {one.prompt_tokens:,} + {one.completion_tokens:,}" for stage, one in by_stage.items()]
        stages = f" ({', '.join(each)})" if len(each) > 1 else ""
        cached = f"; {counted(usage.cached, 'answer')} from the cache, at no cost" if usage.cached else ""
        yield f"language model: {counted(usage.llm_calls, 'call')}, {tokens}{stages}{cached}"


def argument_text(text: str) -> str:
    """An argument as Unicode text: in a locale that can't read it, it comes with its bytes as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode("utf-8", "replace")
    return text


def print_json(data: Any) -> None:
    """One line of JSON on standard output, at once."""
    sys.stdout.write(json_line(data))
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Text on standard output, at once."""
    sys.stdout.write(text)
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


def print_fields(console: Console, fields: dict[str, str]) -> None:
    """Names and values under each other; fields without a value are left out."""
    from rich.text import Text

    width = max(map(len, fields)) + 2
    for name, value in fields.items():
        if value:
            print_hanging(console, Text(f"{printable(name):<{width}}", "bold"), printable(value), width)
