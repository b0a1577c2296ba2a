"""Opens the encoders of an ingest: for the fields that the store has, and for those that a recipe needs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..core.errors import CcheckError, InvalidData, MissingExtra, NotFound, UsageError
from ..core.layout import Chunking, Embedding, Layout, UnitField
from ..core.recipe import Recipe, ways_to_get
from ..core.stages import AdditionalStage, Analysis
from ..ingest.encoders import DenseEncoder, Encoders, default_chunking, layout_of
from .needs import DenseNeed, Needs, needs_of

if TYPE_CHECKING:
    from ..core.runtime import Runtime
    from ..encode.dense import Embedder
    from ..encode.sparse import SparseEmbedder
    from ..ingest.additional import AdditionalWriter
    from ..search import StoreInfo

T = TypeVar("T")


def open_encoders(
    runtime: Runtime, info: StoreInfo | None, recipe: Recipe | None = None, dense: bool | None = None
) -> Encoders:
    """The encoders of an ingest into the store that `info` describes; None: it is new.

    They make all fields that the store has, with the models that made them, and the fields that the recipe needs in
    addition: with the recipe's own models, else with the settings' or the default embedding model. Without a recipe, a
    store that has only words gets the vectors of one embedding model, if it is available. `dense=False` makes no
    embeddings, `dense=True` insists on those of the settings' model.

    Raises NotFound, MissingExtra or UsageError if a required model is not available, with what to do, and InvalidData
    if the store was made differently. Models that no retriever of the recipe requires are left out.
    `Encoders.notices` names these, and models that stand in for others.
    """
    needs = needs_of(recipe) if recipe is not None else Needs()
    layout = info.layout if info is not None else Layout()
    notices = [f"{new} stands in for {old}" for old, new in recipe.replace.items()] if recipe is not None else []
    opening = _Opening(runtime, info, recipe, notices)
    dense_encoders = _dense(opening, layout, needs, dense)
    encoders = Encoders(
        dense=dense_encoders,
        sparse=_sparse(opening, layout, needs),
        analyses=_analyses(opening, layout, needs),
        additional=_additional(opening, layout, needs.additional),
        units=_units(opening, layout, needs, dense_encoders),
        notices=tuple(notices),
    )
    if info is not None:
        layout.check(layout_of(encoders), info.name)
    return encoders


class _Opening:
    """The encoders that are opened, for which parts, with notices about them."""

    def __init__(self, runtime: Runtime, info: StoreInfo | None, recipe: Recipe | None, notices: list[str]) -> None:
        self.runtime, self.info, self.recipe, self.notices = runtime, info, recipe, notices

    @property
    def recipe_name(self) -> str:
        return self.recipe.name if self.recipe is not None else ""

    def needed(self, what: str, required: bool, make: Callable[[], T]) -> T | None:
        """Makes something that the recipe needs; None, with a notice, if it is optional and not available."""
        try:
            return make()
        except (NotFound, MissingExtra) as error:
            if required:
                raise self.explained(error) from error
            self.notices.append(f"without {what}: {error}")
            return None

    def explained(self, error: CcheckError) -> CcheckError:
        """The error with how to have the model that it names."""
        if self.recipe is None or not isinstance(error, NotFound):
            return error
        ways = ways_to_get(self.recipe, error.model)
        return NotFound(f"the recipe {self.recipe.name}: {error}" + (f". {ways}" if ways else ""), model=error.model)


# -- embeddings


def _dense(opening: _Opening, layout: Layout, needs: Needs, dense: bool | None) -> tuple[DenseEncoder, ...]:
    from ..encode.dense import DEFAULT_MODEL, load_embedder

    runtime, recipe = opening.runtime, opening.recipe
    if dense is False:
        if any(need.required for need in needs.dense):
            raise UsageError(f"the recipe {opening.recipe_name} searches embeddings. Leave out --no-dense")
        return ()
    made: list[DenseEncoder] = []
    named = runtime.settings.embedding_model
    for number, field in enumerate(layout.dense.values()):
        name = (named if number == 0 else None) or field.embedding.model
        made.append(DenseEncoder(load_embedder(name, runtime, field.embedding), field.chunking))
    own = next((need for need in needs.dense if need.model is None), None)
    # A store that a recipe shaped without embeddings gets none unasked.
    unshaped = recipe is None and layout == Layout()
    if own is None and not made and (dense or unshaped):
        own = DenseNeed(None, True, required=bool(dense))
    if own is not None and not made:
        # First, since the store's own model is that of its main field.
        name = named or DEFAULT_MODEL
        required = own.required or dense is True or named is not None
        embedder = opening.needed(f"the embeddings of {name}", required, lambda: load_embedder(name, runtime))
        made += [_cut(embedder, own.passages)] if embedder is not None else []
    elif own is not None and not own.passages:
        _refuse_other_chunking(opening, made[0], own)
    for need in needs.dense:
        if need.model is not None:
            made += _further(opening, need, need.model, made)
    return tuple(made)


def _further(opening: _Opening, need: DenseNeed, model: str, made: Iterable[DenseEncoder]) -> list[DenseEncoder]:
    """The encoder of a model that the recipe names, if there is none yet."""
    from ..core.models import fingerprint
    from ..encode.dense import load_embedder

    def have() -> Embedder | None:
        identity = fingerprint(opening.runtime.find(model).path)
        for encoder in made:
            if encoder.embedder.spec.fingerprint == identity:
                _refuse_other_chunking(opening, encoder, need)
                return None
        return load_embedder(model, opening.runtime)

    embedder = opening.needed(f"the embeddings of {model}", need.required, have)
    return [_cut(embedder, need.passages)] if embedder is not None else []


def _cut(embedder: Embedder, in_passages: bool) -> DenseEncoder:
    spec = embedder.spec
    return DenseEncoder(embedder, default_chunking(spec) if in_passages else Chunking.whole(spec.max_tokens))


def _refuse_other_chunking(opening: _Opening, encoder: DenseEncoder, need: DenseNeed) -> None:
    """A store has one field of vectors for each model. Raises InvalidData if the recipe needs two."""
    if encoder.chunking.cuts == need.passages:
        return
    wanted, there = ("in passages", "whole") if need.passages else ("whole", "in passages")
    raise InvalidData(
        f"the recipe {opening.recipe_name} needs documents embedded {wanted} by {encoder.embedder.spec.model} "
        f"(passages = {str(need.passages).lower()}), but here they are embedded {there}. Ingest into another store "
        "(--store), or change passages in the recipe"
    )


# -- the rest


def _sparse(opening: _Opening, layout: Layout, needs: Needs) -> SparseEmbedder | None:
    from ..encode.sparse import load_sparse_embedder

    runtime, there = opening.runtime, layout.sparse
    if len(needs.sparse) > 1:
        raise InvalidData(
            f"the recipe {opening.recipe_name} names several sparse encoders ({', '.join(sorted(needs.sparse))}), but "
            "a store has the vectors of only one. Remove the others"
        )
    if not needs.sparse:
        return load_sparse_embedder(there.model, runtime, there) if there is not None else None
    ((model, required),) = needs.sparse.items()
    required = required or there is not None  # a store that has sparse vectors can't go on without their model
    return opening.needed(
        f"the sparse vectors of {model}", required, lambda: load_sparse_embedder(model, runtime, there)
    )


def _analyses(opening: _Opening, layout: Layout, needs: Needs) -> tuple[Analysis, ...]:
    from ..core.analysis import open_analysis

    found = list(layout.analyses)
    for analysis in found:
        open_analysis(analysis)
    for analysis, required in needs.analyses.items():
        if analysis in found:
            continue
        what = f"the terms of an analysis with {analysis.subwords}"
        if opening.needed(what, required, functools.partial(open_analysis, analysis)) is not None:
            found.append(analysis)
    return tuple(found)


def _units(opening: _Opening, layout: Layout, needs: Needs, dense: Sequence[DenseEncoder]) -> dict[str, UnitField]:
    """The granularities that the store has, and those of the recipe. Raises InvalidData for one that nobody defines."""
    units = dict(layout.units)
    for name, need in needs.units.items():
        there = layout.units.get(name)
        if need.cut is None and there is None:
            raise InvalidData(
                f"the recipe {opening.recipe_name} searches units {name!r}, but does not say how to cut them. Add a "
                f"table [ingest.units.{name}]"
            )
        embedding = there.embedding if there is not None else None
        if embedding is None and need.dense:
            embedding = _embedding_of(dense, need.model)
        if need.cut is None:
            units[name] = replace(units[name], embedding=embedding)
        else:
            window, chunk = need.cut.cut == "window", need.cut.cut == "chunk"
            size = (need.cut.tokens, need.cut.overlap) if window else (0, 0)
            units[name] = UnitField(need.cut.cut, *size, embedding, need.cut.characters if chunk else 0)
    return units


def _embedding_of(dense: Sequence[DenseEncoder], model: str | None) -> Embedding | None:
    """The model of that name among the encoders, by default the main one; None if there is none."""
    from ..core.models import find_model, fingerprint

    specs = [encoder.embedder.spec for encoder in dense]
    if not specs or model is None:
        return specs[0] if specs else None
    try:
        identity = fingerprint(find_model(model).path)
    except NotFound:
        return None  # it is left out, and a notice says so
    return next((spec for spec in specs if spec.fingerprint == identity), None)


def _additional(opening: _Opening, layout: Layout, wanted: AdditionalStage | None) -> AdditionalWriter | None:
    """Returns the writer of the recipe's additional texts, else of those that the store has."""
    there = layout.additional
    if wanted is None and there is not None:
        wanted = AdditionalStage(summary=there.summary, posts=there.posts, llm=there.model)
    if wanted is None:
        return None
    from ..ingest.additional import AdditionalWriter
    from ..llm import open_llm

    try:
        return AdditionalWriter(open_llm(opening.runtime, wanted.llm), wanted)
    except UsageError as error:
        whose = f"the recipe {opening.recipe_name}" if opening.recipe is not None else "the store"
        raise UsageError(f"{whose} has texts that a language model writes about each document: {error}") from error
