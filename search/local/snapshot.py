"""The view that a reader of the local store has: the database at one generation, and the indices that match it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from ...core.errors import InvalidData
from ...core.fusion import projected
from ...core.layout import MAIN_VECTORS, Layout
from ...core.stages import Bm25, Dense, Retriever, Sparse
from ...core.types import Filter, Query, Vector
from . import bm25
from .bm25 import Bm25View, TextFields
from .database import Database
from .files import DOCUMENTS, SPARSE, UNIT_BITS, Verified, unit_vectors, vector_fields
from .vectors import SparseIndex, VectorIndex

Ranked: TypeAlias = list[tuple[int, float]]
"""(seq of a document or id of a unit, score), best first."""
MANY_IDS = 2_000
"""To look up at least this many ids at once, or a twentieth of them all one after the other, all are read."""
KEPT = 64
"""How many masks are kept for the next claims."""


class Changed(Exception):
    """The database is no longer as the snapshot has it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The view that readers have at one generation of the database. Indices are opened when they are first needed.

    `alive[seq]`: whether the document exists. `behind` names the BM25 indices that still have removed documents.
    `searched` are the retrievers whose indices are open, which the store has all that they need for.
    `masks` has the documents that pass the most recent scopes: the filters of a search and of a query.
    """

    generation: int
    layout: Layout
    alive: NDArray[np.bool_]
    behind: frozenset[str]
    verified: Verified
    words: dict[str, Bm25View] = field(default_factory=dict)
    vectors: dict[str, VectorIndex] = field(default_factory=dict)
    searched: list[Retriever] = field(default_factory=list)
    ids: dict[int, str] = field(default_factory=dict)
    masks: LRUCache[tuple[Filter, ...], NDArray[np.bool_]] = field(default_factory=lambda: LRUCache(KEPT))

    def lacks(self, retriever: Retriever) -> bool:
        """Whether the index that it searches is not open yet."""
        return _index_of(retriever) not in (self.words if isinstance(retriever, Bm25) else self.vectors)

    def read(self, database: Database, folder: Path, retrievers: Mapping[str, Retriever]) -> None:
        """Open the indices that these search, in a transaction of this generation. Raises Damaged."""
        for retriever in filter(self.lacks, retrievers.values()):
            name = _index_of(retriever)
            if isinstance(retriever, Bm25):
                self.words[name] = open_words(database, folder, name, self.verified)
            else:
                self.vectors[name] = open_vectors(database, folder, name, self.alive, self.verified)
        self.searched.extend(one for one in retrievers.values() if one not in self.searched)

    def rank(
        self, queries: Sequence[Query], retrievers: Mapping[str, Retriever], allowed: NDArray[np.bool_] | None
    ) -> list[dict[str, Ranked]]:
        """Each query's ranking by each retriever. `allowed[seq]`: whether a document, or its units, may be found."""
        found: dict[str, list[Ranked]] = {}
        for name, retriever in retrievers.items():
            if isinstance(retriever, Bm25):
                rankings = self._by_words([query.words(name) for query in queries], retriever, allowed)
            else:
                rankings = self._by_vectors(
                    [self._vector(query, name, retriever) for query in queries], retriever, allowed
                )
            if retriever.units is not None and (how := retriever.parents) is not None:
                rankings = [projected(ranking, lambda unit: (unit >> UNIT_BITS,), how) for ranking in rankings]
            found[name] = rankings
        return [{name: found[name][i] for name in found} for i in range(len(queries))]

    def _by_words(self, texts: Sequence[str], retriever: Bm25, allowed: NDArray[np.bool_] | None) -> list[Ranked]:
        index = _index_of(retriever)
        view = self.words[index]
        view.check(retriever)
        if allowed is None and index in self.behind:
            allowed = self.alive
        return [view.search(text, retriever, allowed) for text in texts]

    def _by_vectors(
        self, vectors: Sequence[Vector | None], retriever: Dense | Sparse, allowed: NDArray[np.bool_] | None
    ) -> list[Ranked]:
        asked = {i: vector for i, vector in enumerate(vectors) if vector is not None}
        if not asked:
            return [[] for _ in vectors]
        matrix = np.stack(list(asked.values())).astype(np.float32, copy=False)
        found = self.vectors[_index_of(retriever)].search(matrix, retriever.depth, allowed)
        rankings = dict(zip(asked, found, strict=True))
        return [rankings.get(i, []) for i in range(len(vectors))]

    def _vector(self, query: Query, name: str, retriever: Dense | Sparse) -> Vector | None:
        """What a query asks the index of this retriever for: its embedding, or a weight for each token."""
        if isinstance(retriever, Dense):
            vector, index = query.embedding(name), self.vectors[_index_of(retriever)]
            if vector is not None and len(vector) != index.rows.shape[1]:
                raise InvalidData(
                    f"the claim's embedding has {len(vector)} dimensions, but the store's vectors have "
                    f"{index.rows.shape[1]}. Use the model that made the store"
                )
            return vector
        asked, sparse = query.weights(name), self.layout.sparse
        if asked is None or sparse is None:
            return None
        if len(asked.ids) and asked.ids[-1] >= sparse.vocabulary:
            raise InvalidData("the claim's sparse vector is of another vocabulary than the store's. Use the same model")
        weights = np.zeros(sparse.vocabulary, np.float32)
        weights[asked.ids] = asked.weights
        return weights

    def mask(self, scope: tuple[Filter, ...], database: Database) -> NDArray[np.bool_] | None:
        """mask[seq]: whether a document passes; None if all do.

        Raises Changed if the database is no longer as this has it.
        """
        if not scope:
            return None
        if scope not in self.masks:
            with database.reading():
                if database.generation != self.generation:
                    raise Changed
                mask = np.zeros(len(self.alive), np.bool_)
                mask[database.passing(scope)] = True
                self.masks[scope] = mask
        return self.masks[scope]

    def ids_of(self, wanted: Sequence[int], database: Database) -> dict[int, str]:
        """The ids of these documents that still exist, and perhaps of others."""
        missing = [seq for seq in wanted if seq not in self.ids]
        if missing:
            known = len(self.ids) + len(missing)
            many = len(missing) >= MANY_IDS or known >= max(MANY_IDS, len(self.alive) // 20)
            self.ids.update(database.ids() if many else database.ids_by_seq(missing))
        return self.ids


def open_words(database: Database, folder: Path, name: str, verified: Verified) -> Bm25View:
    """The BM25 index of that name. Raises Damaged, derived, if it is not as it was written."""
    words = database.words[name]
    verified.check_files(folder / words.folder, words.files)
    return bm25.open_index(folder / words.folder, TextFields.of(database.layout, name))


def open_vectors(
    database: Database, folder: Path, name: str, alive: NDArray[np.bool_], verified: Verified
) -> VectorIndex:
    """A field's vectors. Raises Damaged."""
    path = folder / database.vector_files()[name].file
    kind = SparseIndex if name == SPARSE else VectorIndex
    width, bits = vector_fields(database.layout)[name]
    return kind.open(path, width, database.vector_blocks(name), alive, verified, bits)


def _index_of(retriever: Retriever) -> str:
    """The name of the index that a retriever searches, among those of words or of vectors."""
    if isinstance(retriever, Bm25):
        return retriever.units or DOCUMENTS
    if isinstance(retriever, Dense):
        return unit_vectors(retriever.units) if retriever.units is not None else retriever.field or MAIN_VECTORS
    return SPARSE
