"""`ccheck recipes`: the pipelines that come with ccheck."""

from __future__ import annotations

import click

from .common import json_option, print_fields, print_json, stdout


@click.group()
def recipes() -> None:
    """List, show or check recipes.

    \b
    ccheck recipes list
    ccheck recipes show default > mine.toml
    ccheck recipes check mine.toml
    ccheck query "..." --recipe mine.toml
    """


@recipes.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the packaged recipes.

    \b
    ccheck recipes list
    """
    from ..recipe import load_recipe, recipe_names

    found = [load_recipe(name) for name in recipe_names()]
    if as_json:
        for recipe in found:
            print_json(recipe.model_dump(mode="json"))
    else:
        print_fields(stdout(), {recipe.name: recipe.description for recipe in found})


@recipes.command()
@click.argument("name")
def show(name: str) -> None:
    """Print a recipe, to read or to change.

    \b
    ccheck recipes show default > mine.toml
    """
    from ..recipe import recipe_text

    click.echo(recipe_text(name), nl=False)


@recipes.command()
@click.argument("file")
def check(file: str) -> None:
    """Say whether a recipe can be used.

    \b
    ccheck recipes check mine.toml
    """
    from ..recipe import load_recipe

    recipe = load_recipe(file)
    stages = ", ".join(f"{name} ({stage.kind}, {stage.depth})" for name, stage in recipe.retrievers.items())
    click.echo(f"{file}: {stages}; fusion {recipe.fusion.method}; verdict {recipe.verdict.method}")
