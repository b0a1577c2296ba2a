"""Adding vectors to an index in Elasticsearch that others use.

with Runtime(settings) as runtime, open_enricher(runtime, rate=200) as enricher:
    report = enricher.run()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from more_itertools import chunked

from ..core.errors import InvalidData, NotFound, UsageError
from ..core.layout import Chunking, Layout
from ..core.pump import Pump
from ..core.recipe import Recipe
from ..core.runtime import OnProgress, Runtime
from ..core.settings import Settings
from ..core.text import counted, is_unicode
from ..core.types import Document, Entry
from ..encode import dense as embedders
from ..encode.dense import DEFAULT_MODEL
from ..ingest.documents import digest, layout_bytes
from ..ingest.encoders import DenseEncoder, Encoders, EntryMaker, default_chunking, layout_of
from ..ingest.passages import count_all
from ..search import open_store
from ..search.elastic.companion import Companion
from ..search.elastic.enrich import Beside, InPlace, Page, Source, Target, Wrote, open_source
from ..search.elastic.reading import Written
from .ingest import open_encoders

BATCH = 2_000
"""How many documents are embedded and written together: many, so that texts of like length meet."""
PAGES = 20
"""How many pages without much that is new are dealt with together."""
AHEAD = 2
"""How many batches may wait for the server."""
NAMED = 20
"""How many documents that failed are named."""
COUNTED_AT_ONCE = 200
"""How many documents of a sample are measured before it is known whether one of them is long."""


@dataclass(slots=True)
class EnrichReport:
    """Report of a run. Each document `read` is made (it is new or its text has changed), unchanged or failed.

    `changed` counts documents that somebody else wrote in the meantime; the next run finds them. Among those made,
    `without_text` have only their ids, and `cut` one vector each although the model reads only their beginning.
    `failures` has the reasons of the first that failed, by id.
    """

    store: str
    target: str
    read: int = 0
    made: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: int = 0
    changed: int = 0
    without_text: int = 0
    cut: int = 0
    seconds: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@dataclass(slots=True)
class _Batch:
    """Documents that are embedded and written together, with the pages that are done when they are."""

    pages: list[Page] = field(default_factory=list)
    changed: list[tuple[Document, str, Written]] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    """The numbers of pages with failures."""


class Enricher:
    """An index, and what its documents get. It runs once, in the calling thread; another one only writes."""

    def __init__(
        self, target: Target, encoders: Encoders, settings: Settings, rate: float | None = None, plan: str = ""
    ) -> None:
        """`rate` is the most documents that are written per second. `plan` says which vectors they get, and why."""
        self.target, self.encoders, self.plan = target, encoders, plan
        self.layout: Layout = layout_of(encoders)
        self._settings, self._rate = settings, rate
        self._source, self._layout_bytes = target.source, layout_bytes(self.layout)
        self._size = BATCH if rate is None else max(1, min(BATCH, int(rate)))
        self._stopped = threading.Event()
        self._next = time.monotonic()
        self._report = EnrichReport(self._source.store.name, target.name)
        self._on_progress: OnProgress = lambda done, total: None
        self._total = 0

    def run(self, on_progress: OnProgress | None = None) -> EnrichReport:
        """Add what is lacking or has changed. Raises a CcheckError; what was written by then stays.

        `on_progress` is told how many documents need no embedding any more, and how many there are.
        """
        started, report = time.monotonic(), self._report
        self._on_progress = on_progress or self._on_progress
        try:
            self.target.prepare(self.layout)
            self._total = self._source.store.count()
            with EntryMaker(self.encoders, self._settings.cache_dir, self._settings.cache_bytes) as maker:
                self._all(maker)
                report.removed = self.target.finish(report.failed)
                report.notices = (*self.encoders.notices, *maker.notices)
        finally:
            self.target.release()
        report.seconds = time.monotonic() - started
        return report

    def consequences(self) -> list[str]:
        """What the user should know before the index is changed; nothing for a companion."""
        return list(self.target.consequences(self.layout))

    def _all(self, maker: EntryMaker) -> None:
        with Pump("ccheck-enrich", 1, self._wrote, self._abandon, self.target.remember) as pump:
            batch = _Batch()
            for page in self.target.pages():
                self._look(page, batch)
                if len(batch.changed) >= self._size or len(batch.pages) >= PAGES:
                    self._put(pump, maker, batch)
                    batch = _Batch()
            self._put(pump, maker, batch)

    def _abandon(self, error: BaseException) -> None:
        self._stopped.set()
        if isinstance(error, KeyboardInterrupt):
            self._source.store.abandon()

    def _put(self, pump: Pump[_Batch, Wrote], maker: EntryMaker, batch: _Batch) -> None:
        self._progress(len(batch.changed))
        entries = self._entries(maker, batch)
        self._progress(0)
        pump.put(batch, lambda: self._write(entries), AHEAD - 1)

    def _look(self, page: Page, batch: _Batch) -> None:
        """Sort a page's documents into the unchanged, the failed, and those to embed."""
        number = len(batch.pages)
        batch.pages.append(page)
        twice = self._source.twice(page.written)
        known = self.target.digests(page)
        for written in page.written:
            self._report.read += 1
            try:
                if written.id in twice:
                    raise InvalidData(twice[written.id])
                document = self._source.document(written)
                if not is_unicode(document.title) or not is_unicode(document.text):
                    raise InvalidData("its text is not valid Unicode")
            except InvalidData as error:
                self._fail(written.id, str(error))
                batch.failed.add(number)
                continue
            own = digest(document, self._layout_bytes)
            if known.get(written.id) == own:
                self._report.unchanged += 1
            else:
                batch.changed.append((document, own, written))

    def _entries(self, maker: EntryMaker, batch: _Batch) -> list[tuple[Entry, Written]]:
        """Makes the entries of the documents. A document without any text only gets its digest."""
        full = [one for one in batch.changed if one[0].content.strip()]
        empty = [one for one in batch.changed if not one[0].content.strip()]
        self._report.without_text += len(empty)
        made: list[Entry] = []
        if full:
            documents = [(document, own, ()) for document, own, _ in full]
            made = maker.make(documents, lambda share: self._progress(round(len(full) * (1 - share))))
            self._report.cut += sum(
                tokens > default_chunking(one.embedder.spec).longer_than
                for one in self.encoders.dense
                if not one.chunking.cuts
                for tokens in count_all([document.content for document, *_ in full], one.embedder.count_tokens)
            )
        made += [Entry(document, own) for document, own, _ in empty]
        return list(zip(made, (written for _, _, written in full + empty), strict=True))

    def _write(self, entries: Sequence[tuple[Entry, Written]]) -> Wrote:
        """In another thread: write, no faster than was asked for."""
        refused: dict[str, str] = {}
        changed: set[str] = set()
        for some in chunked(entries, self._size):
            if self._rate is not None:
                if self._stopped.wait(max(0.0, self._next - time.monotonic())):
                    break
                self._next = max(self._next, time.monotonic()) + len(some) / self._rate
            wrote = self.target.write(some)
            refused |= wrote.refused
            changed |= wrote.changed
        return Wrote(refused, frozenset(changed))

    def _wrote(self, batch: _Batch, wrote: Wrote) -> None:
        """Count what was written."""
        for id_, why in wrote.refused.items():
            self._fail(id_, why)
        self._report.changed += len(wrote.changed)
        self._report.made += len(batch.changed) - len(wrote.refused) - len(wrote.changed)
        for number, page in enumerate(batch.pages):
            failed = number in batch.failed or any(one.id in wrote.refused for one in page.written)
            self.target.done(page, failed)

    def _fail(self, id_: str, why: str) -> None:
        if len(self._report.failures) < NAMED:
            self._report.failures[id_] = why
        self._report.failed += 1

    def _progress(self, waiting: int) -> None:
        """So many of the documents that were read are not embedded yet."""
        done = self._report.read - waiting
        self._on_progress(done, max(done, self._total))  # more can come meanwhile


