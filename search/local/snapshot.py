"""The view that a reader of the local store has: the database at one generation, and the indices that match it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...core.fusion import projected
from ...core.layout import MAIN_VECTORS, Layout
from ...core.stages import Bm25, Dense, Retriever, Sparse
from ...core.types import Filter, Query
from . import sparse
from .bm25 import Bm25Index, Bm25View, TextFields
from .database import Database
from .files import SPARSE, Verified
from .records import DOCUMENTS, UNIT_BITS, unit_vectors, vector_fields
from .sparse import SparseIndex
from .vectors import VectorIndex

Ranked: TypeAlias = list[tuple[int, float]]
"""(seq of a document or id of a unit, score), best first."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The view that readers have at one generation of the database. Indices are opened when they are first needed.

    `alive[seq]`: whether the document exists. `behind` names the BM25 indices that still have removed documents.
    """

    generation: int
    layout: Layout
    alive: NDArray[np.bool_]
    behind: frozenset[str]
    verified: Verified
    words: dict[str, Bm25View] = field(default_factory=dict)
    vectors: dict[str, VectorIndex] = field(default_factory=dict)
    weights: dict[str, SparseIndex] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)

    def lacks(self, retrievers: Mapping[str, Retriever]) -> bool:
        """Whether an index that these retrievers search is not open yet."""
        return any(_index_of(one) not in self._indices(one) for one in retrievers.values())

    def _indices(self, retriever: Retriever) -> Mapping[str, Bm25View | VectorIndex | SparseIndex]:
        if isinstance(retriever, Bm25):
            return self.words
        return self.vectors if isinstance(retriever, Dense) else self.weights

    def read(self, database: Database, folder: Path, retrievers: Mapping[str, Retriever]) -> None:
        """Open the indices that these search, in a transaction of this generation. Raises Damaged."""
        for retriever in retrievers.values():
            name = _index_of(retriever)
            if name in self._indices(retriever):
                continue
            if isinstance(retriever, Bm25):
                self.words[name] = open_words(database, folder, name, self.verified).view
            elif isinstance(retriever, Dense):
                self.vectors[name] = open_vectors(database, folder, name, self.alive, self.verified)
            elif self.layout.sparse is not None:
                vocabulary, named = self.layout.sparse.vocabulary, database.sparse.segments
                chain = [sparse.open_segment(folder, one, vocabulary, self.verified) for one in named]
                rest = list(database.sparse_after(named[-1].upto if named else 0))
                self.weights[name] = SparseIndex.open(chain, vocabulary, self.alive, rest)

    def rank(
        self, queries: Sequence[Query], retrievers: Mapping[str, Retriever], allowed: NDArray[np.bool_] | None
    ) -> list[dict[str, Ranked]]:
        """Each query's ranking by each retriever. `allowed[seq]`: whether a document, or its units, may be found."""
        found: dict[str, list[Ranked]] = {}
        for name, retriever in retrievers.items():
            if isinstance(retriever, Bm25):
                rankings = self._by_words(queries, name, retriever, allowed)
            elif isinstance(retriever, Dense):
                rankings = self._by_vectors(queries, name, retriever, allowed)
            else:
                rankings = self._by_weights(queries, name, retriever, allowed)
            if not isinstance(retriever, Sparse) and retriever.units is not None and retriever.parents is not None:
                how = retriever.parents
                rankings = [projected(ranking, lambda unit: (unit >> UNIT_BITS,), how) for ranking in rankings]
            found[name] = rankings
        return [{name: found[name][i] for name in found} for i in range(len(queries))]

    def _by_words(
        self, queries: Sequence[Query], name: str, retriever: Bm25, allowed: NDArray[np.bool_] | None
    ) -> list[Ranked]:
        index = _index_of(retriever)
        view = self.words[index]
        view.check(retriever)
        if allowed is None and index in self.behind:
            allowed = self.alive
        return [view.search(query.words(name), retriever, allowed) for query in queries]

    def _by_vectors(
        self, queries: Sequence[Query], name: str, retriever: Dense, allowed: NDArray[np.bool_] | None
    ) -> list[Ranked]:
        rankings: list[Ranked] = [[] for _ in queries]
        vectors = {i: vector for i, query in enumerate(queries) if (vector := query.embedding(name)) is not None}
        if vectors:
            matrix = np.stack(list(vectors.values())).astype(np.float32, copy=False)
            found = self.vectors[_index_of(retriever)].search(matrix, retriever.depth, allowed)
            for i, ranking in zip(vectors, found, strict=True):
                rankings[i] = ranking
        return rankings

    def _by_weights(
        self, queries: Sequence[Query], name: str, retriever: Sparse, allowed: NDArray[np.bool_] | None
    ) -> list[Ranked]:
        asked = [query.weights(name) for query in queries]
        index = self.weights[_index_of(retriever)]
        return [[] if weights is None else index.search(weights, retriever.depth, allowed) for weights in asked]


