"""The layout that a store records: models, how documents are cut, analyses, additional texts."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter

from .errors import InvalidData
from .table import Table


class Analysis(Table):
    """How text becomes the terms of a separate BM25 field, in place of ccheck's default analysis.

    In this order: lowercase; hashtags; punctuation (each character of Unicode's categories P and S becomes a space,
    except those in `keep`); words at white space; stopwords; Porter's second English stemmer; subwords from the
    tokenizer of a model. Both kinds of store keep the resulting terms, so both rank alike.
    """

    lowercase: bool = True
    hashtags: Literal["keep", "remove"] = Field(default="keep", description="remove: drop hashtags with their word")
    punctuation: Literal["keep", "remove"] = "remove"
    keep: str = Field(default="", max_length=100, description="punctuation to keep")
    stopwords: Literal["none", "lucene", "nltk"] = "none"
    stemming: bool = False
    subwords: str | None = Field(
        default=None, description="the model whose tokenizer cuts words into subwords; default: words stay whole"
    )


@dataclass(frozen=True, slots=True)
class Embedding:
    """The model that made a store's vectors.

    `fingerprint` identifies the weights wherever they are; `model` is the name that a person would use.
    """

    model: str
    dimensions: int
    fingerprint: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Chunking:
    """How documents become passages.

    A document of more than `longer_than` tokens is cut into passages of whole sentences of at most `max_tokens`, each
    repeating up to `overlap` tokens of the one before it; others are one passage, and the model reads its start.
    """

    longer_than: int
    max_tokens: int
    overlap: int

    @classmethod
    def whole(cls, max_tokens: int) -> Chunking:
        """Documents are not cut: each is one passage, and the model reads as much as fits its window."""
        return cls(NEVER, max_tokens, 0)

    @property
    def cuts(self) -> bool:
        return self.longer_than < NEVER


NEVER = 2**31 - 1
"""More tokens than any document has."""
MAIN_VECTORS = "passages"
"""The name of a store's first field of vectors."""


@dataclass(frozen=True, slots=True)
class DenseField:
    """A field of vectors: one model's, of documents cut in one way."""

    embedding: Embedding
    chunking: Chunking


def named_fields(fields: Iterable[DenseField]) -> dict[str, DenseField]:
    """Fields of vectors by the names that stores give them: the first is `MAIN_VECTORS`."""
    return {
        f"{MAIN_VECTORS}_{field.embedding.fingerprint[:8]}" if number else MAIN_VECTORS: field
        for number, field in enumerate(fields)
    }


@dataclass(frozen=True, slots=True)
class UnitField:
    """How documents are cut into units of one granularity, which are searched by themselves.

    `cut`: at the ends of sentences, at blank lines, in windows of whole sentences of at most `tokens` words, each
    repeating up to `overlap` words of the one before it, or in chunks of at most `characters`. `embedding`: the
    model of their vectors; without, BM25 only.
    """

    cut: Literal["sentence", "paragraph", "window", "chunk"]
    tokens: int = 0
    overlap: int = 0
    embedding: Embedding | None = None
    characters: int = 0