@contextmanager
def open_enricher(
    runtime: Runtime,
    recipe: Recipe | None = None,
    *,
    in_place: bool = False,
    one_vector: bool | None = None,
    rate: float | None = None,
    agreed: bool = False,
) -> Iterator[Enricher]:
    """Open the settings' store, which ccheck did not make, and the models for what it gets. `agreed`: see `Beside`.

    By default it gets the vectors of the settings' model; a recipe can ask for more. With `one_vector`, a new companion
    gets one for each document, in a flat field, with False one for each passage, nested. By default `Source.sample`
    decides; a recipe says it by `passages = false`. Raises UsageError, NotFound or InvalidData for what can't be
    enriched, before anything is written.
    """
    with open_store(runtime.settings) as store:
        source = open_source(store)
        target: Target
        if one_vector is not None and recipe is not None:
            raise UsageError("leave out --one-vector: a recipe says it with passages = false in its dense retriever")
        plan = ""
        if in_place:
            if recipe is not None:
                raise UsageError("--in-place adds the vectors of one model (--model). Leave out --recipe")
            if one_vector is False:
                raise UsageError("--in-place gives each document one vector. For passages, leave out --in-place")
            target = InPlace(source)
            encoders, plan = _one_model(runtime, source, True)
        else:
            beside = Companion(source.store)
            info = beside.info()
            if info is None and recipe is None:
                encoders, plan = _one_model(runtime, source, one_vector)
            else:
                if info is not None and any(one.chunking.cuts is one_vector for one in info.layout.dense.values()):
                    raise UsageError(f"{beside.name} has other vectors than you ask for. Delete it first (--undo)")
                encoders = open_encoders(runtime, info, recipe, recipe is None or None)
            _refuse_unread(encoders)
            target = Beside(source, beside, agreed=agreed)
        yield Enricher(target, encoders, runtime.settings, rate, plan)


