"""Ingesting: read, clean, leave out what is known, write about it, cut, encode, store.

The store is the checkpoint: what it holds with the same digest is neither embedded nor written again, so a run that
was killed continues.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO

from more_itertools import chunked, constrained_batches, spy

from ..articles.types import article_of, is_article
from ..articles.xml import article_id
from ..core.citation import doi_of, is_retracted
from ..core.closing import Closing
from ..core.errors import CcheckError, Incomplete, why_unread
from ..core.files import check_output, writing
from ..core.pump import Pump
from ..core.text import json_line
from ..core.types import Document, Entry, Usage
from ..search import Store
from .documents import FILE_HASH, Made, digest, layout_bytes, make_document
from .encoders import Encoders, EntryMaker, layout_of
from .fields import Fields, check_fields
from .options import IngestOptions, Kind, Phase, Progress, Report
from .pages import CLAIM_IDS, members, with_members
from .readers import read_sources
from .records import FULL_TEXTS, Record, Reject, reject_of
from .seen import Seen
from .shapes import papers
from .sources import RECORDS, REJECTS_SUFFIX, STDIN, Given, Source, find_sources, numbered

BATCH_DOCUMENTS = 2_000
"""How many documents are cut, embedded and stored at a time: many, so that texts of like length meet."""
BATCH_WRITTEN = 200
"""The same where a language model writes about each first, which takes seconds."""
BATCH_CHARS = 16_000_000
BATCH_JOINED = 500
"""How many pages that came more than once are read and stored again at a time."""
AHEAD = 2
"""How many batches may be under way in the store or wait for it, beyond those that it takes at once, less one."""
HEAD = 100
"""If none of so many first records has a field that is needed, the wrong one was named, or none."""


def ingest(
    sources: Given,
    store: Store,
    encoders: Encoders | None = None,
    options: IngestOptions | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Put the documents of files, folders, globs and `-` into a store; without encoders, for BM25 only.

    `store.upsert` is called in other threads than everything else, `store.upserts_at_once` of them. An interrupt, or
    an Incomplete that `on_progress` raises to stop, leaves what was stored searchable.

    Raises NotFound or UsageError for the sources, before anything is written; InvalidData where the store was made
    otherwise, or if no record has a text; BudgetSpent or ServerError where no more additional texts can be written,
    after what was done is stored; what the store raises.
    """
    started = time.monotonic()
    options = options or IngestOptions()
    encoders = encoders or Encoders()
    notices: list[str] = []
    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    reading = [_noted(os.fspath(one)) for one in given if Path(one).name != RECORDS]
    found = find_sources(given, options.reading, notices)
    layout = layout_of(encoders)
    info = store.info()
    with _Run(store, encoders, options, found, on_progress) as run:
        run.notices += notices
        gained = info is not None and bool(info.documents) and layout_bytes(info.layout) != layout_bytes(layout)
        records = with_fields(run.records(found), options.fields)
        store.prepare(layout, reading)
        try:
            run.store_all(records)
        except (KeyboardInterrupt, Incomplete):
            with contextlib.suppress(CcheckError):
                store.publish()
            raise
        run.progress("publishing")
        store.publish()
        if gained:
            run.note_gaps()
        if run.stopped is not None:
            raise run.stopped
        store.mark_ingested(reading)
    return run.report(len(found), time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class _Item:
    document: Document
    digest: str
    record: Record


@dataclass(slots=True)
class _Batch:
    """Documents that go to the store together, and what of the files has been read when they do."""

    items: list[_Item] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    passages: int = 0
    units: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0


class _Run(Closing):
    """The state of one run. All of it belongs to the calling thread; the others only call `store.upsert`."""

    def __init__(
        self,
        store: Store,
        encoders: Encoders,
        options: IngestOptions,
        sources: Sequence[Source],
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._store, self._writer, self._options, self._on_progress = store, encoders.additional, options, on_progress
        self._rejects = RejectFile(sources, options.rejects)
        self._maker = EntryMaker(encoders, options.cache_dir, options.cache_bytes)
        self._layout = layout_of(encoders)
        self._layout_bytes = layout_bytes(self._layout)
        self._counts: Counter[str] = Counter()
        self._joining: dict[str, dict[str, None]] = {}
        """The further collections of pages that came more than once, by the page's id."""
        self._units: Counter[str] = Counter()
        self._kinds: dict[str, Kind] = {}
        self._renamed: dict[str, str] = {}
        self.notices = list(encoders.notices)
        self.stopped: CcheckError | None = None
        """Raised once everything before it is stored: no more texts can be written."""
        sizes = [source.size for source in sources]
        self._bytes_total = None if None in sizes else sum(size or 0 for size in sizes)
        self._bytes_read = self._bytes_done = 0
        self._pump: Pump[_Batch, dict[str, str]] = Pump(
            "ccheck-store", store.upserts_at_once, self._stored, self._abandon
        )

    def close(self) -> None:
        self._store.release()
        with self._rejects, self._maker:
            pass

    def records(self, sources: Sequence[Source]) -> Iterator[Record | Reject]:
        def count(size: int) -> None:
            self._bytes_read += size

        read = read_sources(sources, on_bytes=count, on_notice=self.notices.append)
        yield from papers(read, self._options.fields)

    def store_all(self, records: Iterator[Record | Reject]) -> None:
        """Everything up to the end, or to where the run is to stop."""
        info = self._store.info()
        is_new = info is None or not (info.documents or info.pending)
        # Closed here: the collector would close it in whichever thread runs then, where its database can't be closed.
        with self._pump as pump, contextlib.closing(self._items(records)) as new:
            most = BATCH_DOCUMENTS if self._writer is None else BATCH_WRITTEN
            batches = constrained_batches(
                new, BATCH_CHARS, most, get_len=lambda item: len(item.document.content), strict=False
            )
            for items in map(list, batches):
                batch = _Batch(items, bytes_read=self._bytes_read)
                if not is_new:
                    items = batch.items = self._joined(items)
                    batch.known = self._store.digests([item.document.id for item in items])
                self._counts["unchanged"] += sum(batch.known.get(item.document.id) == item.digest for item in items)
                batch.items = [item for item in items if batch.known.get(item.document.id) != item.digest]
                entries = self._entries(batch)
                if entries:
                    write = functools.partial(self._store.upsert, entries)
                    pump.put(batch, write, self._store.upserts_at_once + AHEAD - 2)
                elif pump.idle:
                    self._bytes_done = batch.bytes_read
                if self.stopped is not None:
                    break
            pump.settle()
            self._join()
            self._bytes_done = self._bytes_read

    def _items(self, records: Iterator[Record | Reject]) -> Generator[_Item]:
        """The documents that are new in this run."""
        with Seen() as seen:
            if self._options.dedupe_doi and self._store.info() is not None:
                for document in self._store.scan():
                    if (doi := doi_of(document.metadata)) is not None:
                        seen.add_doi(doi, document.id)
            for number, record in enumerate(records, 1):
                item = self._item(record, seen)
                if item is not None:
                    yield item
                if self.stopped is not None:
                    return
                if number % 200 == 0:
                    self.progress("reading")

    def _item(self, record: Record | Reject, seen: Seen) -> _Item | None:
        self._counts["read"] += 1
        made = made_of(record, self._options.fields)
        if isinstance(made, Reject):
            self._reject(made)
            return None
        assert isinstance(record, Record)
        document = made.document
        doi = doi_of(document.metadata)
        first = seen.add_doi(doi, document.id) if doi is not None else None
        if first not in (None, document.id):
            self._counts["same_doi"] += 1
            if self._options.dedupe_doi:
                self._counts["repeated"] += 1
                return None
        if self._options.apart is not None and named_by_file(document, record):
            document = self._apart(document, record.file, seen, self._options.apart)
        own = digest(document, self._layout_bytes)
        claims = members(document)
        # The same page may come again with another claim.
        others = {key: value for key, value in document.metadata.items() if key != CLAIM_IDS}
        content = own if claims is None else digest(replace(document, metadata=others), self._layout_bytes)
        earlier = seen.add(document.id, content, record.file, record.line)
        if earlier is None:
            self._counts["without_id"] += made.id_made
            self._counts["dates_unread"] += made.date_unread
            self._counts["without_text"] += not document.text
            self._counts["retracted"] += is_retracted(document.metadata)
            if record.kind:
                known = self._kinds.get(record.kind, Kind())
                self._kinds[record.kind] = Kind(known.papers + 1, known.without_text + (not document.text))
            return _Item(document, own, record)
        if claims is not None:
            self._joining.setdefault(document.id, {}).update(dict.fromkeys(claims))
            self._counts["repeated"] += 1
            self._counts["other_text"] += earlier.digest != content
        elif earlier.digest == own or made.id_made:
            self._counts["repeated"] += 1
        elif self._options.dedupe_doi and first is not None:  # its id is the DOI, say
            self._counts["same_doi"] += 1
            self._counts["repeated"] += 1
        else:
            where = f"line {earlier.line}" + (f" of {earlier.file}" if earlier.file != record.file else "")
            reason = f"{where} has another document with the id {document.id!r}, which was kept"
            self._reject(reject_of(record, reason))
        return None

    def _apart(self, document: Document, file: str, seen: Seen, taken: Callable[[Document], bool]) -> Document:
        """The document, under an id that no other paper has: `a/paper (2).pdf` for `a/paper.pdf`."""
        made = document
        for number in itertools.count(2):
            if (earlier := seen.earlier(made.id)) is not None:
                free = earlier.digest == digest(made, self._layout_bytes)
            else:
                stored = self._store.get([made.id]).get(made.id)
                free = (stored is None or same_paper(made, stored)) and not taken(made)
            if free:
                break
            made = replace(document, id=str(numbered(PurePosixPath(document.id), number)))
        if made is not document:
            self._renamed[file] = made.id
            self.notices.append(
                f"the store has another paper {document.id}. {file} is stored as {made.id}. To replace the other, "
                "remove it first"
            )
        return made

    def _joined(self, items: list[_Item]) -> list[_Item]:
        """The pages in the collections, too, in which the store has them."""
        pages = [item.document.id for item in items if members(item.document) is not None]
        stored = self._store.get(pages) if pages else {}
        answer = []
        for item in items:
            before = members(stored[item.document.id]) if item.document.id in stored else None
            if before is not None:
                document = with_members(item.document, before, first=True)
                item = _Item(document, digest(document, self._layout_bytes), item.record)
            answer.append(item)
        return answer

    def _join(self) -> None:
        """Add the pages that came more than once to their further collections."""
        if not self._joining:
            return
        self._store.publish()  # so that they can be read
        for ids in chunked(self._joining, BATCH_JOINED):
            stored = self._store.get(ids)
            changed = [
                document
                for id_, page in stored.items()
                if members(document := with_members(page, list(self._joining[id_]))) != members(page)
            ]
            # Most answers of a language model are in the cache.
            pairs = zip(changed, self._texts(changed, lambda share: None), strict=True)
            whole = [(page, texts) for page, texts in pairs if isinstance(texts, tuple)]
            if given := [(page, digest(page, self._layout_bytes), texts) for page, texts in whole]:
                self._store.upsert(self._maker.make(given))
            self.progress("storing")
        if others := self._counts["other_text"]:
            self.notices.append(
                f"{others:,} pages came again with another text in another claim's collection. The first text was kept"
            )

    def _entries(self, batch: _Batch) -> list[Entry]:
        """The entries of a batch. Removes documents from the batch whose additional texts could not be written."""
        before, after = self._bytes_done, batch.bytes_read
        written = 0.5 if self._writer is not None else 0.0  # the share of writing in what is shown as done

        def on_share(phase: Phase, share: float) -> None:
            # An error of the store need not wait for the models.
            self._pump.settle(self._store.upserts_at_once + AHEAD - 1)
            self._bytes_done = max(self._bytes_done, before + int((after - before) * share))
            self.progress(phase)

        given: list[tuple[Document, str, tuple[str, ...]]] = []
        items, batch.items = batch.items, []
        made = self._texts([item.document for item in items], lambda share: on_share("writing", share * written))
        for item, own in zip(items, made, strict=True):
            if isinstance(own, CcheckError):
                self._reject(reject_of(item.record, f"its additional texts could not be written: {own}"))
            elif own is not None:
                batch.items.append(item)
                given.append((item.document, item.digest, own))
        if not given:
            return []
        entries = self._maker.make(given, lambda share: on_share("embedding", written + share * (1 - written)))
        for entry in entries:
            batch.passages += len(next(iter(entry.passages.values()), ()))
            batch.units.update({name: len(some) for name, some in entry.units.items()})
        return entries

    def _texts(
        self, documents: Sequence[Document], on_share: Callable[[float], None]
    ) -> Sequence[tuple[str, ...] | CcheckError | None]:
        """The additional texts of each document, or why there are none; None if nobody was asked."""
        if self._writer is None or not documents:
            return [()] * len(documents)
        self.progress("writing")
        written, stopped = self._writer.write(documents, lambda done: on_share(done / len(documents)))
        if stopped is not None:
            why = f"{stopped}. The documents before it are stored. Run the same command again to continue"
            self.stopped = self.stopped or type(stopped)(why)
        return written

    def _abandon(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._store.abandon()

    def _stored(self, batch: _Batch, refused: dict[str, str]) -> None:
        """Count a batch that the store has taken."""
        for item in batch.items:
            if item.document.id in refused:
                self._reject(reject_of(item.record, f"the store refused it: {refused[item.document.id]}"))
            else:
                self._counts["updated" if item.document.id in batch.known else "added"] += 1
        self._counts["passages"] += batch.passages
        self._units += batch.units
        self._bytes_done = max(self._bytes_done, batch.bytes_read)
        self.progress("storing")

    def _reject(self, reject: Reject) -> None:
        self._counts["rejected"] += 1
        self._rejects.write(reject)

    def progress(self, phase: Phase) -> None:
        if self._on_progress is not None:
            done = sum(self._counts[name] for name in ("added", "updated", "unchanged", "repeated", "rejected"))
            self._on_progress(Progress(phase, done, self._counts["rejected"], self._bytes_done, self._bytes_total))

    def note_gaps(self) -> None:
        """Say so where documents that were stored before lack what the store now has."""
        lacking = self._store.count() - sum(self._counts[name] for name in ("added", "updated", "unchanged"))
        if lacking > 0:
            self.notices.append(
                f"{lacking:,} documents were stored earlier and lack some of what the store now has: "
                f"{self._layout.describe()}. Ingest their files again with the same settings to add it"
            )

    def report(self, files: int, seconds: float) -> Report:
        notices = (*self.notices, *self._rejects.notices, *self._maker.notices)
        usage = self._writer.usage if self._writer is not None else Usage()
        return Report(
            **{name: count for name, count in self._counts.items() if name != "other_text"},
            units=dict(self._units),
            kinds=self._kinds,
            files=files,
            seconds=seconds,
            rejects=self._rejects.path,
            notices=notices,
            usage=usage,
            renamed=self._renamed,
        )


def made_of(record: Record | Reject, fields: Fields) -> Made | Reject:
    """The document of a record, or why there is none."""
    if isinstance(record, Reject):
        return record
    try:
        made = make_document(record.data, fields, untyped=record.untyped)
        if is_article(made.document):
            article_of(made.document)
        return made
    except Exception as error:  # noqa: BLE001 - whatever a stranger's record does, it is the record that is rejected
        return reject_of(record, why_unread(error))


def named_by_file(document: Document, record: Record) -> bool:
    """Whether the id is the name of the file."""
    if record.kind == FULL_TEXTS:
        return document.id == article_id(record.file)
    return f"/{record.file.replace(os.sep, '/')}".endswith(f"/{document.id}")


def same_paper(one: Document, other: Document) -> bool:
    """Whether both have the same text, or were read from the same bytes, which another version may read otherwise."""
    known = one.metadata.get(FILE_HASH)
    same_file = known is not None and known == other.metadata.get(FILE_HASH)
    return same_file or (one.title, one.text) == (other.title, other.text)


def _noted(source: str) -> str:
    """The source as the store notes it until it was read: the same wherever the command runs."""
    return source if source == STDIN else str(Path(source).expanduser().absolute())


def with_fields(records: Iterator[Record | Reject], fields: Fields) -> Iterator[Record | Reject]:
    """The same records. Raises InvalidData, at once, if none of the first has a field that is needed."""
    head, records = spy(records, HEAD)
    check_fields([record.raw or record.data for record in head if isinstance(record, Record)], fields)
    return records


REJECTS = "the rejects"


class RejectFile(Closing):
    """Rejects as JSON Lines: `{"file", "line", "reason", "record"}`. The file is there once the run has ended, if there
    are any."""

    def __init__(self, sources: Sequence[Source], path: Path | None = None) -> None:
        """`path`, or by default FILE.rejects.jsonl next to the only file that is read, else ccheck.rejects.jsonl here.
        Raises UsageError if `path` is one of the files that are read, or can't be written.
        """
        self._reads = [source.path for source in sources]
        only = self._reads[0] if len(sources) == 1 else None
        here = Path(f"ccheck{REJECTS_SUFFIX}")
        beside = only.with_name(only.name + REJECTS_SUFFIX) if only is not None and only.is_file() else here
        self._places = list(dict.fromkeys([beside, Path(beside.name)]))  # the usual ones, until one can be written
        if path is not None:
            self._places = [check_output(path, REJECTS, self._reads)]
        self.path: Path | None = None
        """None before the first reject, and where none can be written."""
        self.notices: list[str] = []
        self._stack = contextlib.ExitStack()
        self._stream: IO[str] | None = None

    def write(self, reject: Reject) -> None:
        """Add a reject. A file that can't be written is a notice: the good records must not wait for it."""
        while self._stream is None and self._places:
            self.path = self._places.pop(0)
            try:
                self._stream = self._stack.enter_context(writing(self.path, REJECTS, self._reads))
            except CcheckError as error:
                self._give_up(error)
                if self._places:
                    self.notices.append(f"the rejects go to {self._places[0]} instead")
        if self._stream is not None:
            try:
                self._stream.write(json_line(asdict(reject)))
            except CcheckError as error:
                self._places = []
                self._give_up(error)

    def close(self) -> None:
        """Put the file in its place."""
        try:
            self._stack.close()
        except CcheckError as error:
            self._give_up(error)

    def _give_up(self, error: CcheckError) -> None:
        self.notices.append(str(error))
        self.path = self._stream = None
