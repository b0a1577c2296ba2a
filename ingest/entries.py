"""From documents to what a store takes: passages and units with their vectors, sparse vectors, additional texts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..core.closing import Closing
from ..core.types import Document, Entry, Passage, SparseVector, Unit, UnitEntry, Vector
from ..encode.cache import EmbeddingCache, SparseCache, encode_once
from .encoders import Encoders, layout_of
from .passages import Span, cut_passages, cut_units

OnDone = Callable[[float], None]
"""Is told which share of the work is done, 0..1."""


class EntryMaker(Closing):
    """Encodes documents, each text once by each model. Use it in `with`: it keeps the caches of vectors open."""

    def __init__(self, encoders: Encoders, cache_dir: Path | None, cache_bytes: int) -> None:
        """See `IngestOptions`."""
        self._encoders = encoders
        self._fields = list(layout_of(encoders).dense)
        self._dense = [EmbeddingCache(one.embedder.spec, cache_dir, cache_bytes) for one in encoders.dense]
        sparse = encoders.sparse
        self._sparse = SparseCache(sparse.spec, cache_dir, cache_bytes) if sparse is not None else None

    @property
    def notices(self) -> list[str]:
        """Notices about problems with the caches."""
        return [cache.notice for cache in self._caches() if cache.notice]

    def make(
        self,
        documents: Sequence[Document],
        digests: Sequence[str],
        additional: Sequence[tuple[str, ...]],
        on_done: OnDone,
    ) -> list[Entry]:
        """The entries. An additional text is a passage at 0, 0 of each field of vectors."""
        parts = len(self._dense) + (self._sparse is not None)

        def part(number: int) -> Callable[[int, int], None]:
            return lambda done, total: on_done((number + done / max(total, 1)) / parts)

        units = [cut_units(document.text, self._encoders.units) for document in documents]
        passages: dict[str, list[tuple[Passage, ...]]] = {}
        unit_vectors: dict[str, Iterator[Vector]] = {}
        for number, (encoder, cache) in enumerate(zip(self._encoders.dense, self._dense, strict=True)):
            spans = cut_passages(documents, encoder.embedder.count_tokens, encoder.chunking)
            for some, texts in zip(spans, additional, strict=True):
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
        for row, document in enumerate(documents):
            fields = {name: made[row] for name, made in passages.items()}
            cut = {name: _unit_entries(some, unit_vectors.get(name)) for name, some in units[row].items()}
            entries.append(Entry(document, digests[row], fields, sparse[row], additional[row], cut))
        return entries

    def _caches(self) -> list[EmbeddingCache | SparseCache]:
        return [*self._dense, *([self._sparse] if self._sparse is not None else [])]

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for cache in self._caches():
                stack.callback(cache.close)


def _unit_entries(units: Sequence[Unit], vectors: Iterator[Vector] | None) -> tuple[UnitEntry, ...]:
    return tuple(UnitEntry(unit, next(vectors) if vectors is not None else None) for unit in units)
