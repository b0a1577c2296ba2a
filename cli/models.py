"""`ccheck models`: the models that the packaged recipes name, and weights in a format that ccheck does not load."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from ..core.errors import NotFound
from . import opt
from .common import counted, inform, print_fields, print_json, stdout

LANGUAGE_MODEL = "language model"
"""The kind of a model that a server has."""
BASE = "base of a training"
NO_SAFETENSORS = "not before ccheck models convert"


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a model: files, bytes, licence, and whether ccheck loads it. None: nobody was asked."""

    used_as: str
    recipes: list[str]
    here: str | None = None
    files: list[str] | None = None
    bytes: int | None = None
    licence: str | None = None
    gated: bool | None = None
    loads: str | None = None


@click.group()
def models() -> None:
    """List the models of recipes, or convert one's weights.

    \b
    ccheck models list --hub
    ccheck models convert BAAI/bge-m3 bge-m3
    """


@opt.command(name="list")
def list_(
    hub: bool = opt.option("Also ask the hub for files, size and licence of what is not installed."),
    *,
    as_json: bool = opt.as_json,
) -> None:
    """List every model that a packaged recipe or its ablations name.

    \b
    ccheck models list
    ccheck models list --hub --json > models.jsonl

    Says which are installed, with their files and size, and whether ccheck loads them: it reads only safetensors,
    and runs no code of a model's authors. Language models are on a server, under the name that it uses.
    """
    from ..core.models import hub_reachable

    if hub and not hub_reachable():
        raise NotFound("the hub can't be reached. Leave out --hub, or set HF_ENDPOINT to a mirror")
    found: dict[str, str] = {}
    for name, facts in _named().items():
        known = _known(name, facts, hub=hub)
        found[name] = _said(known)
        if as_json:
            print_json({"model": name, **asdict(known)})
    if not as_json:
        print_fields(stdout(), found)


@opt.command
def convert(name: str = opt.argument("MODEL"), output: str = opt.argument("FOLDER")) -> None:
    """Convert weights that torch saved into safetensors.

    \b
    ccheck models convert BAAI/bge-m3 bge-m3
    ccheck train embedder --preset climatecheck-hybrid --base ./bge-m3 ...

    MODEL is a name on the hub or a folder with pytorch_model.bin. It is read once, as tensors alone, by a process that
    has no network and no keys. Use FOLDER as the model from then on.
    """
    from ..core.convert import convert as made

    weights = made(name, Path(output))
    inform(f"{output} has {counted(len(weights), 'file')} of safetensors. Name it with ./{output} or its full path")


def _named() -> dict[str, Facts]:
    """Every model that the packaged recipes name, with what it is used as."""
    from ..core.recipe import load_recipe, models_used, recipe_names

    found: dict[str, Facts] = {}
    for name in recipe_names():
        recipe = load_recipe(name)
        bases = {made.base: BASE for made in recipe.fine_tuned.values()}
        for one in [recipe, *(load_recipe(f"{name}:{ablation}") for ablation in recipe.ablations)]:
            for model, kind in {**bases, **models_used(one)}.items():
                facts = found.setdefault(model, Facts(kind, []))
                recipes = facts.recipes if name in facts.recipes else [*facts.recipes, name]
                # A model that embeds, too, is more than a tokenizer or a base.
                used_as = kind if facts.used_as in ("tokenizer", BASE) else facts.used_as
                found[model] = replace(facts, used_as=used_as, recipes=recipes)
    return dict(sorted(found.items()))


def _known(name: str, facts: Facts, *, hub: bool) -> Facts:
    from ..core.models import find_model
    from ..core.recipe import load_recipe

    if facts.used_as == LANGUAGE_MODEL:
        return replace(_on_the_hub(name, facts), loads=None) if hub and "/" in name else facts
    trained = {model: made.train for recipe in facts.recipes for model, made in load_recipe(recipe).fine_tuned.items()}
    with suppress(NotFound):
        path = find_model(name, download=False, tokenizer_only=facts.used_as == "tokenizer").path
        sizes = {str(file.relative_to(path)): file.stat().st_size for file in path.rglob("*") if file.is_file()}
        return replace(facts, here=str(path), files=sorted(sizes), bytes=sum(sizes.values()), loads="yes")
    if name in trained:
        return replace(facts, loads=f"after {trained[name]}")
    return _on_the_hub(name, facts) if hub else facts


def _on_the_hub(name: str, facts: Facts) -> Facts:
    from fnmatch import fnmatch

    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    from ..core.models import BESIDE, PICKLED

    try:
        info = HfApi().model_info(name, files_metadata=True)
    except HfHubHTTPError as error:
        return replace(facts, loads=f"unknown: {str(error).splitlines()[0]}")
    sizes = {one.rfilename: one.size or 0 for one in info.siblings or []}
    patterns = ("*.safetensors", f"*{PICKLED}", *BESIDE)
    files = [file for file in sorted(sizes) if any(fnmatch(file, pattern) for pattern in patterns)]
    return replace(
        facts,
        files=files,
        bytes=sum(sizes[file] for file in files),
        licence=getattr(info.card_data, "license_name", None) or getattr(info.card_data, "license", None),
        gated=bool(info.gated),
        loads=_loads(files, info.config or {}),
    )


def _loads(files: list[str], config: Mapping[str, Any]) -> str:
    """Whether ccheck loads a model with these files and this config.json; else what keeps it from that."""
    from fnmatch import fnmatch

    from ..core.models import PICKLED, models_installed

    if not any(file.endswith(".safetensors") for file in files):
        return NO_SAFETENSORS if any(fnmatch(file, f"*{PICKLED}") for file in files) else "no: it has no weights"
    if not config.get("auto_map") or not models_installed():
        return "yes"
    from ..rerank.load import runs_here

    return "yes" if runs_here(dict(config)) else "no: it needs its authors' code"


def _said(facts: Facts) -> str:
    """The facts in words."""
    said = [f"{facts.used_as}, for {', '.join(facts.recipes)}"]
    here = f"In {facts.here}" if facts.here else "Not installed"
    said.append("On a server" if facts.used_as == LANGUAGE_MODEL else here)
    if facts.bytes is not None:
        said.append(f"{counted(len(facts.files or ()), 'file')}, {facts.bytes / 1e9:.2f} GB")
    if facts.licence or facts.gated:
        said.append(f"Licence: {facts.licence or 'not stated'}{', to be accepted first' if facts.gated else ''}")
    if facts.loads is not None:
        said.append(f"Loads: {facts.loads}")
    return ". ".join(said) + "."


for command in (list_, convert):
    models.add_command(command)
