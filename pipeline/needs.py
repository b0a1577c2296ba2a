"""Lists what a recipe needs in a store. `ccheck ingest --recipe` provides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..core.kinds import Terms, Units, Vectors, Weights
from ..core.recipe import Recipe
from ..core.stages import AdditionalStage, Analysis, UnitsStage


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
    """Fields of a store: `sparse` by the model's name, and the terms of `analyses`, each with whether some retriever
    requires it; `units` by granularity."""

    dense: tuple[DenseNeed, ...] = ()
    sparse: Mapping[str, bool] = field(default_factory=dict)
    analyses: Mapping[Analysis, bool] = field(default_factory=dict)
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
    sparse: dict[str, bool] = {}
    analyses: dict[Analysis, bool] = {}
    units = {name: UnitsNeed(cut, cut.dense) for name, cut in recipe.ingest.units.items()}
    for stage in recipe.retrievers.values():
        match stage.searches:
            case Vectors(model, passages, None):
                dense[model, passages] = dense.get((model, passages), False) or stage.required
            case Weights(model):
                sparse[model] = sparse.get(model, False) or stage.required
            case Terms(analysis):
                analyses[analysis] = analyses.get(analysis, False) or stage.required
            case Units(granularity, embedded, model):
                known = units.get(granularity, UnitsNeed(None))
                units[granularity] = replace(known, dense=embedded or known.dense, model=model or known.model)
    if not dense and any(cut.dense for cut in recipe.ingest.units.values()):
        dense[None, True] = True
    wanted = tuple(DenseNeed(model, passages, required) for (model, passages), required in dense.items())
    return Needs(wanted, sparse, analyses, recipe.ingest.additional, units)
