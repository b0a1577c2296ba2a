"""Changes that settings and flags make to a recipe, in the same way for every command and for Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import NotFound, UsageError
from .recipe import Recipe, load_recipe, name_clash
from .settings import FLAG, Settings
from .stages import Bm25, Dense, ModelStage, QuestionsStage, VerdictStage


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a command's flags ask for, apart from settings. None: no change."""

    fields: str | None = None
    no_dense: bool = False
    rerank_depth: int | None = None
    verdict: str | None = None
    strategy: str | None = None
    examples: str | None = None
    replace: Mapping[str, str] | None = None
    deadline: float | None = None
    all_pages: bool = False


_NONE = Changes()


def adjusted(settings: Settings, changes: Changes = _NONE, recipe: Recipe | None = None) -> Recipe:
    """The recipe (by default that of the settings) with what settings and flags change.

    A reranker of the settings replaces the recipe's own, and a judge that a flag names replaces the recipe's judge.
    Raises NotFound, InvalidData or UsageError.
    """
    recipe = recipe or load_recipe(settings.recipe, changes.replace)
    update: dict[str, Any] = {
        "retrievers": _retrievers(recipe, changes),
        "rerankers": _rerankers(recipe, settings, changes.rerank_depth),
        "verdict": _verdict(recipe, settings, changes),
        "questions": _questions(recipe, settings, changes),
    }
    if problem := name_clash(update["retrievers"], update["rerankers"]):
        raise UsageError(f"the recipe {recipe.name} with the reranker {settings.rerank}: {problem}")
    return recipe.model_copy(update=update)


def in_place_of_rerankers(settings: Settings) -> str | None:
    """A notice if a setting replaces the rerankers of all recipes; None otherwise."""
    if settings.rerank is None:
        return None
    origin = settings.origins.get("rerank", FLAG)
    return f"the reranker {settings.rerank} replaces the recipes' own (the setting rerank, from {origin})"


def _questions(recipe: Recipe, settings: Settings, changes: Changes) -> QuestionsStage | None:
    stage = recipe.questions
    flag = "--deadline" if changes.deadline is not None else "--all-pages" if changes.all_pages else None
    if stage is None:
        if flag is not None:
            raise UsageError(
                f"{flag} is for recipes that check with questions, and {recipe.name} does not: use --recipe "
                "averitec-questions"
            )
        return None
    if changes.strategy is not None or changes.examples is not None or changes.verdict == "stance":
        raise UsageError(
            f"the recipe {recipe.name} judges by the answers to questions. Leave out --strategy, --examples and "
            "--verdict, or use --verdict none"
        )
    if settings.rerank not in (None, "none") and settings.origins.get("rerank", FLAG) == FLAG:
        raise UsageError(f"the recipe {recipe.name} searches for questions without a reranker. Leave out --rerank")
    update: dict[str, Any] = {}
    if settings.llm_model is not None and settings.origins.get("llm_model") == FLAG:
        update["llm"] = settings.llm_model
    if changes.deadline is not None:
        update["deadline"] = changes.deadline
    if changes.all_pages:
        update["collection"] = None
    return stage.model_copy(update=update)


def _retrievers(recipe: Recipe, changes: Changes) -> dict[str, Any]:
    stages = dict(recipe.retrievers)
    if changes.no_dense:
        stages = {key: stage for key, stage in stages.items() if not isinstance(stage, Dense)}
        if not stages:
            raise UsageError(f"the recipe {recipe.name} has only dense retrievers. Leave out --no-dense")
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
            raise UsageError(
                f"the boost of {part.strip()!r} is not a number. Write for example title^2,text"
            ) from error
        if not name or not 0 < fields[name] < math.inf:
            raise UsageError(f"{part.strip()!r} in --fields is neither FIELD nor FIELD^BOOST with a boost above 0")
    return fields


def _rerankers(recipe: Recipe, settings: Settings, depth: int | None) -> dict[str, Any]:
    stages: dict[str, Any] = dict(recipe.rerankers)
    rerank = settings.rerank if recipe.questions is None else "none"
    if rerank == "none":
        stages = {}
    elif rerank == "late":
        stages = {"late": load_recipe("default").rerankers["late"]}
    elif rerank == "auto":
        stages = dict(load_recipe("default").rerankers)
    elif rerank is not None:
        own = next((stage for stage in stages.values() if isinstance(stage, ModelStage)), ModelStage())
        # What somebody names must be there, and it is its code that is trusted.
        named = {"model": rerank, "required": True, "trust_remote_code": settings.trust_remote_code}
        stages = {"rerank": own.model_copy(update=named)}
    if depth is not None:
        if not stages:
            raise UsageError("--rerank-depth needs a reranker. Choose one with --rerank")
        stages = {key: stage.model_copy(update={"depth": depth}) for key, stage in stages.items()}
    return stages


def _verdict(recipe: Recipe, settings: Settings, changes: Changes) -> VerdictStage:
    llm = settings.llm_model if settings.origins.get("llm_model") == FLAG else None
    stance = settings.stance_model if settings.origins.get("stance_model") == FLAG else None
    update: dict[str, Any] = {}
    method = changes.verdict
    if method is None and llm is not None and stance is not None:
        method = recipe.verdict.method
        if method not in ("llm", "stance"):
            raise UsageError("--llm and --stance name two judges. Choose one with --verdict llm or --verdict stance")
    elif method is None and stance is not None:
        method = "stance"
    elif method is None and (llm is not None or changes.strategy is not None or changes.examples is not None):
        method = "llm"
    if method is not None:
        update["method"] = method
    if changes.strategy is not None:
        update["strategy"] = changes.strategy
    elif changes.examples is not None and recipe.verdict.strategy == "one-step":
        update["strategy"] = "few-shot"
    if changes.examples is not None:
        path = Path(changes.examples)
        if not path.is_file():
            raise NotFound(f"the file of examples {changes.examples} does not exist")
        update["examples"] = path
    # A model that a flag names takes the place of the recipe's.
    named = stance if method == "stance" else llm if method == "llm" else None
    if named is not None:
        update["model"] = named
    return VerdictStage.model_validate({**recipe.verdict.model_dump(), **update})
