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
    from .options import IngestOptions


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

    def units_of(self, encoder: DenseEncoder) -> list[str]:
        """The granularities whose vectors this encoder makes."""
        identity = encoder.embedder.spec.fingerprint
        return [name for name, one in self.units.items() if one.embedding and one.embedding.fingerprint == identity]


def encoders_of(embedder: Embedder | None, chunking: Chunking | None = None) -> Encoders:
    """One embedding model and nothing else, or without one nothing: for BM25 only."""
    return Encoders((DenseEncoder(embedder, chunking or default_chunking(embedder.spec)),) if embedder else ())


def prepared(encoders: Encoders | Embedder | None, options: IngestOptions) -> Encoders:
    """An ingest's encoders with the passages that the options ask for. Raises UsageError."""
    given = encoders if isinstance(encoders, Encoders) else encoders_of(encoders)
    served = {name for encoder in given.dense for name in given.units_of(encoder)}
    for name, units in given.units.items():
        if units.embedding is not None and name not in served:
            raise UsageError(
                f"the units {name} need vectors of {units.embedding.model}, and this ingest does not load that model"
            )
    return with_chunking(given, options.chunking)


def with_chunking(encoders: Encoders, chunking: Chunking | None) -> Encoders:
    """The same with other passages in the main field. Raises UsageError if there is none."""
    if chunking is None:
        return encoders
    if not encoders.dense:
        raise UsageError("chunking applies to embeddings, and this ingest makes none: leave it out")
    main, *others = encoders.dense
    return replace(encoders, dense=(replace(main, chunking=chunking), *others))


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


def chunking_for(encoders: Encoders, passage_tokens: int | None) -> Chunking | None:
    """Passages of `passage_tokens` tokens that repeat an eighth of the one before; None if it is not given.

    By default a passage is as long as the model reads. Raises UsageError if it does not fit.
    """
    if passage_tokens is None:
        return None
    if not encoders.dense:
        raise UsageError("--passage-tokens needs embeddings, and none are made here")
    spec = encoders.dense[0].embedder.spec
    if passage_tokens > (most := default_chunking(spec).max_tokens):
        raise UsageError(f"--passage-tokens {passage_tokens} is too many: {spec.model} reads at most {most} tokens")
    return Chunking(passage_tokens, passage_tokens, passage_tokens // 8)