def undo(settings: Settings, confirm: Callable[[str], bool]) -> bool:
    """Delete the companion of the settings' store, if `confirm` agrees. Raises NotFound if there is none."""
    with open_store(settings) as store:
        beside = Companion(open_source(store).store)
        if beside.info() is None:
            raise NotFound(f"{store.name} has no companion: there is nothing to undo")
        agreed = confirm(f"{beside.name}: {beside.removal()}")
        if agreed:
            beside.drop()
        return agreed


def _one_model(runtime: Runtime, source: Source, one_vector: bool | None) -> tuple[Encoders, str]:
    """The vectors of one model, one for each document or passage, and why. None: one if no document needs several."""
    embedder = embedders.load_embedder(runtime.settings.embedding_model or DEFAULT_MODEL, runtime)
    cut, whole = default_chunking(embedder.spec), Chunking.whole(embedder.spec.max_tokens)
    seen = longest = 0
    for some in chunked(source.sample(), COUNTED_AT_ONCE):
        seen += len(some)
        longest = max(longest, *count_all([one.content for one in some], embedder.count_tokens))
        if longest > cut.longer_than:
            break
    flat = 0 < longest <= cut.longer_than if one_vector is None else one_vector
    plan = (
        f"{'one flat vector for each document' if flat else 'a nested vector for each passage'}: the longest of "
        f"{counted(seen, 'document')} looked at has {longest:,} tokens, and the model reads {cut.longer_than:,}"
    )
    if flat and longest > cut.longer_than:
        plan += ", so that longer ones get the vector of their beginning"
    return Encoders((DenseEncoder(embedder, whole if flat else cut),)), plan


def _refuse_unread(encoders: Encoders) -> None:
    """Raises UsageError for what a companion does not have."""
    if encoders.additional is not None or encoders.units:
        what = "additional texts" if encoders.additional is not None else "units"
        raise UsageError(
            f"a companion index has vectors, sparse vectors and terms, but no {what}, which the recipe needs. Ingest "
            "the documents into an index of ccheck's own: ccheck ingest FILE --recipe NAME"
        )
