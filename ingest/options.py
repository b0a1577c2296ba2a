"""The options of an ingest, its progress, and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ..core.text import counted
from ..core.types import Document, Usage
from ..encode.cache import MAX_BYTES
from .fields import Fields
from .records import Reject
from .sources import Reading

Phase: TypeAlias = Literal["reading", "writing", "embedding", "storing", "publishing"]
"""`writing`: a language model writes additional texts."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How to ingest.

    `fields`: the names of a record's fields, by default the usual ones. `reading`: what is known of the files, by
    default what their names and first bytes tell. `dedupe_doi`: store only the first paper with each DOI, across all
    ingests. `rejects`: the file that lists rejects, by default next to the input. `cache_dir`: the folder of cached
    embeddings, by default the user's. `cache_bytes`: how large each of its files may grow; 0 keeps none. `apart`: a
    paper whose id is the name of its file replaces no other paper, and gets a new id instead; the function says whether
    something else has the id of a document.
    """

    fields: Fields = field(default_factory=Fields)
    reading: Reading = field(default_factory=Reading)
    dedupe_doi: bool = False
    rejects: Path | None = None
    cache_dir: Path | None = None
    cache_bytes: int = MAX_BYTES
    apart: Callable[[Document], bool] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is. `documents` are stored or otherwise dealt with, and `bytes_done` is what those took to read.

    `bytes_total` is None if it can't be known (standard input).
    """

    phase: Phase
    documents: int
    rejected: int
    bytes_done: int
    bytes_total: int | None


@dataclass(frozen=True, slots=True)
class Kind:
    """How many papers of a kind were read, such as OpenAlex works, and how many of them have only a title."""

    papers: int = 0
    without_text: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """An ingest's result. Each record `read` is one of added, updated, unchanged, repeated (in the same run), rejected.

    `repeated` includes the papers that `dedupe_doi` left out: `same_doi` says how many they are, or would be.
    `retracted`: papers that their source marks as retracted. `without_text` are stored by their title. `kinds` are by
    name. `without_id`: documents whose id was made from their content. `dates_unread`: documents whose date could not
    be read. `passages` are those of the main vectors, `units` those of each granularity. `rejects`: the file that lists
    the rejects. `usage`: that of the language model that wrote additional texts. `renamed`: the new ids that `apart`
    gave, by file.
    """

    read: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    repeated: int = 0
    rejected: int = 0
    without_id: int = 0
    without_text: int = 0
    same_doi: int = 0
    retracted: int = 0
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    dates_unread: int = 0
    passages: int = 0
    units: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    seconds: float = 0.0
    rejects: Path | None = None
    notices: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """7 if some records were rejected, 5 if all were."""
        return 0 if not self.rejected else 5 if self.rejected == self.read else 7

    def remarks(self, *, deduped: bool = False) -> Iterator[str]:
        """Yields what to know about the papers. `deduped`: whether `dedupe_doi` was chosen."""
        if self.without_text:
            titles = "its title" if self.without_text == 1 else "their titles"
            yield f"{counted(self.without_text, 'paper')} without an abstract can be found by {titles}"
        if self.retracted:
            papers = counted(self.retracted, "paper")
            yield f"{papers} retracted. --filter 'retracted!=true' leaves them out of a search"
        if self.same_doi:
            was = "was" if self.same_doi == 1 else "were"
            left = "left out" if deduped else "stored beside it. --dedupe doi keeps only the first"
            yield f"{counted(self.same_doi, 'paper')} with the DOI of a paper before {was} {left}"
        if self.without_id:
            yield f"{counted(self.without_id, 'record')} without an id got one from their content (see --id-field)"
        if self.dates_unread:
            records = counted(self.dates_unread, "record")
            yield f"the date of {records} could not be read. Filters on dates exclude them"


@dataclass(frozen=True, slots=True)
class Preview:
    """The documents that the first records would become.

    `passages` is how many each document would have, None without a model; `units` the same for each granularity.
    """

    documents: tuple[Document, ...]
    passages: tuple[int, ...] | None
    rejects: tuple[Reject, ...]
    units: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
