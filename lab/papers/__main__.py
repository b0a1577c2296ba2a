"""`python -m ccheck.lab.papers > recipes.md`: every recipe with its source's tables and all keys, as one page."""

from __future__ import annotations

import click

from .pages import page

if __name__ == "__main__":
    click.echo(page(), nl=False)
