"""What a store was made with, and remembers: its models, how documents are cut, analyses, additional texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .errors import InvalidData
from .stages import Analysis


@dataclass(frozen=True, slots=True)
class Embedding:
    """The model that made a store's vectors.

    `fingerprint` identifies the weights wherever they lie; `model` is the name that a person would use.
    """

    model: str
    dimensions: int
    fingerprint: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Chunking:
    """How documents become passages.

    A document of more than `longer_than` tokens is cut into passages of whole sentences of at most `max_tokens`, each
    repeating up to `overlap` tokens of the one before it; others are one passage, of which the model reads the start.
    """

    longer_than: int
    max_tokens: int
    overlap: int

    @classmethod
    def whole(cls, max_tokens: int) -> Chunking:
        """No document is cut: each is one passage, of which the model reads as many tokens as its window has."""
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
    """A further field of vectors, by another model; see `Layout.dense_fields`."""

    embedding: Embedding
    chunking: Chunking

    @property
    def name(self) -> str:
        return f"{MAIN_VECTORS}_{self.embedding.fingerprint[:8]}"


def analysis_key(analysis: Analysis) -> str:
    """Eight hexadecimal digits by which stores name the field of an analysis: what is as usual does not count."""
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
    """What a store was made with, and remembers. Without an embedding it answers BM25 only."""

    embedding: Embedding | None = None
    chunking: Chunking | None = None
    more: tuple[DenseField, ...] = ()
    sparse: SparseField | None = None
    analyses: tuple[Analysis, ...] = ()
    additional: AdditionalTexts | None = None

    @property
    def dense_fields(self) -> dict[str, DenseField]:
        """The fields of vectors by name, the main one first."""
        main = DenseField(self.embedding, self.chunking) if self.embedding and self.chunking else None
        return ({MAIN_VECTORS: main} if main else {}) | {field.name: field for field in self.more}

    def field_of(self, fingerprint: str) -> str | None:
        """The name of the field of vectors that the model with these weights made."""
        fields = self.dense_fields.items()
        return next((name for name, field in fields if field.embedding.fingerprint == fingerprint), None)

    def to_dict(self) -> dict[str, Any]:
        """JSON values. What is not there is left out, so that a layout of an earlier ccheck is written as it was."""
        data: dict[str, Any] = {
            "embedding": asdict(self.embedding) if self.embedding else None,
            "chunking": asdict(self.chunking) if self.chunking else None,
        }
        if self.more:
            data["more"] = [asdict(field) for field in self.more]
        if self.sparse is not None:
            data["sparse"] = asdict(self.sparse)
        if self.analyses:
            data["analyses"] = [analysis.model_dump(mode="json") for analysis in self.analyses]
        if self.additional is not None:
            data["additional"] = asdict(self.additional)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layout:
        """Raises KeyError, TypeError or ValueError where `data` was not made by `to_dict`."""
        embedding, chunking = data.get("embedding"), data.get("chunking")
        sparse, additional = data.get("sparse"), data.get("additional")
        return cls(
            Embedding(**embedding) if embedding else None,
            Chunking(**chunking) if chunking else None,
            tuple(
                DenseField(Embedding(**one["embedding"]), Chunking(**one["chunking"])) for one in data.get("more", ())
            ),
            SparseField(**sparse) if sparse else None,
            tuple(Analysis.model_validate(one) for one in data.get("analyses", ())),
            AdditionalTexts(**additional) if additional else None,
        )

    def describe(self) -> str:
        if self.embedding is None or self.chunking is None:
            parts = ["no embeddings (BM25 only)"] if self.sparse is None else ["no dense embeddings"]
        else:
            parts = [_described(self.embedding, self.chunking)]
        parts += [_described(field.embedding, field.chunking) for field in self.more]
        if self.sparse is not None:
            parts.append(f"sparse vectors of {self.sparse.model} (weights {self.sparse.fingerprint[:8]})")
        parts += [f"terms of the analysis {_settings(analysis)}" for analysis in self.analyses]
        if self.additional is not None:
            parts.append(_texts(self.additional))
        return "; ".join(parts)

    def check(self, other: Layout, store: str) -> None:
        """Raise InvalidData unless documents made for `other` may join a store that was made with this.

        A store may gain what it does not have; documents must bring all that it has, of the same weights.
        """
        mine, theirs = self.dense_fields, other.dense_fields
        dense = all(any(_same(field, one) for one in theirs.values()) for field in mine.values())
        main = self.embedding is None or _same(mine[MAIN_VECTORS], theirs.get(MAIN_VECTORS))
        sparse = self.sparse is None or (
            other.sparse is not None and other.sparse.fingerprint == self.sparse.fingerprint
        )
        terms = set(self.analyses) <= set(other.analyses)
        additional = self.additional is None or self.additional == other.additional
        if dense and main and sparse and terms and additional:
            return
        raise InvalidData(
            f"the store {store} was made with {self.describe()}; this ingest would use {other.describe()}. "
            "Use the same settings, name another store with --store, or remove this one: "
            f"ccheck index delete --store {store}"
        )


def _same(field: DenseField, other: DenseField | None) -> bool:
    """Whether vectors of the one may join those of the other, by whichever name its model was called."""
    return (
        other is not None
        and (field.embedding.fingerprint, field.embedding.dimensions)
        == (other.embedding.fingerprint, other.embedding.dimensions)
        and field.chunking == other.chunking
    )


def _settings(analysis: Analysis) -> str:
    """What of an analysis is not as usual."""
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
    return f"{' and '.join(kinds)} of each document by {texts.model} (prompts {texts.prompts[:8]})"
