"""Previews of an ingest, which change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from more_itertools import chunked

from ..core.types import Document, Usage
from ..search import Store
from .documents import digest, layout_bytes
from .encoders import Encoders, layout_of
from .options import IngestOptions, Preview
from .passages import cut_passages, cut_units
from .readers import read_sources
from .records import Reject
from .run import BATCH_WRITTEN, HEAD, made_of, with_fields
from .seen import Seen
from .shapes import papers
from .sources import Given, Source, find_sources


def dry_run(
    sources: Given,
    options: IngestOptions | None = None,
    encoders: Encoders | None = None,
    n: int = 3,
) -> Preview:
    """Previews the first `n` documents, with the rejects on the way (at most 100). Writes nothing.

    Raises NotFound or UsageError for the sources, InvalidData where no record has a text.
    """
    options = options or IngestOptions()
    encoders = encoders or Encoders()
    documents: list[Document] = []
    rejects: list[Reject] = []
    for made in _documents(find_sources(sources, options.reading), options):
        if isinstance(made, Reject):
            rejects.append(made)
        else:
            documents.append(made)
        if len(documents) >= n or len(rejects) >= HEAD:
            break
    counts = None
    if encoders.dense:
        main = encoders.dense[0]
        counts = tuple(len(spans) for spans in cut_passages(documents, main.embedder.count_tokens, main.chunking))
    cut = [cut_units(document.text, encoders.units) for document in documents]
    units = {name: tuple(len(some[name]) for some in cut) for name in encoders.units}
    return Preview(tuple(documents), counts, tuple(rejects), units)


def planned_questions(sources: Given, store: Store, encoders: Encoders, options: IngestOptions | None = None) -> Usage:
    """What asking a language model about the documents that the store does not have yet would cost. Asks nothing.

    All files are read. Raises NotFound or UsageError for the sources, InvalidData where no record has a text.
    """
    options = options or IngestOptions()
    total = Usage()
    if encoders.additional is None:
        return total
    held = layout_bytes(layout_of(encoders))
    exists = store.info() is not None
    with Seen() as seen:
        documents = (
            made for made in _documents(find_sources(sources, options.reading), options) if isinstance(made, Document)
        )
        for some in chunked(documents, BATCH_WRITTEN):
            digests = {document.id: digest(document, held) for document in some}
            known = store.digests(list(digests)) if exists else {}
            new = [
                document
                for document in some
                if seen.add(document.id, digests[document.id], "", 0) is None
                and known.get(document.id) != digests[document.id]
            ]
            total += encoders.additional.plan(new)
    return total


def _documents(sources: list[Source], options: IngestOptions) -> Iterator[Document | Reject]:
    for record in with_fields(papers(read_sources(sources), options.fields), options.fields):
        made = made_of(record, options.fields)
        yield made if isinstance(made, Reject) else made.document
