"""What a reader of the local store sees: the database at one generation and the indices that follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import NotFound
from ...layout import MAIN_VECTORS, Layout
from ...stages import Bm25, Dense, Retriever, Sparse
from ...types import Query
from . import sparse
from .bm25 import Bm25View
from .database import Database
from .files import SPARSE, Verified
from .sparse import SparseIndex
from .vectors import VectorIndex

Ranked: TypeAlias = list[tuple[int, float]]
"""(seq, score), best first."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What readers see at one generation of the database. `vectors` and `weights` are read when they are asked for.

    `alive[seq]`: whether a document is there. `removed` are those that `words` still has.
    """

    generation: int
    layout: Layout
    alive: NDArray[np.bool_]
    removed: NDArray[np.int64]
    words: Bm25View
    verified: Verified
    vectors: dict[str, VectorIndex] = field(default_factory=dict)
    weights: dict[str, SparseIndex] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)

    def lacks(self, retrievers: Mapping[str, Retriever]) -> bool:
        """Whether something that these search has still to be read."""
        fields = self.layout.dense
        return any(
            (isinstance(one, Dense) and vector_field(one) in fields and vector_field(one) not in self.vectors)
            or (isinstance(one, Sparse) and self.layout.sparse is not None and not self.weights)
            for one in retrievers.values()
        )

    def read(self, database: Database, folder: Path, retrievers: Mapping[str, Retriever]) -> None:
        """Read what these search; within a transaction of this generation. Raises Damaged."""
        for retriever in retrievers.values():
            if isinstance(retriever, Dense):
                name = vector_field(retriever)
                if name in self.layout.dense and name not in self.vectors:
                    self.vectors[name] = open_vectors(database, folder, name, self.alive, self.verified)
            elif isinstance(retriever, Sparse) and self.layout.sparse is not None and not self.weights:
                vocabulary, named = self.layout.sparse.vocabulary, database.sparse.segments
                chain = [sparse.open_segment(folder, one, vocabulary, self.verified) for one in named]
                rest = list(database.sparse_after(named[-1].upto if named else 0))
                self.weights[SPARSE] = SparseIndex.open(chain, vocabulary, self.alive, rest)

    def rank(
        self,
        queries: Sequence[Query],
        retrievers: Mapping[str, Retriever],
        allowed: NDArray[np.bool_] | None,
        store: str,
    ) -> list[dict[str, Ranked]]:
        """What each retriever hands on for each query. `allowed[seq]`: which documents may be found.

        Raises NotFound for a field that the store does not have.
        """
        found: dict[str, list[Ranked]] = {}
        for name, retriever in retrievers.items():
            if isinstance(retriever, Bm25):
                found[name] = self._by_words(queries, name, retriever, allowed, store)
            elif isinstance(retriever, Dense):
                found[name] = self._by_vectors(queries, name, retriever, allowed, store)
            else:
                found[name] = self._by_weights(queries, name, retriever, allowed, store)
        return [{name: found[name][i] for name in found} for i in range(len(queries))]

    def _by_words(
        self, queries: Sequence[Query], name: str, retriever: Bm25, allowed: NDArray[np.bool_] | None, store: str
    ) -> list[Ranked]:
        self.words.check(retriever, store)
        if allowed is None and len(self.removed):
            allowed = self.alive
        return [self.words.search(query.words(name), retriever, allowed) for query in queries]

    def _by_vectors(
        self, queries: Sequence[Query], name: str, retriever: Dense, allowed: NDArray[np.bool_] | None, store: str
    ) -> list[Ranked]:
        field_name = vector_field(retriever)
        if field_name not in self.layout.dense:
            which = f"no field of vectors {field_name!r}" if retriever.field else "no vectors"
            how = "for a recipe that has it" if retriever.field else "with an embedding model for dense retrieval"
            example = "--recipe NAME" if retriever.field else "--model MODEL"
            raise NotFound(f"the store {store} has {which}: ingest {how} (ccheck ingest FILE {example})")
        rankings: list[Ranked] = [[] for _ in queries]
        vectors = {i: vector for i, query in enumerate(queries) if (vector := query.embedding(name)) is not None}
        if vectors:
            matrix = np.stack(list(vectors.values())).astype(np.float32, copy=False)
            found = self.vectors[field_name].search(matrix, retriever.depth, allowed)
            for i, ranking in zip(vectors, found, strict=True):
                rankings[i] = ranking
        return rankings

    def _by_weights(
        self, queries: Sequence[Query], name: str, retriever: Sparse, allowed: NDArray[np.bool_] | None, store: str
    ) -> list[Ranked]:
        if self.layout.sparse is None:
            raise NotFound(
                f"the store {store} has no sparse vectors: ingest for a recipe with a sparse retriever "
                "(ccheck ingest FILE --recipe NAME)"
            )
        asked = [query.weights(name) for query in queries]
        index = self.weights[SPARSE]
        return [[] if weights is None else index.search(weights, retriever.depth, allowed) for weights in asked]


def open_vectors(
    database: Database, folder: Path, name: str, alive: NDArray[np.bool_], verified: Verified
) -> VectorIndex:
    """A field's vectors as the database has them. Raises Damaged."""
    path = folder / database.vector_files()[name].file
    dimensions = database.layout.dense[name].embedding.dimensions
    return VectorIndex.open(path, dimensions, database.vector_blocks(name), alive, verified)


def vector_field(retriever: Dense) -> str:
    return retriever.field or MAIN_VECTORS
