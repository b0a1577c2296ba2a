"""From documents to what a store takes: passages with their vectors, sparse vectors, additional texts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ..encode.cache import EmbeddingCache, SparseCache, embed, embed_sparse
from ..types import Document, Entry, Passage, SparseVector
from .encoders import DenseEncoder, Encoders, layout_of
from .passages import Span, passages

OnDone = Callable[[float], None]
"""Is told which share of the work is done, 0..1."""


class EntryMaker:
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
        """What is wrong with the caches."""
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

        dense = [
            self._passages(encoder, cache, documents, additional, part(number))
            for number, (encoder, cache) in enumerate(zip(self._encoders.dense, self._dense, strict=True))
        ]
        sparse: Sequence[SparseVector | None] = [None] * len(documents)
        if self._encoders.sparse is not None and self._sparse is not None:
            texts = [document.content for document in documents]
            sparse = embed_sparse(texts, self._encoders.sparse, self._sparse, part(parts - 1))
        entries: list[Entry] = []
        for row, document in enumerate(documents):
            fields = {name: made[row] for name, made in zip(self._fields, dense, strict=True)}
            entries.append(Entry(document, digests[row], fields, sparse[row], additional[row]))
        return entries

    def _passages(
        self,
        encoder: DenseEncoder,
        cache: EmbeddingCache,
        documents: Sequence[Document],
        additional: Sequence[tuple[str, ...]],
        on_done: Callable[[int, int], None],
    ) -> list[tuple[Passage, ...]]:
        spans = passages(documents, encoder.embedder.count_tokens, encoder.chunking)
        for some, texts in zip(spans, additional, strict=True):
            some += [Span(0, 0, text) for text in texts]
        vectors = iter(embed([span.embedded for some in spans for span in some], encoder.embedder, cache, on_done))
        return [tuple(Passage(span.start, span.end, next(vectors)) for span in some) for some in spans]

    def _caches(self) -> list[EmbeddingCache | SparseCache]:
        return [*self._dense, *([self._sparse] if self._sparse is not None else [])]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as stack:
            for cache in self._caches():
                stack.callback(cache.close)
