"""Kinds of fields that a store can have. A retriever names the one that it searches (`searches`).

| kind | holds | an ingest makes it with |
| --- | --- | --- |
| `Words` | title and text, and the texts that were written about them | a language model, for the latter |
| `Terms` | the terms of another analysis | that analysis |
| `Vectors` | the embeddings of passages or documents | an embedding model |
| `Weights` | learned sparse vectors | a sparse encoder |
| `Units` | parts of documents, with their embeddings if these are searched | a cut, an embedding model |

`missing` says in words what a store with a layout lacks of it; None if it has everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from .layout import Layout
    from .stages import Analysis

ModelKind: TypeAlias = Literal["tokenizer", "embedding", "sparse", "images", "reranker", "language model", "stance"]
"""What a model is used as."""


@dataclass(frozen=True, slots=True)
class Words:
    """The documents' own words; `additional`: also those that a language model wrote about them."""

    additional: bool = False

    def missing(self, layout: Layout) -> str | None:
        return "additional texts" if self.additional and layout.additional is None else None


@dataclass(frozen=True, slots=True)
class Terms:
    analysis: Analysis

    def missing(self, layout: Layout) -> str | None:
        return "terms of this analysis" if self.analysis not in layout.analyses else None


@dataclass(frozen=True, slots=True)
class Vectors:
    """`model` makes them (None: the store's own, else the default), of `passages` or of whole documents. `field` is a
    store's name for them."""

    model: str | None = None
    passages: bool = True
    field: str | None = None

    def missing(self, layout: Layout) -> str | None:
        if self.field is not None:
            return f"field of vectors {self.field!r}" if self.field not in layout.dense else None
        return "vectors" if not layout.dense else None


@dataclass(frozen=True, slots=True)
class Weights:
    model: str

    def missing(self, layout: Layout) -> str | None:
        return "sparse vectors" if layout.sparse is None else None


@dataclass(frozen=True, slots=True)
class Units:
    """Parts of one granularity; `dense`: their vectors, which `model` makes (None: the store's main one)."""

    granularity: str
    dense: bool = False
    model: str | None = None

    def missing(self, layout: Layout) -> str | None:
        there = layout.units.get(self.granularity)
        if there is None:
            return f"units {self.granularity!r}"
        return f"vectors of units {self.granularity!r}" if self.dense and there.embedding is None else None


Field: TypeAlias = Words | Terms | Vectors | Weights | Units
