"""`ccheck config`: the settings in force."""

from __future__ import annotations

from typing import Any

import click
from pydantic import SecretStr

from .common import json_option, stdout


@click.command()
@json_option
def config(*, as_json: bool) -> None:
    """Show the settings, where each came from, and how to set it.

    \b
    ccheck config
    CCHECK_STORE=https://host:9200/papers ccheck config

    Secrets are never printed.
    """
    from rich.table import Table
    from rich.text import Text

    from ..settings import Settings, config_files, resolve, variables
    from .query import print_json

    resolved = resolve()
    if as_json:
        for name in Settings.model_fields:
            value = shown(getattr(resolved.settings, name))
            print_json({"name": name, "value": value, "origin": resolved.origins[name], "variables": variables(name)})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("setting", "value", "from", "what it is"):
        table.add_column(column, overflow="fold")
    for name, field in Settings.model_fields.items():
        cells = (name, str(shown(getattr(resolved.settings, name)) or "–"), resolved.origins[name])
        table.add_row(*map(Text, cells), Text(field.description or ""))
    console = stdout()
    console.print(table)
    files = ", then ".join(map(str, reversed(config_files())))
    console.print(
        Text(f"\nIn the environment: CCHECK_ and the name in capitals, then the files {files}"), soft_wrap=True
    )


def shown(value: Any) -> Any:
    """A setting's value as it may be printed: a secret only as set or not, a URL without its password."""
    if isinstance(value, SecretStr):
        return "(set)"
    if isinstance(value, str) and "@" in value and "://" in value:
        from ..search.open import without_credentials

        return without_credentials(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
