"""What stores of tests are made for, five documents that tests of all stores search, and how they search them."""

from typing import Any

import numpy as np
from searching import answer_one

from ccheck.core.layout import (
    MAIN_VECTORS,
    AdditionalTexts,
    Analysis,
    Chunking,
    DenseField,
    Embedding,
    Layout,
    SparseField,
    named_fields,
)
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever
from ccheck.core.types import Document, Entry, Hit, Passage, Query
from ccheck.search import Store

DIMENSIONS = 16
CHUNKING = Chunking(128, 128, 16)
LAYOUT = Layout.with_vectors(Embedding("test-model", DIMENSIONS, "f" * 64, 128), CHUNKING)
FURTHER = DenseField(Embedding("second-model", 4, "e" * 64, 512), Chunking(512, 512, 0))
_, SECOND = FIELDS = named_fields([LAYOUT.dense[MAIN_VECTORS], FURTHER])
PLAIN = Analysis(stopwords="nltk")
STEMMED = Analysis(keep="%", hashtags="remove", stopwords="lucene", stemming=True)
VOCABULARY = 30_522
SPARSE = SparseField("sparse-model", VOCABULARY, "d" * 64, 512)
FULL = Layout(FIELDS, SPARSE, (PLAIN, STEMMED), AdditionalTexts("a-model", True, 1, "prompts-1"))
"""With a field of each kind."""
BM25: dict[str, Retriever] = {"bm25": Bm25()}
DENSE: dict[str, Retriever] = {"dense": Dense()}
BOTH = BM25 | DENSE

TEXTS = {
    "sea": ("Sea level", "Global mean sea level has risen by 20 cm since 1900."),
    "ice": ("Ice sheets", "Greenland loses ice, which raises the sea."),
    "flu": ("Influenza vaccines", "Vaccination lowers the risk of influenza by 40% in adults."),
    "tea": ("Green tea", "Drinking tea was not associated with weight. #tea #weightloss"),
    "old": ("Carbonic acid", "Carbonic acid in the air warms the ground."),
}
ABOUT: dict[str, tuple[dict[str, Any], str | None]] = {
    "sea": ({"year": 2011, "n": 1}, "2011-12-31"),
    "ice": ({"year": 2019, "open": True}, "2019-12-31"),
    "flu": ({"year": 2015, "tags": ["rct", "flu"]}, None),
    "tea": ({"journal": "Nature Food"}, "2015-03-31"),
    "old": ({"year": 1896, "volume": 41.5}, "1896-12-31"),
}
DOCUMENTS = [Document(id_, *TEXTS[id_], *ABOUT[id_]) for id_ in TEXTS]


def unit(*values: float, dimensions: int = DIMENSIONS) -> np.ndarray[Any, np.dtype[np.float32]]:
    vector = np.zeros(dimensions, np.float32)
    vector[: len(values)] = values
    return vector / np.linalg.norm(vector)


VECTORS = {"sea": unit(1, 0.1), "ice": unit(1, 0.5), "flu": unit(0, 1), "tea": unit(0, 0, 1), "old": unit(0.2, 0, 0, 1)}


def entry(document: Document, *vectors: np.ndarray[Any, np.dtype[np.float32]], digest: str = "1") -> Entry:
    return Entry(document, digest, {MAIN_VECTORS: tuple(Passage(0, len(document.text), vector) for vector in vectors)})


def search(store: Store, query: Query, retrievers: dict[str, Retriever], **options: Any) -> tuple[Hit, ...]:
    fusion, k = options.pop("fusion", Fusion()), options.pop("k", 10)
    ranking = answer_one(store, query, retrievers, fusion, k=k, **options)
    assert [hit.rank for hit in ranking.hits] == list(range(1, len(ranking.hits) + 1))
    assert all(a.score >= b.score for a, b in zip(ranking.hits, ranking.hits[1:], strict=False))
    return ranking.hits


def ids(hits: tuple[Hit, ...]) -> list[str]:
    return [hit.document.id for hit in hits]
