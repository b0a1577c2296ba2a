"""Everything that an ingest adds to a document's words: vectors of one or several kinds, terms, additional texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.errors import UsageError
from ..core.layout import Chunking, DenseField, Embedding, Layout, UnitField, named_fields
from ..core.stages import Analysis

if TYPE_CHECKING:
    from ..encode.dense import Embedder
    from ..encode.sparse import SparseEmbedder
    from .additional import AdditionalWriter


@dataclass(frozen=True, slots=True)
class DenseEncoder:
    """An embedding model, and how documents are cut for it."""

    embedder: Embedder
    chunking: Chunking


@dataclass(frozen=True, slots=True)
class Encoders:
    """The first of `dense` makes the store's main vectors, the others those of further fields.

    `sparse` makes one vector for each document. `analyses` are those whose terms the store is to hold. `additional`
    writes texts about each document. `units` are the granularities that documents are cut into, by name; the model of
    their vectors is one of those in `dense`. `notices` are for the user: what stands in for what, what was left out.
    """

    dense: tuple[DenseEncoder, ...] = ()
    sparse: SparseEmbedder | None = None
    analyses: tuple[Analysis, ...] = ()
    additional: AdditionalWriter | None = None
    units: Mapping[str, UnitField] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises UsageError for units whose model is not here."""
        served = {name for encoder in self.dense for name in self.units_of(encoder)}
        for name, units in self.units.items():
            if units.embedding is not None and name not in served:
                model = units.embedding.model
                raise UsageError(f"the units {name} need vectors of {model}, and this ingest does not load that model")

    def units_of(self, encoder: DenseEncoder) -> list[str]:
        """The granularities whose vectors this encoder makes."""
        identity = encoder.embedder.spec.fingerprint
        return [name for name, one in self.units.items() if one.embedding and one.embedding.fingerprint == identity]


def encoders_of(embedder: Encoders | Embedder | None, chunking: Chunking | None = None) -> Encoders:
    """One embedding model and nothing else, or without one nothing: for BM25 only. Encoders stay as they are."""
    if isinstance(embedder, Encoders):
        return embedder
    return Encoders((DenseEncoder(embedder, chunking or default_chunking(embedder.spec)),) if embedder else ())


def layout_of(encoders: Encoders) -> Layout:
    """The layout of a store whose documents these encoders encode."""
    return Layout(
        dense=named_fields(DenseField(one.embedder.spec, one.chunking) for one in encoders.dense),
        sparse=encoders.sparse.spec if encoders.sparse is not None else None,
        analyses=encoders.analyses,
        additional=encoders.additional.spec if encoders.additional is not None else None,
        units=encoders.units,
    )


def default_chunking(embedding: Embedding) -> Chunking:
    """Documents longer than the model's window in passages that fill it; `benchmarks/passages.py` has the gain."""
    window = embedding.max_tokens - 2  # without the two special tokens
    return Chunking(longer_than=window, max_tokens=window, overlap=window // 8)


def with_passages(encoders: Encoders, tokens: int | None) -> Encoders:
    """The same with passages of at most so many tokens in the main field, each of which repeats an eighth.

    Raises UsageError if there is no main field, or its model does not read so many.
    """
    if tokens is None:
        return encoders
    if not encoders.dense:
        raise UsageError("--passage-tokens needs embeddings, and none are made here")
    main, *others = encoders.dense
    spec = main.embedder.spec
    most = default_chunking(spec).max_tokens
    if tokens > most:
        raise UsageError(f"--passage-tokens {tokens} is too many: {spec.model} reads at most {most} tokens")
    return replace(encoders, dense=(replace(main, chunking=Chunking(tokens, tokens, tokens // 8)), *others))