def open_words(database: Database, folder: Path, name: str, verified: Verified) -> Bm25Index:
    """The BM25 index of that name. Raises Damaged, derived, if it is not as it was written."""
    words = database.words[name]
    verified.check_files(folder / words.folder, words.files)
    return Bm25Index(folder / words.folder, TextFields.of(database.layout, name))


def open_vectors(
    database: Database, folder: Path, name: str, alive: NDArray[np.bool_], verified: Verified
) -> VectorIndex:
    """A field's vectors. Raises Damaged."""
    path = folder / database.vector_files()[name].file
    embedding, bits = vector_fields(database.layout)[name]
    return VectorIndex.open(path, embedding.dimensions, database.vector_blocks(name), alive, verified, bits)


def _index_of(retriever: Retriever) -> str:
    """The name of the index that a retriever searches, among the indices of its kind."""
    if isinstance(retriever, Bm25):
        return retriever.units or DOCUMENTS
    if isinstance(retriever, Dense):
        return unit_vectors(retriever.units) if retriever.units is not None else retriever.field or MAIN_VECTORS
    return SPARSE


MANY_IDS = 2_000
"""To look up at least this many ids, the ids of all documents are read, once in a generation."""


def ids_of(snapshot: Snapshot, database: Database, wanted: Sequence[int]) -> dict[int, str]:
    """The ids of these documents that still exist, and perhaps of others."""
    if not snapshot.ids and len(wanted) < MANY_IDS:
        return database.ids_by_seq(wanted)
    if not snapshot.ids:
        snapshot.ids.update(database.ids())
    return snapshot.ids


# -- scopes: the documents that pass the filters of a search and of its queries

KEPT = 64
"""How many masks are kept for the next claims."""


class Changed(Exception):
    """The database is no longer as the snapshot has it."""


def scopes(queries: Sequence[Query], filters: Sequence[Filter]) -> dict[tuple[Filter, ...], list[int]]:
    """Each scope (the filters of the call and of a query) with the places of the queries that share it."""
    found: dict[tuple[Filter, ...], list[int]] = {}
    for place, query in enumerate(queries):
        found.setdefault(tuple(dict.fromkeys((*filters, *query.filters))), []).append(place)
    return found


class Masks:
    """The documents of the most recent scopes. For one thread at a time."""

    def __init__(self) -> None:
        self._generation = -1
        self._masks: dict[tuple[Filter, ...], NDArray[np.bool_]] = {}

    def of(self, scope: tuple[Filter, ...], snapshot: Snapshot, database: Database) -> NDArray[np.bool_] | None:
        """mask[seq]: whether a document passes; None if all do.

        Raises Changed if the database is no longer as the snapshot has it.
        """
        if not scope:
            return None
        if self._generation != snapshot.generation:
            self._generation, self._masks = snapshot.generation, {}
        mask = self._masks.pop(scope, None)
        if mask is None:
            with database.reading():
                if database.generation != snapshot.generation:
                    raise Changed
                mask = np.zeros(len(snapshot.alive), np.bool_)
                mask[database.passing(scope)] = True
        self._masks[scope] = mask
        if len(self._masks) > KEPT:
            del self._masks[next(iter(self._masks))]
        return mask