def analysis_key(analysis: Analysis) -> str:
    """Eight hexadecimal digits that name the field of an analysis in stores. Default settings do not count."""
    canonical = json.dumps(analysis.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class SparseField:
    """The model of a store's sparse vectors, one for each document, over a vocabulary of that size."""

    model: str
    vocabulary: int
    fingerprint: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class AdditionalTexts:
    """Which texts a language model wrote for each document. `prompts` identifies what it was asked."""

    model: str
    summary: bool
    posts: int
    prompts: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The choices that a store was made with and records. A store without vectors answers BM25 only.

    `dense` has the fields of vectors by name, the main one first; `units` the granularities by name.
    """

    # In its parts too: a key that this version does not know may change how documents are made.
    __pydantic_config__ = ConfigDict(extra="forbid")

    dense: Mapping[str, DenseField] = field(default_factory=dict)
    sparse: SparseField | None = None
    analyses: tuple[Analysis, ...] = ()
    additional: AdditionalTexts | None = None
    units: Mapping[str, UnitField] = field(default_factory=dict)

    @classmethod
    def with_vectors(cls, embedding: Embedding, chunking: Chunking) -> Layout:
        """One field of vectors and nothing else."""
        return cls(named_fields([DenseField(embedding, chunking)]))

    @property
    def embedding(self) -> Embedding | None:
        """The model of the main field of vectors."""
        return next((one.embedding for one in self.dense.values()), None)

    def field_of(self, fingerprint: str) -> str | None:
        """The name of the field of vectors that the model with these weights made."""
        fields = self.dense.items()
        return next((name for name, one in fields if one.embedding.fingerprint == fingerprint), None)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        values: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return values

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layout:
        """Raises ValueError if `data` was not made by `to_dict`."""
        if set(data) != set(cls.__slots__):
            raise ValueError(f"it is not a layout: {', '.join(data)}")
        return _adapter().validate_python(data)

    def describe(self) -> str:
        """In words, for messages."""
        parts = [_described(one.embedding, one.chunking) for one in self.dense.values()]
        if not parts:
            parts = ["no embeddings (BM25 only)"] if self.sparse is None else ["no dense embeddings"]
        if self.sparse is not None:
            parts.append(f"sparse vectors made with {self.sparse.model} (weights {self.sparse.fingerprint[:8]})")
        parts += [f"terms of the analysis {_settings(analysis)}" for analysis in self.analyses]
        if self.additional is not None:
            parts.append(_texts(self.additional))
        parts += [_cut(name, one) for name, one in self.units.items()]
        return "; ".join(parts)

    def answers(self, other: Layout) -> bool:
        """Whether queries that were made for a store of the other layout fit one of this: the same models' vectors."""
        dense = ((self.dense.get(name), one) for name, one in other.dense.items())
        sparse = (self.sparse.fingerprint if self.sparse else None, other.sparse.fingerprint if other.sparse else None)
        return sparse[1] in (None, sparse[0]) and all(
            mine is not None and mine.embedding.fingerprint == one.embedding.fingerprint for mine, one in dense
        )

    def check(self, other: Layout, store: str) -> None:
        """Raise InvalidData unless documents made for `other` may join a store that was made with this.

        A store may gain what it does not have; documents must bring all that it has, of the same weights.
        """
        dense = all(_same(one, other.dense.get(name)) for name, one in self.dense.items())
        sparse = self.sparse is None or (
            other.sparse is not None and other.sparse.fingerprint == self.sparse.fingerprint
        )
        terms = set(self.analyses) <= set(other.analyses)
        additional = self.additional is None or self.additional == other.additional
        units = all(_same_units(one, other.units.get(name)) for name, one in self.units.items())
        if dense and sparse and terms and additional and units:
            return
        raise InvalidData(
            f"the store {store} was made with {self.describe()}. This ingest would use {other.describe()}. "
            "Use the same settings, name another store with --store, or remove this one: "
            f"ccheck index delete --store {store}"
        )


@functools.cache
def _adapter() -> TypeAdapter[Layout]:
    return TypeAdapter(Layout)


def _same(field: DenseField, other: DenseField | None) -> bool:
    """Whether vectors of the one may join those of the other, by whichever name its model was called."""
    return (
        other is not None
        and (field.embedding.fingerprint, field.embedding.dimensions)
        == (other.embedding.fingerprint, other.embedding.dimensions)
        and field.chunking == other.chunking
    )


def _same_units(units: UnitField, other: UnitField | None) -> bool:
    """Whether units of the one may join those of the other."""
    if other is None or replace(units, embedding=None) != replace(other, embedding=None):
        return False
    mine, theirs = units.embedding, other.embedding
    return mine is None or (theirs is not None and mine.fingerprint == theirs.fingerprint)


def _settings(analysis: Analysis) -> str:
    """The settings of an analysis that differ from the defaults."""
    said = analysis.model_dump(exclude_defaults=True)
    return "{" + ", ".join(f"{key} = {value}" for key, value in said.items()) + "}"


def _described(model: Embedding, chunks: Chunking) -> str:
    named = f"{model.model} ({model.dimensions} dimensions, weights {model.fingerprint[:8]})"
    if not chunks.cuts:
        return f"{named}, documents whole"
    return (
        f"{named}, documents over {chunks.longer_than} tokens in passages of {chunks.max_tokens} "
        f"with {chunks.overlap} overlapping"
    )


def _texts(texts: AdditionalTexts) -> str:
    kinds = ["a summary"] if texts.summary else []
    kinds += [f"{texts.posts} post{'s' if texts.posts > 1 else ''}"] if texts.posts else []
    return f"{' and '.join(kinds)} for each document, written by {texts.model} (prompts {texts.prompts[:8]})"


def _cut(name: str, units: UnitField) -> str:
    size = f" of {units.tokens} words with {units.overlap} overlapping" if units.cut == "window" else ""
    size = f" of {units.characters:,} characters" if units.cut == "chunk" else size
    vectors = f" with vectors made with {units.embedding.model}" if units.embedding is not None else ""
    return f"units {name} ({units.cut}s{size}{vectors})"


# -- kinds of fields. A retriever names the one that it searches (`searches`), and `missing` says in words what a store
# with a layout lacks of it; None if it has everything.


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


FieldKind: TypeAlias = Words | Terms | Vectors | Weights | Units
