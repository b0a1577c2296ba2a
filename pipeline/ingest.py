"""What an ingest works with: what a recipe needs in a store, and the encoders that make it and what the store has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.adjust import resolved
from ..core.analysis import open_analysis
from ..core.errors import InvalidData, MissingExtra, NotFound, UsageError
from ..core.layout import Chunking, Embedding, FieldKind, Layout, Terms, UnitField, Units, Vectors, Weights, Words
from ..core.models import find_model, fingerprint
from ..core.recipe import Recipe, load_recipe, with_ways_to_get
from ..core.runtime import Runtime
from ..core.settings import Settings
from ..core.stages import AdditionalStage, Analysis
from ..encode import dense as embedders
from ..encode.dense import DEFAULT_MODEL, Embedder
from ..encode.sparse import SparseEmbedder, load_sparse_embedder
from ..ingest.encoders import DenseEncoder, Encoders, default_chunking, layout_of
from ..search import StoreInfo

if TYPE_CHECKING:
    from ..ingest.additional import AdditionalWriter


def needs_of(recipe: Recipe) -> dict[FieldKind, bool]:
    """The fields that a recipe's retrievers search, each with whether some retriever can't go on without it."""
    needs: dict[FieldKind, bool] = {}
    for stage in recipe.retrievers.values():
        kind = stage.searches
        if not isinstance(kind, Vectors) or kind.field is None:  # else the store's own field
            needs[kind] = needs.get(kind, False) or stage.required
    # Vectors of units are made by a model that makes vectors of passages too.
    for kind, required in list(needs.items()):
        if isinstance(kind, Units) and kind.dense:
            same = (one for one in needs if isinstance(one, Vectors) and kind.model in (None, one.model))
            maker = next(same, Vectors(kind.model))
            needs[maker] = needs.get(maker, False) or required
    if any(cut.dense for cut in recipe.ingest.units.values()) and not any(isinstance(one, Vectors) for one in needs):
        needs[Vectors()] = True
    return needs


def needs_own(recipe: Recipe) -> bool:
    """Whether a recipe needs more than the words and vectors that any store can have."""
    own = [kind for kind in needs_of(recipe) if not isinstance(kind, Words) and kind != Vectors()]
    return bool(own or recipe.ingest.additional or recipe.ingest.units)


def recipe_to_ingest(
    settings: Settings, name: str | None = None, replace: Mapping[str, str] | None = None
) -> Recipe | None:
    """The recipe whose fields an ingest adds to the store; None if a plain store has everything.

    Without a name it is the settings' recipe, but only if that searches what a plain store lacks. Raises as
    `load_recipe` does.
    """
    if name is None:
        recipe = resolved(settings)
        return recipe if needs_own(recipe) or not recipe.ingest.titles else None
    return load_recipe(name, replace or {})


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
    opening = _Opening(runtime, info.layout if info is not None else Layout(), recipe)
    dense_encoders = opening.dense(dense)
    encoders = Encoders(
        dense=dense_encoders,
        sparse=opening.sparse(),
        analyses=opening.analyses(),
        additional=opening.additional(),
        units=opening.units(dense_encoders),
        notices=tuple(opening.notices),
    )
    if info is not None:
        info.layout.check(layout_of(encoders), info.name)
    return encoders


class _Opening:
    """Opens encoders for what a store has (its layout) and what a recipe needs, with notices about them."""

    def __init__(self, runtime: Runtime, layout: Layout, recipe: Recipe | None) -> None:
        self._runtime = runtime if recipe is None else runtime.asking(recipe.language_model)
        self._layout, self._recipe = layout, recipe
        self._needs = needs_of(recipe) if recipe is not None else {}
        self._name = recipe.name if recipe is not None else ""
        self.notices = (
            [f"{new} stands in for {old}" for old, new in recipe.replace.items()] if recipe is not None else []
        )

    @contextlib.contextmanager
    def _needing(self, what: str, required: bool) -> Iterator[None]:
        """What the recipe needs is opened; if it is optional and not available, it is left out with a notice."""
        try:
            yield
        except (NotFound, MissingExtra) as error:
            if required:
                raise (with_ways_to_get(error, self._recipe) if self._recipe is not None else error) from error
            self.notices.append(f"without {what}: {error}")

    def dense(self, wanted: bool | None) -> tuple[DenseEncoder, ...]:
        runtime, layout = self._runtime, self._layout
        needs = {kind: required for kind, required in self._needs.items() if isinstance(kind, Vectors)}
        if wanted is False:
            if any(needs.values()):
                raise UsageError(f"the recipe {self._name} searches embeddings. Leave out --no-dense")
            return ()
        named = runtime.settings.embedding_model
        made: list[DenseEncoder] = []
        for number, field in enumerate(layout.dense.values()):
            name = (named if number == 0 else None) or field.embedding.model
            made.append(DenseEncoder(embedders.load_embedder(name, runtime, field.embedding), field.chunking))
        own = next((kind for kind in needs if kind.model is None), None)
        # A store that a recipe shaped without embeddings gets none unasked.
        if own is None and not made and (wanted or (self._recipe is None and layout == Layout())):
            own = Vectors()
        if own is not None and not made:
            # First, since the store's own model is that of its main field.
            name = named or DEFAULT_MODEL
            required = needs.get(own, False) or wanted is True or named is not None
            with self._needing(f"the embeddings of {name}", required):
                made.append(_cut(embedders.load_embedder(name, runtime), own))
        elif own is not None and not own.passages:
            self._refuse_other_chunking(made[0], own)
        for kind, required in needs.items():
            if kind.model is not None:
                with self._needing(f"the embeddings of {kind.model}", required):
                    identity = fingerprint(runtime.find(kind.model).path)
                    there = [one for one in made if one.embedder.spec.fingerprint == identity]
                    if there:
                        self._refuse_other_chunking(there[0], kind)
                    else:
                        made.append(_cut(embedders.load_embedder(kind.model, runtime), kind))
        return tuple(made)

    def _refuse_other_chunking(self, encoder: DenseEncoder, kind: Vectors) -> None:
        """A store has one field of vectors for each model. Raises InvalidData if the recipe needs two."""
        if encoder.chunking.cuts == kind.passages:
            return
        wanted, there = ("in passages", "whole") if kind.passages else ("whole", "in passages")
        raise InvalidData(
            f"the recipe {self._name} needs documents embedded {wanted} by {encoder.embedder.spec.model} "
            f"(passages = {str(kind.passages).lower()}), but here they are embedded {there}. Ingest into another store "
            "(--store), or change passages in the recipe"
        )

    def sparse(self) -> SparseEmbedder | None:
        runtime, there = self._runtime, self._layout.sparse
        needs = {kind.model: required for kind, required in self._needs.items() if isinstance(kind, Weights)}
        if len(needs) > 1:
            raise InvalidData(
                f"the recipe {self._name} names several sparse encoders ({', '.join(sorted(needs))}), but a store has "
                "the vectors of only one. Remove the others"
            )
        if not needs:
            return load_sparse_embedder(there.model, runtime, there) if there is not None else None
        ((model, required),) = needs.items()
        required = required or there is not None  # a store that has sparse vectors can't go on without their model
        with self._needing(f"the sparse vectors of {model}", required):
            return load_sparse_embedder(model, runtime, there)
        return None

    def analyses(self) -> tuple[Analysis, ...]:
        found = list(self._layout.analyses)
        for analysis in found:
            open_analysis(analysis)
        for kind, required in self._needs.items():
            if isinstance(kind, Terms) and kind.analysis not in found:
                with self._needing(f"the terms of an analysis with {kind.analysis.subwords}", required):
                    open_analysis(kind.analysis)
                    found.append(kind.analysis)
        return tuple(found)

    def units(self, dense: Sequence[DenseEncoder]) -> dict[str, UnitField]:
        """The granularities that the store has, and the recipe's. Raises InvalidData for one that nobody defines."""
        units = dict(self._layout.units)
        cuts = self._recipe.ingest.units if self._recipe is not None else {}
        searched = [kind for kind in self._needs if isinstance(kind, Units)]
        for name in dict.fromkeys([*cuts, *(kind.granularity for kind in searched)]):
            cut, there = cuts.get(name), units.get(name)
            embedded = [kind for kind in searched if kind.granularity == name and kind.dense]
            embedding = there.embedding if there is not None else None
            if embedding is None and (embedded or (cut is not None and cut.dense)):
                embedding = _embedding_of(dense, next((kind.model for kind in embedded if kind.model), None))
            if cut is not None:
                size = (cut.tokens, cut.overlap) if cut.cut == "window" else (0, 0)
                units[name] = UnitField(cut.cut, *size, embedding, cut.characters if cut.cut == "chunk" else 0)
            elif there is not None:
                units[name] = replace(there, embedding=embedding)
            else:
                raise InvalidData(
                    f"the recipe {self._name} searches units {name!r}, but does not say how to cut them. Add a table "
                    f"[ingest.units.{name}]"
                )
        return units

    def additional(self) -> AdditionalWriter | None:
        """Returns the writer of the recipe's additional texts, else of those that the store has."""
        there = self._layout.additional
        wanted = self._recipe.ingest.additional if self._recipe is not None else None
        if wanted is None and there is not None:
            wanted = AdditionalStage(summary=there.summary, posts=there.posts, llm=there.model)
        if wanted is None:
            return None
        from ..ingest.additional import AdditionalWriter
        from ..llm.model import open_llm

        try:
            return AdditionalWriter(open_llm(self._runtime, wanted.llm), wanted)
        except UsageError as error:
            whose = f"the recipe {self._name}" if self._recipe is not None else "the store"
            raise UsageError(f"{whose} has texts that a language model writes about each document: {error}") from error


def _cut(embedder: Embedder, kind: Vectors) -> DenseEncoder:
    spec = embedder.spec
    return DenseEncoder(embedder, default_chunking(spec) if kind.passages else Chunking.whole(spec.max_tokens))


def _embedding_of(dense: Sequence[DenseEncoder], model: str | None) -> Embedding | None:
    """The model of that name among the encoders, by default the main one; None if there is none."""
    specs = [encoder.embedder.spec for encoder in dense]
    if not specs or model is None:
        return specs[0] if specs else None
    try:
        identity = fingerprint(find_model(model).path)
    except NotFound:
        return None  # it is left out, and a notice says so
    return next((spec for spec in specs if spec.fingerprint == identity), None)
