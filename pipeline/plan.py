"""Plans a run: the parts of a recipe that can run on a store and a machine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import CcheckError, InvalidData, MissingExtra, NotFound
from ..core.layout import Embedding, SparseField
from ..core.models import fingerprint, require_models
from ..core.recipe import Recipe, recipe_names, with_ways_to_get
from ..core.runtime import Runtime
from ..core.stages import Bm25, Dense, LateStage, ModelStage, QuestionsStage, RerankerStage, Retriever, Sparse
from ..core.text import name_of
from ..encode.dense import Embedder, load_embedder
from ..encode.sparse import SparseEmbedder, load_sparse_embedder
from ..rerank import Reranker
from ..rerank.open import AUTO, open_matcher, open_reranker
from ..search import StoreInfo
from ..search.store import no_documents, no_store, not_held, refuse_missing, searched_units
from ..verdict.open import open_method
from .relevance import model_for

if TYPE_CHECKING:
    from ..llm.model import LanguageModel
    from ..verdict import StanceMethod
    from ..verdict.evidence import Match
    from ..verdict.questions import Asking

DEGRADED = "retrieval is degraded"
"""The beginning of a warning that searches find less than they should."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts that can run: retrievers with their encoders, rerankers, a judge, and notes for the user.

    `info` is the store when the plan was made. `embedder` is the model of its main vectors, if it is used. `match`
    compares the tokens of a claim with those of sentences, where there is a model. `rewriter` is who rewrites claims,
    None if nobody does. `asking` is who asks and answers questions about claims, None for recipes without. `method` is
    None where nobody judges, or a judge of the user's own. `degraded`: searches find less than they should, so that
    nothing follows from what they don't find. `fingerprint` is that of the weights of `embedder`. Below the estimate
    `least_relevance`, nothing that these retrievers found bears on a claim, unless the recipe says another.
    """

    info: StoreInfo
    retrievers: dict[str, Retriever]
    encoders: dict[str, Embedder | SparseEmbedder]
    embedder: Embedder | None
    fingerprint: str | None
    least_relevance: float
    rewriter: LanguageModel | None
    rerankers: dict[str, tuple[RerankerStage, Reranker]]
    match: Match | None
    method: StanceMethod | None
    warnings: tuple[str, ...]
    asking: Asking | None
    degraded: bool


def make_plan(
    recipe: Recipe, info: StoreInfo | None, store: str, runtime: Runtime, *, strict: bool, judges: bool
) -> Plan:
    """The plan. `judges`: whether the recipe's judge is wanted. `strict`: nothing may be left out but retrievers.

    Raises NotFound for a store that is missing or empty, and what a required part lacks.
    """
    if info is None:
        raise no_store(store)
    if info.documents == 0:
        raise no_documents(info.name)
    warnings = [f"{new} stands in for {old}" for old, new in recipe.replace.items()]
    warnings += info.notices
    degraded = list(info.degraded)
    if info.pending:
        degraded.append(
            f"{info.pending:,} documents are not yet in the BM25 index: an ingest is running or was interrupted. "
            "To finish it, run it again"
        )
    left_out = warnings if info.dimensions is None else degraded
    retrievers, encoders = _open_retrievers(recipe, info, runtime, left_out)
    warnings += [f"{DEGRADED}: {one}" for one in degraded]
    main = info.layout.embedding
    used = (one for one in encoders.values() if isinstance(one, Embedder))
    embedder = next((one for one in used if main is None or one.spec.fingerprint == main.fingerprint), None)
    identity = embedder.spec.fingerprint if embedder is not None else None
    rewriter = _open_rewriter(recipe, retrievers, runtime, warnings)
    rerankers = _open_rerankers(recipe, runtime, warnings, strict=strict, words_alone=embedder is None)
    asking: Asking | None = None
    method: StanceMethod | None = None
    try:
        if recipe.questions is not None:
            asking = _open_asking(recipe.questions, runtime)
        elif judges and recipe.verdict.method != "none":
            method = open_method(recipe.verdict, runtime)
    except (NotFound, MissingExtra) as error:
        raise with_ways_to_get(error, recipe) from error
    return Plan(
        info,
        retrievers,
        encoders,
        embedder,
        identity,
        model_for(retrievers, identity)[0].least,
        rewriter,
        rerankers,
        open_matcher(runtime) if embedder is not None or rerankers else None,
        method,
        (*warnings, *runtime.notices()),
        asking,
        bool(degraded),
    )


# -- retrievers


def fits(recipe: Recipe, info: StoreInfo) -> bool:
    """Whether a store has what a recipe searches. An index that others made can have it in fields of any name."""
    missing = {name: stage.searches.missing(info.layout) for name, stage in recipe.retrievers.items()}
    needs = (missing[name] for name, stage in recipe.retrievers.items() if stage.required)
    return not info.made_here or (None in missing.values() and not any(needs))


def _open_retrievers(
    recipe: Recipe, info: StoreInfo, runtime: Runtime, warnings: list[str]
) -> tuple[dict[str, Retriever], dict[str, Embedder | SparseEmbedder]]:
    retrievers: dict[str, Retriever] = {}
    encoders: dict[str, Embedder | SparseEmbedder] = {}
    left_out: dict[str, CcheckError] = {}
    how = _ingesting(recipe, info.name)
    for name, stage in recipe.retrievers.items():
        try:
            retrievers[name], encoder = _open_retriever(stage, info, runtime, how)
            encoders |= {name: encoder} if encoder is not None else {}
        except (NotFound, MissingExtra) as error:
            # A model that somebody named and that is not there is an error, not a reason to go on with less.
            named = isinstance(stage, Dense) and runtime.settings.embedding_model is not None and stage.model is None
            insisted = named and isinstance(error, NotFound) and info.dimensions is not None
            # The words of an index can all be in fields that its server embeds.
            wordless = isinstance(stage, Bm25) and not info.words
            if (stage.required and not wordless) or insisted:
                raise with_ways_to_get(error, recipe) from error
            left_out[name] = error
    if not retrievers:
        raise next(iter(left_out.values()))
    searched_units(retrievers)  # those that rank different things can't be joined
    only_words = all(isinstance(stage, Bm25) for stage in retrievers.values())
    for name, why in left_out.items():
        warnings.append(f"BM25 only: {why}" if only_words else f"without {name}: {why}")
    return retrievers, encoders


def _ingesting(recipe: Recipe, store: str) -> str:
    """The command that gives a store what the recipe searches in."""
    # A recipe of a file is found by its path, which is not known here.
    name = recipe.name if recipe.name.partition(":")[0] in recipe_names() else "NAME"
    stand_ins = [f"--replace {shlex.quote(f'{old}={new}')}" for old, new in recipe.replace.items()]
    return " ".join(["ccheck ingest FILE --recipe", name, *stand_ins, "--store", shlex.quote(store)])


def _open_retriever(
    stage: Retriever, info: StoreInfo, runtime: Runtime, how: str
) -> tuple[Retriever, Embedder | SparseEmbedder | None]:
    """The retriever with the field that it searches, and what encodes claims for it, if anything does."""
    if isinstance(stage, Dense) and stage.units is None:
        if (field := _embedded_there(stage, info, runtime)) is not None:
            return stage.model_copy(update={"field": field}), None
        field, embedder = _open_dense(stage, info, runtime, how)
        return stage.model_copy(update={"field": field}), embedder
    if isinstance(stage, Bm25):
        if not info.words:
            raise NotFound(f"{info.name} has no text field in which BM25 finds words")
        if info.made_here or set(stage.fields) == {"content"}:  # another index can have fields of any name
            refuse_missing({stage.kind: stage}, info.layout, info.name, how)
        return stage, None
    refuse_missing({stage.kind: stage}, info.layout, info.name, how)
    if isinstance(stage, Sparse):
        known = info.layout.sparse
        assert known is not None
        require_models("sparse retrieval")
        _refuse_other(f"the sparse vectors of the store {info.name} were", known, stage.model, runtime)
        return stage, load_sparse_embedder(stage.model, runtime, known)
    embedding = info.layout.units[stage.units or ""].embedding
    assert embedding is not None
    model = stage.model or runtime.settings.embedding_model or embedding.model
    made = f"the vectors for the units {stage.units!r} of the store {info.name} were"
    _refuse_other(made, embedding, model, runtime)
    return stage, load_embedder(model, runtime, embedding)


def _embedded_there(stage: Dense, info: StoreInfo, runtime: Runtime) -> str | None:
    """The field that the store's server embeds itself, claims too; None if the retriever searches vectors."""
    if stage.field is not None:
        return stage.field if stage.field in info.semantic else None
    named = stage.model or runtime.settings.embedding_model or info.model
    return None if named and info.dimensions is not None else next(iter(info.semantic), None)


