"""Completion on the command line: the names of recipes and stores, and files. The rest is click's own."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from ..core.errors import CcheckError


def recipes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The packaged recipes, and after RECIPE: its ablations; else a file."""
    from ..core.recipe import load_recipe, recipe_names

    name, colon, _ = incomplete.partition(":")
    names = recipe_names()
    if colon and name in names:
        names = [f"{name}:{ablation}" for ablation in load_recipe(name).ablations]
    return _that_begin(names, incomplete) or [CompletionItem(incomplete, "file")]


def stores(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The local stores in the data folder, else a folder. Wrong settings raise nothing: the user only pressed a key."""
    from ..core.settings import resolve
    from ..search.local.files import DATABASE

    try:
        data_dir = resolve({}, show_pending=True).settings.data_dir
    except CcheckError:
        return []
    names = sorted(f"local:{file.parent.name}" for file in data_dir.glob(f"*/{DATABASE}"))
    return _that_begin(names, incomplete) or [CompletionItem(incomplete, "dir")]


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Files, for arguments whose name does not begin with FILE."""
    return [CompletionItem(incomplete, "file")]


def _that_begin(values: list[str], incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]
