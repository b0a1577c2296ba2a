"""Everything that an ingest adds to a document's words: vectors of one or several kinds, terms, additional texts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.closing import Closing
from ..core.errors import UsageError
from ..core.layout import Chunking, DenseField, Embedding, Layout, UnitField, named_fields
from ..core.stages import Analysis
from ..core.types import Document, Entry, Passage, SparseVector, UnitEntry, Vector
from ..encode.cache import VectorCache, embedding_cache, encode_once, sparse_cache
from .passages import Span, cut_passages, cut_units, refuse_uncut

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
        """Raises UsageError for units whose model is not here, MissingExtra for those that can't be cut."""
        refuse_uncut(units.cut for units in self.units.values())
        served = {name for encoder in self.dense for name in self.units_of(encoder)}
        for name, units in self.units.items():
            if units.embedding is not None and name not in served:
                model = units.embedding.model
                raise UsageError(f"the units {name} need vectors of {model}, and this ingest does not load that model")

    def units_of(self, encoder: DenseEncoder) -> list[str]:
        """The granularities whose vectors this encoder makes."""
        identity = encoder.embedder.spec.fingerprint
        return [name for name, one in self.units.items() if one.embedding and one.embedding.fingerprint == identity]


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


class EntryMaker(Closing):
    """Encodes documents, each text once by each model. Use it in `with`: it keeps the caches of vectors open."""

    def __init__(self, encoders: Encoders, cache_dir: Path | None, cache_bytes: int) -> None:
        """See `IngestOptions`."""
        self._encoders = encoders
        self._fields = list(layout_of(encoders).dense)
        models = [one.embedder for one in encoders.dense]
        self._dense = [embedding_cache(one.spec, cache_dir, cache_bytes, one.half) for one in models]
        sparse = encoders.sparse
        self._sparse = sparse_cache(sparse.spec, cache_dir, cache_bytes) if sparse is not None else None
        self._caches: list[VectorCache[Any]] = [*self._dense, *filter(None, [self._sparse])]

    @property
    def notices(self) -> list[str]:
        """Notices about problems with the caches."""
        return [cache.notice for cache in self._caches if cache.notice]

    def make(
        self,
        given: Sequence[tuple[Document, str, tuple[str, ...]]],
        on_done: Callable[[float], None] = lambda share: None,
    ) -> list[Entry]:
        """The entries of documents, which are given with their digests and additional texts. An additional text is a
        passage at 0, 0 of each field of vectors. `on_done` is told which share of the work is done, 0..1."""
        parts, documents = len(self._caches), [document for document, _, _ in given]

        def part(number: int) -> Callable[[int, int], None]:
            return lambda done, total: on_done((number + done / max(total, 1)) / parts)

        units = [cut_units(document.text, self._encoders.units) for document in documents]
        passages: dict[str, list[tuple[Passage, ...]]] = {}
        unit_vectors: dict[str, Iterator[Vector]] = {}
        for number, (encoder, cache) in enumerate(zip(self._encoders.dense, self._dense, strict=True)):
            spans = cut_passages(documents, encoder.embedder.count_tokens, encoder.chunking)
            for some, (_, _, texts) in zip(spans, given, strict=True):
                some += [Span(0, 0, text) for text in texts]
            own = self._encoders.units_of(encoder)
            embedded = [span.embedded for some in spans for span in some]
            embedded += [unit.text for name in own for some in units for unit in some[name]]
            vectors = iter(encode_once(embedded, encoder.embedder.encode_documents, cache, part(number)))
            passages[self._fields[number]] = [
                tuple(Passage(span.start, span.end, next(vectors)) for span in some) for some in spans
            ]
            for name in own:
                unit_vectors[name] = iter([next(vectors) for some in units for _ in some[name]])
        sparse: Sequence[SparseVector | None] = [None] * len(documents)
        if self._encoders.sparse is not None and self._sparse is not None:
            wholes = [document.content for document in documents]
            encode = self._encoders.sparse.encode_documents
            sparse = [*encode_once(wholes, encode, self._sparse, part(parts - 1))]
        entries: list[Entry] = []
        for row, (document, digest, additional) in enumerate(given):
            fields = {name: made[row] for name, made in passages.items()}
            cut = {
                name: tuple(UnitEntry(unit, next(unit_vectors.get(name, iter(())), None)) for unit in some)
                for name, some in units[row].items()
            }
            entries.append(Entry(document, digest, fields, sparse[row], additional, cut))
        return entries

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for cache in self._caches:
                stack.callback(cache.close)
