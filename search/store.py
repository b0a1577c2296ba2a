"""The contract of a store: what ingestion writes to and retrieval reads from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from ..errors import CcheckError
from ..layout import Layout
from ..stages import Fusion, Retriever
from ..types import Document, Entry, Filter, Query, Ranking, Unit
from .filters import Kind


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What is in a store.

    `pending` documents are stored but can't be found by BM25 yet. `dimensions` are those of its vectors, None without;
    an index that ccheck did not make (`made_here` is false) can have vectors without saying in its layout which model
    made them. `state` changes with what is stored, None where that is unknown. `words`: BM25 finds something to search
    in. `semantic` are fields that the server itself embeds, claims too. `notices` are for whoever searches.
    """

    name: str
    documents: int
    passages: int
    layout: Layout
    dimensions: int | None = None
    bytes: int | None = None
    pending: int = 0
    state: str | None = None
    made_here: bool = True
    details: Mapping[str, str] = field(default_factory=dict)
    words: bool = True
    semantic: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


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

    def get_units(self, granularity: str, keys: Sequence[str]) -> dict[str, Unit]:
        """The units of those keys (see `unit_key`). Raises NotFound for a granularity that the store does not have."""
        ...

    def count(self, filters: Sequence[Filter] = ()) -> int:
        """How many documents pass the filters."""
        ...

    def fields(self) -> Mapping[str, Kind]:
        """What filters can be on: the metadata fields that a document has, and `PUBLISHED` where one has a date.

        Costs little, however many documents there are.
        """
        ...

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
        """The `k` best documents for each query, or units; an error in the place of a query that failed.

        Each query is searched within `filters` and its own. With one retriever its ranking is the answer, else `fusion`
        joins them. Retrievers with `units` and without `parents` rank units, which `Hit.unit` has; all of a call rank
        units of one granularity, or none does. A query without a vector gets nothing from dense retrievers.

        Raises NotFound for a retriever whose field or granularity the store does not have, and UsageError for
        retrievers that rank different things. Without `details`, `Hit.scores` and `Hit.ranks` may be empty, which can
        save time.
        """
        ...

    def rankings(
        self, queries: Sequence[Query], retrievers: Mapping[str, Retriever], *, filters: Sequence[Filter] = ()
    ) -> list[Mapping[str, Sequence[tuple[str, float]]] | CcheckError]:
        """For each query what each retriever hands on, before any fusion: (document id, score), best first.

        Of a retriever that ranks units: (`unit_key`, score). No document is read, so that thousands cost little. Scores
        are those of `Hit.scores`; else as `search`.
        """
        ...

    def is_ingested(self, source: str) -> bool:
        """Whether everything of the source with this digest is stored, unchanged since; False where that is unknown."""
        ...

    def mark_ingested(self, source: str) -> None: ...

    def removal(self) -> str:
        """What `drop` removes, in words for a question. Raises InvalidData where somebody else uses any of it."""
        ...

    def drop(self) -> None:
        """Remove the whole store. Raises what `removal` does."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Store: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
