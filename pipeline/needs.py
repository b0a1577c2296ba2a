"""Lists what a recipe needs in a store. `ccheck ingest --recipe` provides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ..core.grounding_stages import ImageRun
from ..core.recipe import Recipe
from ..core.stages import (
    AdditionalStage,
    Analysis,
    Bm25,
    Dense,
    EnsembleStage,
    LateStage,
    ListwiseStage,
    ModelStage,
    Sparse,
    UnitsStage,
)

ModelKind: TypeAlias = Literal["tokenizer", "embedding", "sparse", "images", "reranker", "language model", "stance"]


@dataclass(frozen=True, slots=True)
class DenseNeed:
    """A field of vectors. `model` makes them (None: the store's own model, else the default), of passages or documents.

    `required`: some retriever can't go on without it.
    """

    model: str | None
    passages: bool
    required: bool


@dataclass(frozen=True, slots=True)
class UnitsNeed:
    """Units of one granularity: how documents are cut, whether units have vectors, and which model makes these.

    `model` is None for the main one. `cut` is None if the recipe searches units that it does not define.
    """

    cut: UnitsStage | None
    dense: bool = False
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """Fields of a store. `sparse` is the model's name; `units` are granularities by name."""

    dense: tuple[DenseNeed, ...] = ()
    sparse: str | None = None
    sparse_required: bool = False
    analyses: tuple[Analysis, ...] = ()
    additional: AdditionalStage | None = None
    units: Mapping[str, UnitsNeed] = field(default_factory=dict)

    @property
    def own(self) -> bool:
        """Whether it is more than the vectors that any store can have."""
        named = any(need.model is not None or not need.passages for need in self.dense)
        return bool(named or self.sparse or self.analyses or self.additional or self.units)


def needs_of(recipe: Recipe) -> Needs:
    """Returns the fields of a store that a recipe needs."""
    dense: dict[tuple[str | None, bool], bool] = {}
    analyses: list[Analysis] = []
    sparse, sparse_required = None, False
    for stage in recipe.retrievers.values():
        if isinstance(stage, Dense) and stage.field is None:
            key = (stage.model, stage.passages)
            dense[key] = dense.get(key, False) or stage.required
        elif isinstance(stage, Sparse):
            sparse, sparse_required = stage.model, sparse_required or stage.required
        elif isinstance(stage, Bm25) and stage.analysis is not None and stage.analysis not in analyses:
            analyses.append(stage.analysis)
    if not dense and any(cut.dense for cut in recipe.ingest.units.values()):
        dense[None, True] = True
    return Needs(
        tuple(DenseNeed(model, passages, required) for (model, passages), required in dense.items()),
        sparse,
        sparse_required,
        tuple(analyses),
        recipe.ingest.additional,
        _units(recipe),
    )


def _units(recipe: Recipe) -> dict[str, UnitsNeed]:
    """The granularities that the recipe defines, and those that its retrievers search."""
    units = {name: UnitsNeed(cut, cut.dense) for name, cut in recipe.ingest.units.items()}
    for stage in recipe.retrievers.values():
        if isinstance(stage, Sparse) or stage.units is None:
            continue
        need = units.get(stage.units, UnitsNeed(None))
        if isinstance(stage, Dense):
            need = replace(need, dense=True, model=stage.model or need.model)
        units[stage.units] = need
    return units


def models_used(recipe: Recipe) -> dict[str, ModelKind]:
    """Every model that the stages name, with what it is used as; `auto` and what the settings decide left out."""
    used: dict[str, ModelKind] = {}
    llms: list[str | None] = []
    for retriever in recipe.retrievers.values():
        if isinstance(retriever, Bm25):
            if retriever.analysis is not None and retriever.analysis.subwords is not None:
                used.setdefault(retriever.analysis.subwords, "tokenizer")
        elif retriever.model is not None:
            used[retriever.model] = "sparse" if isinstance(retriever, Sparse) else "embedding"
        if retriever.query != "claim":
            llms.append(recipe.rewriting.llm)
    for reranker in recipe.rerankers.values():
        if isinstance(reranker, EnsembleStage):
            used |= dict.fromkeys(reranker.models, "reranker")
        elif isinstance(reranker, ModelStage) and reranker.model != "auto" and "://" not in reranker.model:
            used[reranker.model] = "reranker"
        elif isinstance(reranker, LateStage):
            used[reranker.model] = "embedding"
        elif isinstance(reranker, ListwiseStage):
            llms.append(reranker.llm)
    if recipe.verdict.model is not None:
        if recipe.verdict.method == "stance":
            used[recipe.verdict.model] = "stance"
        else:
            llms.append(recipe.verdict.model)
    if recipe.questions is not None:
        llms.append(recipe.questions.llm)
    if recipe.ingest.additional is not None:
        llms.append(recipe.ingest.additional.llm)
    for stage in [*(recipe.figures.runs.values() if recipe.figures is not None else ()), recipe.passages]:
        if isinstance(stage, ImageRun):
            used[stage.model] = "images"
        elif stage is not None:
            if stage.retriever != "bm25" and stage.model is not None:
                used[stage.model] = "embedding"
            llms.append(stage.llm)
    return used | dict.fromkeys([name for name in llms if name is not None], "language model")