def _open_dense(stage: Dense, info: StoreInfo, runtime: Runtime, how: str) -> tuple[str | None, Embedder]:
    """The field of vectors, None for the main one, and the model that made them.

    Raises NotFound or MissingExtra if they are not here, InvalidData for other weights than the store's.
    """
    if info.dimensions is None and not info.made_here:
        from ..search.elastic.companion import SEVERAL, may_have_one

        add = f"To add vectors in an index beside it, run ccheck index enrich --store {info.name}"
        raise NotFound(
            f"{info.name} has no indexed dense_vector field, which dense retrieval needs. "
            + (add if may_have_one(info.name.rpartition("/")[2]) else f"Vectors are added to one index. {SEVERAL}")
        )
    if info.dimensions is None:
        raise NotFound(f"the store {info.name} has no vectors. To add them, ingest again")
    main, named = info.layout.embedding, stage.model or runtime.settings.embedding_model or info.model
    if main is None and not named:
        raise NotFound(
            f"{info.name} does not say which model made its vectors ({info.dimensions} dimensions). To search them, "
            "name that model with --model (or CCHECK_EMBEDDING_MODEL, or in the store's profile)"
        )
    name = named or (main.model if main is not None else "")
    if stage.model is None and main is not None:
        _refuse_other(f"the store {info.name} was", main, name, runtime)
    identity = fingerprint(runtime.find(name).path) if info.layout.dense else ""
    known = next((one.embedding for one in info.layout.dense.values() if one.embedding.fingerprint == identity), None)
    embedder = load_embedder(name, runtime, known)
    field = stage.field
    if field is None and stage.model is not None and main is not None:
        field = info.layout.field_of(embedder.spec.fingerprint)
        if field is None:
            raise not_held(info.name, f"vectors of {stage.model}", how)
    if field is None and embedder.spec.dimensions != info.dimensions:
        raise InvalidData(
            f"the vectors of the store {info.name} have {info.dimensions} dimensions, but those of "
            f"{embedder.spec.model} have {embedder.spec.dimensions}. Name the model that made them with --model or "
            "CCHECK_EMBEDDING_MODEL"
        )
    return field, embedder


