"""`ccheck recipes`: the pipelines that come with ccheck."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import MissingExtra, NotFound
from ..core.redaction import redact
from ..core.text import counted, without_controls
from . import opt
from .common import print_answer, replacements, resolved_from, settings_from

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


@opt.command
def list_(*, as_json: bool = opt.as_json) -> None:
    """List the packaged recipes, and what each one lacks here.

    \b
    ccheck recipes list
    """
    from ..core.recipe import load_recipe, recipe_names

    settings = resolved_from(show_pending=True).settings  # to look at recipes needs no trust in the folder
    found = [load_recipe(name) for name in recipe_names()]
    lacks = {recipe.name: _lacking(recipe, settings) for recipe in found}
    facts = [recipe.model_dump(mode="json") | {"lacks": lacks[recipe.name][0]} for recipe in found]
    fields = {one.name: f"{one.description} {_standing(one)}. {_runs(*lacks[one.name])}." for one in found}
    print_answer(as_json, facts, fields)


def _runs(lacking: list[str], missed: list[str]) -> str:
    if lacking:
        return f"Lacks {', '.join(lacking)}"
    return f"Runs here without {', '.join(missed)}" if missed else "Runs here"


def _standing(recipe: Recipe) -> str:
    """Whose system it is, and in how many things it differs from what was published or decides what is open there."""
    if recipe.source is None:
        return "ccheck's own"
    count = len(recipe.decisions)
    return f"As published, except {counted(count, 'decision')}" if count else "As published"


def _lacking(recipe: Recipe, settings: Settings) -> tuple[list[str], list[str]]:
    """The models that are not here: those that a recipe can't run without, and the others. Asks neither the hub nor the
    servers of language models."""
    from ..core.settings import Settings as Defaults
    from ..core.stages import Dense
    from ..encode.dense import DEFAULT_MODEL, MINILM
    from ..ingest.passages import refuse_uncut

    served = settings.llm_api_key is not None or settings.llm_base_url != Defaults.model_fields["llm_base_url"].default
    needed: dict[str, bool] = {}
    for stage in recipe.stages():
        for model, kind in stage.uses():
            if model is None and kind == "embedding":
                model = settings.embedding_model or (DEFAULT_MODEL if isinstance(stage, Dense) else MINILM)
            if model is not None and not (served if kind == "language model" else _folder(model, kind)):
                needed[model] = needed.get(model, False) or getattr(stage, "required", True)
    lacking = [model for model, need in needed.items() if need]
    asks = recipe.questions is not None or recipe.ingest.additional is not None or recipe.verdict.method == "llm"
    if asks and not served:
        lacking.append("a server of language models (OPENAI_BASE_URL, OPENAI_API_KEY)")
    try:
        refuse_uncut(units.cut for units in recipe.ingest.units.values())
    except MissingExtra as error:
        lacking.append(str(error))
    return lacking, [model for model, need in needed.items() if not need]


def _folder(model: str, kind: str) -> Path | None:
    from ..core.models import find_model
    from ..verdict.packaged_model import FOLDER, PACKAGED

    if (model, kind) == (PACKAGED, "stance"):
        return FOLDER
    with suppress(NotFound):
        return find_model(model, download=False, tokenizer_only=kind == "tokenizer").path
    return None


@opt.command
def show(name: str = opt.argument("NAME")) -> None:
    """Print a recipe.

    \b
    ccheck recipes show default > mine.toml
    """
    from ..core.recipe import recipe_text

    click.echo(without_controls(redact(recipe_text(name))), nl=False)


@opt.command
def check(
    name: str = opt.argument("NAME"), *, replace: tuple[str, ...] = opt.replace, as_json: bool = opt.as_json
) -> None:
    """Check a recipe and its ablations, and list its models and stages.

    \b
    ccheck recipes check mine.toml
    ccheck recipes check climatecheck-hybrid:few-shots-hybrid
    ccheck recipes check climatecheck-hybrid --replace gpt-4.1=qwen3

    For a published system, also says where ccheck differs. --json has the resolved recipe with all its values. Contacts
    neither the hub nor the servers of language models. If the recipe can't run here, the exit code is 4.
    """
    from ..core.adjust import printed, resolved
    from ..core.recipe import load_recipe, models_used, recipe_names, ways_to_get
    from ..core.stages import ModelStage
    from ..core.table import toml
    from ..rerank.open import AUTO, choose_model
    from ..verdict.calibration import load_calibration

    settings = settings_from()
    recipe = resolved(settings, recipe=load_recipe(name, replacements(replace)))
    for ablation in recipe.ablations if recipe.ablation is None else ():
        load_recipe(f"{name}:{ablation}")  # raises what keeps it from running
    if recipe.verdict.calibration is not None:
        load_calibration(recipe.verdict.calibration)
    models: dict[str, str] = {}
    lacking, missed = _lacking(recipe, settings)
    for model, kind in models_used(recipe).items():
        asked = kind == "language model"
        where = "on the configured server" if asked else _folder(model, kind)
        if model in (*lacking, *missed):
            where = f"not {'served' if asked else 'installed'}: {ways_to_get(recipe, model)}"
        models[model] = f"{kind}, {where}"
    for stage in recipe.rerankers.values():
        if isinstance(stage, ModelStage) and stage.model == AUTO:
            part = AUTO if stage.required else f"{AUTO} (optional)"
            try:
                models[part] = f"reranker, {choose_model(settings)}"
            except (NotFound, MissingExtra) as error:
                lacking += [AUTO] if stage.required else []
                models[part] = f"reranker, not available here: {error}"
    stages = printed(recipe)
    data = {"recipe": recipe.name, "usable": not lacking, "models": models, **stages, "decisions": recipe.decisions}
    mine = recipe.source is None and name.partition(":")[0] not in recipe_names()
    fields = {"recipe": f"{name}. {'Your own' if mine else _standing(recipe)}.", **models}
    fields |= {f"[{table}]": toml(keys) for table, keys in stages.items() if keys}
    fields |= {f"decision {number}": said for number, said in enumerate(recipe.decisions, 1)}
    print_answer(as_json, data, fields)
    if lacking:
        raise NotFound(f"the recipe {name} lacks {', '.join(lacking)}")


for command in (list_, show, check):
    recipes.add_command(command)
