"""From flags, settings and a recipe to one pipeline, in the same way for every command and for Python.

A resolved pipeline is a `Recipe` in which all that settings and flags choose is filled in: frozen, validated,
printable. What runs is opened from it (`pipeline/plan.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from .errors import UsageError
from .recipe import Recipe, load_recipe, name_clash
from .settings import Settings
from .stages import ModelStage, QuestionsStage, Stage, VerdictStage
from .text import did_you_mean

S = TypeVar("S", bound=Stage)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that flags ask for, in a command or in `ccheck.open`. None: no change.

    `llm` and `stance` replace the models that a recipe names; the same in the settings is for recipes that name none.
    """

    llm: str | None = None
    stance: str | None = None
    rerank: str | None = None
    rerank_depth: int | None = None
    verdict: str | None = None
    replace: Mapping[str, str] | None = None


_NONE = Changes()


def resolved(settings: Settings, changes: Changes = _NONE, recipe: Recipe | None = None) -> Recipe:
    """The pipeline: the recipe (by default that of the settings) with what flags and settings change and choose.

    A reranker of the settings replaces the recipe's own. Raises NotFound, InvalidData or UsageError.
    """
    recipe = recipe or load_recipe(settings.recipe, changes.replace)
    rerank = changes.rerank or settings.rerank
    update: dict[str, Any] = {
        "rerankers": _rerankers(recipe, rerank, changes.rerank_depth),
        "verdict": _verdict(recipe, changes),
        "questions": _questions(recipe, changes),
    }
    if problem := name_clash(recipe.retrievers, update["rerankers"]):
        raise UsageError(f"the recipe {recipe.name} with the reranker {rerank}: {problem}")
    if changes.llm is not None:
        inside = {"figures": recipe.figures, "passages": recipe.passages}
        update |= {name: _with_llm(one, changes.llm, over=True) for name, one in inside.items() if one is not None}
    return filled(recipe.model_copy(update=update), settings)


def filled(recipe: Recipe, settings: Settings) -> Recipe:
    """The recipe with the models of the settings where it names none. Filling it again changes nothing."""
    llm, verdict = settings.llm_model, recipe.verdict
    if verdict.method == "auto" and recipe.questions is None and (llm or verdict.model or settings.stance_model):
        verdict = verdict.model_copy(update={"method": "llm" if llm or verdict.model else "stance"})
    named = llm if verdict.method == "llm" else settings.stance_model if verdict.method == "stance" else None
    if verdict.model is None and named is not None:
        verdict = verdict.model_copy(update={"model": named})
    recipe = recipe.model_copy(update={"verdict": verdict})
    return recipe if llm is None else _with_llm(recipe, llm)


def printed(recipe: Recipe) -> dict[str, Any]:
    """A resolved pipeline as JSON values: the stages with all their keys, without what the recipe says of itself."""
    about = {"name", "description", "source", "extends", "ablations", "decisions", "fine_tuned"}
    return recipe.model_dump(mode="json", exclude_none=True, exclude=about)


def _with_llm(stage: S, llm: str, *, over: bool = False) -> S:
    """The stage, and those within it, with this language model where they name none; `over`: also where they do."""

    def inside(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: inside(one) for name, one in value.items()}
        return _with_llm(value, llm, over=over) if isinstance(value, Stage) else value

    update = {name: inside(value) for name, value in stage if isinstance(value, Stage | dict)}
    if "llm" in type(stage).model_fields and (over or dict(stage)["llm"] is None):
        update["llm"] = llm
    return stage.model_copy(update=update) if update else stage


def _questions(recipe: Recipe, changes: Changes) -> QuestionsStage | None:
    stage = recipe.questions
    if stage is None:
        return None
    if changes.verdict == "stance":
        raise UsageError(
            f"the recipe {recipe.name} judges by the answers to questions. Leave out --verdict, or use --verdict none"
        )
    if changes.rerank not in (None, "none"):
        raise UsageError(f"the recipe {recipe.name} searches for questions without a reranker. Leave out --rerank")
    return stage if changes.llm is None else stage.model_copy(update={"llm": changes.llm, "asker": None})


def _rerankers(recipe: Recipe, rerank: str | None, depth: int | None) -> dict[str, Any]:
    stages: dict[str, Any] = dict(recipe.rerankers)
    rerank = rerank if recipe.questions is None else "none"
    if rerank in ("auto", "late", "none"):
        usual = load_recipe("default").rerankers
        stages = {name: stage for name, stage in usual.items() if rerank in ("auto", name)}
    elif rerank is not None:
        own = next((stage for stage in stages.values() if isinstance(stage, ModelStage)), ModelStage())
        # What somebody names must be there.
        stages = {"rerank": own.model_copy(update={"model": rerank, "required": True})}
    if depth is not None:
        if not stages:
            raise UsageError("--rerank-depth needs a reranker. Choose one with --rerank")
        stages = {key: stage.model_copy(update={"depth": depth}) for key, stage in stages.items()}
    return stages


def _verdict(recipe: Recipe, changes: Changes) -> VerdictStage:
    """The judge that a flag names takes the place of the recipe's, with its method and model."""
    models = {"llm": changes.llm, "stance": changes.stance}
    named = [method for method, model in models.items() if model is not None]
    method = changes.verdict or (named[0] if len(named) == 1 else recipe.verdict.method)
    if len(named) > 1 and changes.verdict is None and method not in named:
        raise UsageError("--llm and --stance name two judges. Choose one with --verdict llm or --verdict stance")
    if method not in (known := get_args(VerdictStage.model_fields["method"].annotation)):
        hint = did_you_mean(str(method), known, f"known: {', '.join(known)}")
        raise UsageError(f"verdict is {method!r}: {hint}")
    model = models.get(method) or recipe.verdict.model
    return VerdictStage.model_validate({**recipe.verdict.model_dump(), "method": method, "model": model})
