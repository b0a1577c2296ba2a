"""`ccheck recipes`: the pipelines that come with ccheck."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.errors import NotFound
from ..core.redaction import redact
from ..core.text import without_controls
from . import opt
from .common import (
    print_fields,
    print_json,
    replacements,
    resolved_from,
    settings_from,
    stdout,
)
from .opt import completed

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


@recipes.command("list")
@opt.json
def list_(*, as_json: bool) -> None:
    """List the packaged recipes, and what each one lacks here.

    \b
    ccheck recipes list
    """
    from ..core.recipe import load_recipe, recipe_names

    settings = resolved_from(show_pending=True).settings  # to look at recipes needs no trust in the folder
    found = [load_recipe(name) for name in recipe_names()]
    lacks = {recipe.name: [part for part, why in parts_here(recipe, settings) if why] for recipe in found}
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


@recipes.command()
@click.argument("name", shell_complete=completed("recipes"))
def show(name: str) -> None:
    """Print a recipe.

    \b
    ccheck recipes show default > mine.toml
    """
    from ..core.recipe import recipe_text

    click.echo(without_controls(redact(recipe_text(name))), nl=False)


@recipes.command()
@click.argument("name", shell_complete=completed("recipes"))
@opt.replace
@opt.json
def check(name: str, *, replace: tuple[str, ...], as_json: bool) -> None:
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
    if as_json:
        stages = printed(recipe)
        print_json({"recipe": recipe.name, "usable": not missing, "models": models, **stages})
    else:
        retrievers = ", ".join(f"{key} ({stage.kind}, {stage.depth})" for key, stage in recipe.retrievers.items())
        rerankers = ", ".join(f"{key} ({stage.kind}, {stage.depth})" for key, stage in recipe.rerankers.items())
        fields = {"recipe": name, "retrievers": retrievers, "fusion": recipe.fusion.method, "rerankers": rerankers}
        inside: dict[str, str] = {}
        if recipe.figures is not None:
            found_by = {key: getattr(run, "retriever", run.model) for key, run in recipe.figures.runs.items()}
            runs = ", ".join(f"{key} ({run.kind}, {found_by[key]})" for key, run in recipe.figures.runs.items())
            inside["figures"] = f"{runs}, merged by {recipe.figures.merge}"
        if (found_in := recipe.passages) is not None:
            said = f"{found_in.sentences} sentences, {found_in.neighbours} to the left ({found_in.retriever})"
            inside["passages"] = f"{said}, expressions {found_in.expressions}, selection {found_in.select}"
        print_fields(stdout(), {**fields, **inside, "verdict": recipe.verdict.method, **models})
    if missing:
        raise NotFound("some models of the recipe are not installed")
