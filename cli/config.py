"""`ccheck config`: the settings in force."""

from __future__ import annotations

from typing import Any

import click
from pydantic import SecretStr

from .common import json_option, print_hanging, print_json, printable, stdout

DESCRIPTION_WIDTH = 30
"""The least room that a description needs beside the values."""


@click.command()
@json_option
def config(*, as_json: bool) -> None:
    """Show the settings and where each came from.

    \b
    ccheck config
    CCHECK_STORE=https://host:9200/papers ccheck config

    A flag wins over the environment, that over ccheck.toml in this folder, that over the user's ccheck.toml, that over
    the defaults. Those of Elasticsearch also go by the names that Elastic's tools use: ELASTICSEARCH_URL, ES_URL and so
    on. Secrets come from the environment only and are never printed.
    """
    from rich.text import Text

    from ..settings import Settings, config_files, resolve, variables

    resolved = resolve()
    values = {name: shown(getattr(resolved.settings, name)) for name in Settings.model_fields}
    if as_json:
        for name, value in values.items():
            print_json({"name": name, "value": value, "from": resolved.origins[name], "variables": variables(name)})
        return
    rows = [("setting", "value", "from", "what it is")]
    for name, field in Settings.model_fields.items():
        value = "–" if values[name] is None else printable(str(values[name]))
        rows.append((name, value, resolved.origins[name], field.description or ""))
    widths = [max(len(row[column]) for row in rows) + 2 for column in range(3)]
    console = stdout()
    room = console.width - sum(widths)
    for i, row in enumerate(rows):
        line = "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        head = Text(line, "bold" if i == 0 else "")
        print_hanging(console, head, row[3] if room >= DESCRIPTION_WIDTH else "", sum(widths))
    console.print()
    console.print(
        "To set one: CCHECK_ and its name in capitals in the environment, or its name in "
        f"{' or '.join(str(file) for file in reversed(config_files()))}",
        markup=False,
        soft_wrap=True,
    )


def shown(value: Any) -> Any:
    """A setting's value as it may be printed: a secret only as set or not, a URL without its password."""
    if isinstance(value, SecretStr):
        return "(set)"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, str) and "@" in value and "://" in value:
        from ..search.open import without_credentials

        return without_credentials(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