def _refuse_other(made: str, known: Embedding | SparseField, name: str, runtime: Runtime) -> None:
    """Raises InvalidData if a model has other weights here than those that made something."""
    found = fingerprint(runtime.find(name).path)
    if found != known.fingerprint:
        own = "--model or CCHECK_EMBEDDING_MODEL"
        right = f"--replace {name}={known.model}" if isinstance(known, SparseField) else own
        raise InvalidData(
            f"{made} made with {known.model} (weights {known.fingerprint[:8]}). {name} has other weights here "
            f"({found[:8]}). Name the right model with {right}, or ingest into another store"
        )


# -- the rest


def _open_rewriter(
    recipe: Recipe, retrievers: dict[str, Retriever], runtime: Runtime, warnings: list[str]
) -> LanguageModel | None:
    if all(stage.query == "claim" for stage in retrievers.values()):
        return None
    from ..llm.model import open_llm

    try:
        return open_llm(runtime, recipe.rewriting.llm)
    except CcheckError as error:
        if recipe.rewriting.required:
            raise
        warnings.append(f"claims are not rewritten: {error}")
        return None


def _open_rerankers(
    recipe: Recipe, runtime: Runtime, warnings: list[str], *, strict: bool, words_alone: bool
) -> dict[str, tuple[RerankerStage, Reranker]]:
    rerankers: dict[str, tuple[RerankerStage, Reranker]] = {}
    for name, stage in recipe.rerankers.items():
        if isinstance(stage, LateStage) and not stage.required and words_alone:
            continue  # what is searched by words alone needs no model
        try:
            rerankers[name] = stage, open_reranker(stage, runtime)
        except (NotFound, MissingExtra) as error:
            if isinstance(stage, ModelStage) and stage.model == AUTO and len(recipe.rerankers) > 1:
                if runtime.memory is not None:  # whoever measures must not take it for a reranker
                    warnings.append(f"without {name}: {error}")
                continue  # `auto` takes what there is beside the others
            if stage.required or strict:
                raise with_ways_to_get(error, recipe) from error
            warnings.append(f"not reranked: {error}")
    told = (getattr(reranker, "notice", None) for _, reranker in rerankers.values())
    warnings += [notice for notice in told if notice]
    return rerankers


def _open_asking(stage: QuestionsStage, runtime: Runtime) -> Asking:
    """The language model that asks and answers questions."""
    from ..llm.model import open_llm
    from ..verdict.questions import Asking

    asker = open_llm(runtime, stage.asker or stage.llm)
    return Asking(open_llm(runtime, stage.llm), stage, asker)


def models_of(plan: Plan, judge: object | None = None) -> list[str]:
    """What reads claims and documents, in words; vectors by their model and the fingerprint of its weights."""
    specs = dict.fromkeys(f"{one.spec.model} ({one.spec.fingerprint[:8]})" for one in plan.encoders.values())
    models = [*specs, *(reranker.name for _, reranker in plan.rerankers.values())]
    if judge is not None:
        models.append(name_of(judge))
    elif plan.method is not None:
        models.append(plan.method.name)
    if plan.asking is not None:
        models.append(plan.asking.name)
    return models
