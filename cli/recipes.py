"""`ccheck recipes`: the pipelines that come with ccheck."""

from __future__ import annotations

import click

from ..errors import NotFound
from ..redaction import redact
from ..text import without_controls
from .common import json_option, print_fields, print_json, replace_option, replacements, stdout


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
    """Print a recipe.

    \b
    ccheck recipes show default > mine.toml
    """
    from ..recipe import recipe_text

    click.echo(without_controls(redact(recipe_text(name))), nl=False)


@recipes.command()
@click.argument("name")
@replace_option
@json_option
def check(name: str, *, replace: tuple[str, ...], as_json: bool) -> None:
    """Check a recipe, and which of its models are installed.

    \b
    ccheck recipes check mine.toml
    ccheck recipes check climatecheck-hybrid --replace gpt-4.1=qwen3

    Contacts neither the hub nor the servers of language models. If a model is not installed, the exit code is 4.
    """
    from ..models import find_model
    from ..pipeline.needs import models_used
    from ..recipe import load_recipe, ways_to_get

    recipe = load_recipe(name, replacements(replace))
    models: dict[str, str] = {}
    missing = False
    for model, kind in models_used(recipe).items():
        if kind == "language model":
            models[model] = "language model, on the configured server"
            continue
        try:
            found = find_model(model, allow_download=False, tokenizer_only=kind == "tokenizer")
            models[model] = f"{kind}, {found.path}"
        except NotFound:
            missing = True
            models[model] = f"{kind}, not installed: {ways_to_get(recipe, model)}"
    if as_json:
        stages = recipe.model_dump(mode="json", include={"retrievers", "fusion", "rerankers", "verdict", "replace"})
        print_json({"recipe": recipe.name, "usable": not missing, "models": models, **stages})
    else:
        retrievers = ", ".join(f"{key} ({stage.kind}, {stage.depth})" for key, stage in recipe.retrievers.items())
        rerankers = ", ".join(f"{key} ({stage.kind}, {stage.depth})" for key, stage in recipe.rerankers.items())
        fields = {"recipe": name, "retrievers": retrievers, "fusion": recipe.fusion.method, "rerankers": rerankers}
        print_fields(stdout(), {**fields, "verdict": recipe.verdict.method, **models})
    if missing:
        raise NotFound("some models of the recipe are not installed")
