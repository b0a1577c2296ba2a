"""`ccheck recipes`: the pipelines that come with ccheck."""

from __future__ import annotations

import click

from .common import json_option, stdout


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
    from .query import print_json

    for name in recipe_names():
        recipe = load_recipe(name)
        if as_json:
            print_json(recipe.model_dump(mode="json"))
        else:
            stdout().print(f"[bold]{name:<12}[/] {recipe.description}")


@recipes.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the TOML of a recipe, to read or to start one's own from.

    \b
    ccheck recipes show default > mine.toml
    """
    from ..recipe import recipe_text

    click.echo(recipe_text(name), nl=False)


@recipes.command()
@click.argument("file")
def check(file: str) -> None:
    """Say whether a recipe can be used, and if not, why.

    \b
    ccheck recipes check mine.toml
    """
    from ..recipe import load_recipe

    recipe = load_recipe(file)
    stages = ", ".join(f"{name} ({stage.kind}, {stage.depth})" for name, stage in recipe.retrievers.items())
    click.echo(f"{file}: {stages}; fusion {recipe.fusion.method}; verdict {recipe.verdict.method}")
