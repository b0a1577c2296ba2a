"""`python -m ccheck.lab.papers > recipes.md`: every recipe with its source's tables and all keys, as one page."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .pages import page


@click.command
@click.option("--measured", multiple=True, type=click.Path(path_type=Path), help="Lines of ccheck evaluate --json.")
def main(measured: tuple[Path, ...]) -> None:
    """Print the page, with your own figures beside the published ones."""
    lines = [line for file in measured for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    click.echo(page(map(json.loads, lines)), nl=False)


if __name__ == "__main__":
    main()
