"""The recipe with what flags and settings change of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NotFound, UsageError

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..settings import Settings


@dataclass(frozen=True, slots=True)
class Changes:
    """What the flags of a command say; None: nothing."""

    fields: str | None = None
    no_dense: bool = False
    rerank_depth: int | None = None
    verdict: str | None = None
    llm: str | None = None
    strategy: str | None = None
    examples: str | None = None
    stance: str | None = None
    replace: Mapping[str, str] | None = None


def adjusted(settings: Settings, changes: Changes) -> Recipe:
    """The settings' recipe as the flags want it. Raises NotFound, InvalidData or UsageError."""
    from ..recipe import load_recipe

    recipe = load_recipe(settings.recipe, changes.replace)
    update = {
        "retrievers": _retrievers(recipe, changes),
        "rerankers": _rerankers(recipe, settings.rerank, changes.rerank_depth),
        "verdict": _verdict(recipe, changes),
    }
    return recipe.model_copy(update=update)


def _retrievers(recipe: Recipe, changes: Changes) -> dict[str, Any]:
    from ..stages import Bm25, Dense

    stages = dict(recipe.retrievers)
    if changes.no_dense:
        stages = {key: stage for key, stage in stages.items() if not isinstance(stage, Dense)}
        if not stages:
            raise UsageError(f"the recipe {recipe.name} has nothing but dense retrieval: leave out --no-dense")
    if changes.fields is not None:
        wanted = _fields(changes.fields)
        stages = {
            key: stage.model_copy(update={"fields": wanted}) if isinstance(stage, Bm25) else stage
            for key, stage in stages.items()
        }
    return stages


def _fields(text: str) -> dict[str, float]:
    fields = {}
    for part in text.split(","):
        name, caret, boost = part.strip().partition("^")
        try:
            fields[name] = float(boost) if caret else 1.0
        except ValueError as error:
            raise UsageError(f"the boost of {part.strip()!r} is not a number: write title^2,text") from error
        if not name or not 0 < fields[name] < math.inf:
            raise UsageError(f"{part.strip()!r} in --fields is not FIELD or FIELD^BOOST with a boost above 0")
    return fields


def _rerankers(recipe: Recipe, rerank: str | None, depth: int | None) -> dict[str, Any]:
    from ..recipe import load_recipe
    from ..stages import ModelReranker

    stages: dict[str, Any] = dict(recipe.rerankers)
    if rerank == "none":
        stages = {}
    elif rerank == "late":
        stages = dict(load_recipe("late").rerankers)
    elif rerank is not None:
        own = next((stage for stage in stages.values() if isinstance(stage, ModelReranker)), ModelReranker())
        # What somebody names must be there; auto takes what there is.
        stages = {"rerank": own.model_copy(update={"model": rerank, "required": rerank != "auto"})}
    if depth is not None:
        if not stages:
            raise UsageError("--rerank-depth is for a reranker: name one by --rerank")
        stages = {key: stage.model_copy(update={"depth": depth}) for key, stage in stages.items()}
    return stages


def _verdict(recipe: Recipe, changes: Changes) -> Any:
    from ..stages import VerdictStage

    update: dict[str, Any] = {}
    method = changes.verdict
    if method is None and changes.stance is not None:
        method = "stance"
    elif method is None and (changes.llm is not None or changes.strategy is not None or changes.examples is not None):
        method = "llm"
    if method is not None:
        update["method"] = method
    if changes.llm is not None and changes.stance is not None and changes.verdict is None:
        raise UsageError("--llm and --stance are two judges: say which by --verdict llm or --verdict stance")
    if changes.strategy is not None:
        update["strategy"] = changes.strategy
    elif changes.examples is not None and recipe.verdict.strategy == "one-step":
        update["strategy"] = "few-shot"
    if changes.examples is not None:
        path = Path(changes.examples)
        if not path.is_file():
            raise NotFound(f"there is no file of examples {changes.examples}")
        update["examples"] = path
    # A model that a flag names takes the place of the recipe's.
    named = changes.stance if method == "stance" else changes.llm if method in ("llm", "local-llm") else None
    if named is not None:
        update["model"] = named
    return VerdictStage.model_validate({**recipe.verdict.model_dump(), **update})
