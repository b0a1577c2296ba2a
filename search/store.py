"""The contract of a store: what ingestion writes to and retrieval reads from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Protocol

from ..errors import CcheckError, InvalidData
from ..recipe import Fusion, Retriever
from ..types import Document, Entry, Query, Ranking
from .filters import Filter


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


@dataclass(frozen=True, slots=True)
class Layout:
    """What a store was made with, and remembers. Without an embedding it answers BM25 only."""

    embedding: Embedding | None = None
    chunking: Chunking | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layout:
        """Raises KeyError or TypeError where `data` was not made by `to_dict`."""
        embedding, chunking = data.get("embedding"), data.get("chunking")
        return cls(
            Embedding(**embedding) if embedding else None,
            Chunking(**chunking) if chunking else None,
        )

    def describe(self) -> str:
        if self.embedding is None or self.chunking is None:
            return "no embeddings (BM25 only)"
        model, chunks = self.embedding, self.chunking
        return (
            f"{model.model} ({model.dimensions} dimensions, weights {model.fingerprint[:8]}), documents over "
            f"{chunks.longer_than} tokens in passages of {chunks.max_tokens} with {chunks.overlap} overlapping"
        )

    def check(self, other: Layout, store: str) -> None:
        """Raise InvalidData unless documents made for `other` may join a store that was made with this.

        A store without embeddings may gain them; one that has them takes none without, nor those of other weights.
        """
        mine, theirs = self.embedding, other.embedding
        if mine is None:
            return
        same = theirs is not None and (mine.fingerprint, mine.dimensions) == (theirs.fingerprint, theirs.dimensions)
        if same and self.chunking == other.chunking:
            return
        raise InvalidData(
            f"the store {store} was made with {self.describe()}; this ingest would use {other.describe()}. "
            "Use the same settings, name another store by --store, or remove this one: "
            f"ccheck index delete --store {store}"
        )


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What is in a store.

    `pending` documents are stored but can't be found by BM25 yet. `dimensions` are those of its vectors, None without;
    an index that ccheck did not make can have vectors without saying in its layout which model made them.
    """

    name: str
    documents: int
    passages: int
    layout: Layout
    dimensions: int | None = None
    bytes: int | None = None
    pending: int = 0
    details: Mapping[str, str] = field(default_factory=dict)


class Store(Protocol):
    """Documents with BM25 and dense retrieval over them.

    Writing: `prepare`, then any number of `upsert` and `delete`, then `publish`. What `upsert` returned from survives
    a crash of this process; searches see it after `publish` at the latest. Ids that do not exist are left out of
    answers. All methods raise `NotFound` where the store does not exist and `ServerError` where its server fails.
    """

    @property
    def name(self) -> str:
        """How `--store` names it, without secrets."""
        ...

    @property
    def upserts_at_once(self) -> int:
        """How many calls of `upsert` may run at a time, in as many threads, on different ids."""
        ...

    def info(self) -> StoreInfo | None:
        """What is in it; None where it does not exist."""
        ...

    def prepare(self, layout: Layout) -> None:
        """Make the store, or check that it takes documents of this layout; raises InvalidData where it does not."""
        ...

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """The digest of each document that is stored."""
        ...

    def upsert(self, entries: Sequence[Entry]) -> dict[str, str]:
        """Store documents, replacing those of the same id. Returns the reason for each id that was refused."""
        ...

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; returns how many there were."""
        ...

    def abandon(self) -> None:
        """Somebody wants to stop: what waits in other threads for a server that is gone gives up and raises."""
        ...

    def publish(self) -> None:
        """Make everything that was written searchable."""
        ...

    def get(self, ids: Sequence[str]) -> dict[str, Document]: ...

    def count(self) -> int: ...

    def search(
        self,
        queries: Sequence[Query],
        retrievers: Mapping[str, Retriever],
        fusion: Fusion,
        *,
        k: int,
        filters: Sequence[Filter] = (),
        details: bool = True,
    ) -> list[Ranking | CcheckError]:
        """The `k` best documents for each query; an error in the place of a query that failed.

        With one retriever its ranking is the answer, else `fusion` joins them. A query without a vector gets nothing
        from dense retrievers. Without `details`, `Hit.scores` and `Hit.ranks` may be empty, which can save time.
        """
        ...

    def is_ingested(self, source: str) -> bool:
        """Whether everything of the source with this digest is stored, unchanged since; False where that is unknown."""
        ...

    def mark_ingested(self, source: str) -> None: ...

    def drop(self) -> None:
        """Remove the whole store."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Store: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
