"""`ccheck recipes`: the pipelines that come with ccheck."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import NotFound
from ..core.redaction import redact
from ..core.text import without_controls
from . import opt
from .common import print_answer, print_fields, print_json, replacements, resolved_from, settings_from, stdout

if TYPE_CHECKING:
    from ..core.recipe import Recipe
    from ..core.settings import Settings


@click.group()
def recipes() -> None:
    """List, show or check recipes.

    \b
    ccheck recipes list
    ccheck recipes show default > mine.toml
    ccheck recipes check mine.toml
    ccheck query "..." --recipe mine.toml
    """


@opt.command(name="list")
def list_(*, as_json: bool = opt.as_json) -> None:
    """List the packaged recipes, and what each one lacks here.

    \b
    ccheck recipes list
    """
    from ..core.recipe import load_recipe, recipe_names

    settings = resolved_from(show_pending=True).settings  # to look at recipes needs no trust in the folder
    found = [load_recipe(name) for name in recipe_names()]
    lacks = {recipe.name: [name for name, why in parts_here(recipe, settings) if why] for recipe in found}
    if as_json:
        for recipe in found:
            print_json(recipe.model_dump(mode="json") | {"lacks": lacks[recipe.name]})
        return
    said = {name: f" Lacks {', '.join(parts)}." if parts else " Runs here." for name, parts in lacks.items()}
    print_fields(stdout(), {recipe.name: recipe.description + said[recipe.name] for recipe in found})


def parts_here(recipe: Recipe, settings: Settings) -> list[tuple[str, str]]:
    """The models that a recipe can't run without, each with why it is not available here; empty if all are.

    Asks neither the hub nor the servers of language models.
    """
    from ..core.models import find_model
    from ..core.recipe import models_used

    optional = {name for stage in recipe.stages() if not getattr(stage, "required", True) for name, _ in stage.uses()}
    parts = []
    for model, kind in models_used(recipe).items():
        if model in optional:
            continue
        why = ""
        if kind == "language model":
            why = _no_language_model(settings)
        else:
            try:
                find_model(model, download=False, tokenizer_only=kind == "tokenizer")
            except NotFound:
                why = "it is not installed"
        parts.append((model, why))
    asks = recipe.questions is not None or recipe.ingest.additional is not None or recipe.verdict.method == "llm"
    if asks and not any(why for _, why in parts) and (why := _no_language_model(settings)):
        parts.append(("a language model (--llm)", why))
    return parts


def _no_language_model(settings: Settings) -> str:
    from ..core.settings import Settings as Defaults

    default = settings.llm_base_url == Defaults.model_fields["llm_base_url"].default
    return "OPENAI_API_KEY or OPENAI_BASE_URL is not set" if default and settings.llm_api_key is None else ""


@opt.command
def show(name: str = opt.argument("NAME", complete="recipes")) -> None:
    """Print a recipe.

    \b
    ccheck recipes show default > mine.toml
    """
    from ..core.recipe import recipe_text

    click.echo(without_controls(redact(recipe_text(name))), nl=False)


@opt.command
def check(
    name: str = opt.argument("NAME", complete="recipes"),
    *,
    replace: tuple[str, ...] = opt.replace,
    as_json: bool = opt.as_json,
) -> None:
    """Check a recipe, and which of its models are installed.

    \b
    ccheck recipes check mine.toml
    ccheck recipes check climatecheck-hybrid --replace gpt-4.1=qwen3

    Contacts neither the hub nor the servers of language models. If a model is not installed, the exit code is 4.
    """
    from ..core.adjust import printed, resolved
    from ..core.errors import MissingExtra
    from ..core.models import find_model
    from ..core.recipe import load_recipe, models_used, ways_to_get
    from ..core.stages import ModelStage
    from ..rerank.open import AUTO, choose_model

    settings = settings_from()
    recipe = resolved(settings, recipe=load_recipe(name, replacements(replace)))
    for ablation in recipe.ablations if recipe.ablation is None else ():
        load_recipe(f"{name}:{ablation}")  # raises what keeps it from running
    models: dict[str, str] = {}
    missing = False
    for model, kind in models_used(recipe).items():
        if kind == "language model":
            models[model] = "language model, on the configured server"
            continue
        try:
            found = find_model(model, download=False, tokenizer_only=kind == "tokenizer")
            models[model] = f"{kind}, {found.path}"
        except NotFound:
            missing = True
            models[model] = f"{kind}, not installed: {ways_to_get(recipe, model)}"
    for stage in recipe.rerankers.values():
        if isinstance(stage, ModelStage) and stage.model == AUTO:
            part = AUTO if stage.required else f"{AUTO} (optional)"
            try:
                models[part] = f"reranker, {choose_model(settings)}"
            except (NotFound, MissingExtra) as error:
                missing = missing or stage.required
                models[part] = f"reranker, not available here: {error}"
    data = {"recipe": recipe.name, "usable": not missing, "models": models, **printed(recipe)}
    stages: dict[str, Mapping[str, Any]] = {"retrievers": recipe.retrievers, "rerankers": recipe.rerankers}
    fields = {
        part: ", ".join(f"{key} ({stage.kind}, {stage.depth})" for key, stage in some.items())
        for part, some in stages.items()
    }
    fields = {"recipe": name, **fields, "fusion": recipe.fusion.method, "verdict": recipe.verdict.method}
    print_answer(as_json, data, fields | models)
    if missing:
        raise NotFound("some models of the recipe are not installed")


for command in (list_, show, check):
    recipes.add_command(command)
