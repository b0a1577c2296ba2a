"""Options under headings in a command's `--help`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from .opt import Command, options


def option_group(heading: str, *decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several click options as one decorator, shown in this order under a heading; for a `GroupedCommand`."""

    def decorate(command: Command) -> Command:
        before = {id(one) for one in getattr(command, "__click_params__", ())}
        decorated = options(*decorators)(command)
        for option in decorated.__click_params__:  # type: ignore[attr-defined]
            if id(option) not in before:
                option.heading = heading
        return decorated

    return decorate


def by_heading(command: click.Command, context: click.Context) -> dict[str, list[click.Option]]:
    """The options that a command shows, by heading, in the order in which they were given."""
    found: dict[str, list[click.Option]] = {}
    for option in command.get_params(context):
        if isinstance(option, click.Option) and not option.hidden:
            found.setdefault(getattr(option, "heading", "Options"), []).append(option)
    if len(found) > 1:  # what click adds itself, --help
        found[list(found)[-2]] += found.pop("Options", [])
    return found


class GroupedCommand(click.Command):
    """A command whose help has a list for each `option_group`."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, some in by_heading(self, context).items():
            with formatter.section(heading):
                formatter.write_dl([record for one in some if (record := one.get_help_record(context))])
