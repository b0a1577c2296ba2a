"""A store with every kind of field and four documents, for tests of what recipes search in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from filling import fill
from searching import rank_all
from store_documents import LAYOUT, ids, search, unit

from ccheck.core.errors import CcheckError
from ccheck.core.layout import (
    MAIN_VECTORS,
    AdditionalTexts,
    Chunking,
    DenseField,
    Embedding,
    Layout,
    SparseField,
    named_fields,
)
from ccheck.core.stages import Analysis, Retriever
from ccheck.core.types import Document, Entry, Passage, Query, SparseVector
from ccheck.search import Store

DENSE = named_fields(
    [LAYOUT.dense[MAIN_VECTORS], DenseField(Embedding("second-model", 4, "e" * 64, 512), Chunking(512, 512, 0))]
)
_, SECOND = DENSE
SPARSE = SparseField("sparse-model", 100, "d" * 64, 512)
PLAIN = Analysis(stopwords="nltk")
STEMMED = Analysis(keep="%", hashtags="remove", stopwords="lucene", stemming=True)
TEXTS = AdditionalTexts("a-model", True, 1, "prompts-1")
FULL = Layout(DENSE, sparse=SPARSE, analyses=(PLAIN, STEMMED), additional=TEXTS)

DOCUMENTS = [
    Document("sea", "Sea level", "Global mean sea level has risen by 20 cm since 1900.", {"year": 2011}),
    Document("ice", "Ice sheets", "Greenland loses ice, which raises the sea.", {"year": 2019}),
    Document("flu", "Influenza vaccines", "Vaccination lowers the risk of influenza by 40% in adults.", {"year": 2015}),
    Document("tea", "Green tea", "Drinking tea was not associated with weight. #tea #weightloss", {"year": 2015}),
]
MAIN = {"sea": unit(1, 0.1), "ice": unit(1, 0.5), "flu": unit(0, 1), "tea": unit(0, 0, 1)}
WEIGHTS = {"sea": {3: 1.5, 7: 0.5, 40: 0.25}, "ice": {3: 0.5, 8: 2.0}, "flu": {50: 1.0, 99: 1.75}, "tea": {0: 1.25}}
ADDITIONAL = {
    "sea": ("Oceans climb along every coast.", "wow, the beaches vanish"),
    "flu": ("A jab keeps grandparents out of hospital.",),
}


def second(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    vector = np.zeros(4, np.float32)
    vector[: len(values)] = values
    return vector / np.linalg.norm(vector)


OTHER = {"sea": second(0, 1), "ice": second(0, 0, 1), "flu": second(1), "tea": second(0, 0, 0, 1)}


def sparse(weights: Mapping[int, float]) -> SparseVector:
    tokens = sorted(weights)
    return SparseVector(np.array(tokens, np.int32), np.array([weights[token] for token in tokens], np.float32))


def entry(document: Document, digest: str = "1") -> Entry:
    id_, end = document.id, len(document.text)
    return Entry(
        document,
        digest,
        {MAIN_VECTORS: (Passage(0, end, MAIN[id_]),), SECOND: (Passage(0, end, OTHER[id_]), Passage(0, 0, OTHER[id_]))},
        sparse(WEIGHTS[id_]),
        ADDITIONAL.get(id_, ()),
    )


def filled(store: Store) -> Store:
    """The store with every kind of field and the four documents."""
    fill(store, FULL, [entry(document) for document in DOCUMENTS])
    return store


def one(retriever: Retriever) -> dict[str, Retriever]:
    return {retriever.kind: retriever}


def ranked(store: Store, query: Query, retriever: Retriever, **options: Any) -> list[tuple[str, float]]:
    """What one retriever hands on; `search` must agree with it."""
    (ranking,) = rank_all(store, [query], one(retriever), **options)
    assert not isinstance(ranking, CcheckError), ranking
    found = list(ranking[retriever.kind])
    hits = search(store, query, one(retriever), k=retriever.depth, **options)
    assert ids(hits) == [id_ for id_, _ in found]
    assert [hit.scores[retriever.kind] for hit in hits] == pytest.approx([score for _, score in found], rel=1e-5)
    return found


def names(found: Sequence[tuple[str, float]]) -> list[str]:
    return [id_ for id_, _ in found]
