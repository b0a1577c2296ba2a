"""Every command there is, for tests of what all have in common."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ccheck.cli import cli


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = [((), cli), *commands(cli)]
