"""Adding to an index that ccheck did not make: what is to be read of it, and where what was made of that goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from more_itertools import chunked

from ...core.errors import InvalidData, NotFound, UsageError
from ...core.layout import MAIN_VECTORS, Embedding, Layout
from ...core.text import counted
from ...core.types import Document, Entry
from . import bound, bulk, ownership, reading
from .bound import Bound
from .client import Client
from .companion import SEVERAL, Companion, JoinedStore, may_have_one
from .errors import Denied
from .fields import DIGEST_IN_PLACE, Index, document
from .reading import Shard, Written, figures, hits_by_id

COPIES = 5
"""How many documents of one id are looked for, to name their indices."""

SAMPLED = 1_000
"""How many documents are looked at beforehand. If none of 1,000 is long, less than 0.3% are (at 95%)."""
FEW_REMOVED = 10
"""So many documents, or a tenth, leave a companion without a question."""


@dataclass(frozen=True, slots=True)
class Source:
    """The index that is enriched, and what the server says about each index behind the name."""

    store: JoinedStore
    client: Client
    index: Index
    described: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The indices that were checked, which the store's name may leave meanwhile."""
        return ",".join(self.index.concrete)

    def document(self, written: Written) -> Document:
        """Its title and text. Raises InvalidData if they can't be read."""
        if written.source is None:
            raise InvalidData("the server returned no _source for it")
        found = document(self.index, written.id, written.source)
        return Document(written.id, found.title, found.text)

    def sample(self) -> list[Document]:
        """Up to `SAMPLED` documents at random: the same again while nobody writes."""
        body = {
            "query": {"function_score": {"random_score": {"seed": 0, "field": "_seq_no"}}},
            "size": SAMPLED,
            "_source": self.index.source or True,
            "track_total_hits": False,
        }
        hits = self.client.search(self.name, body, slow=True)["hits"]["hits"]
        return [document(self.index, hit["_id"], hit["_source"]) for hit in hits if "_source" in hit]

    def twice(self, some: Sequence[Written]) -> dict[str, str]:
        """Why ids can't be used that several documents have: in several indices, or in one by their routing."""
        routed = any(one.routing is not None for one in some)
        if len(self.index.concrete) == 1 and not routed:
            return {}
        homes: dict[str, Counter[str]] = {}
        for hit in hits_by_id(self.client, self.name, [one.id for one in some], copies=COPIES, _source=False):
            homes.setdefault(hit["_id"], Counter())[hit["_index"]] += 1
        said: dict[str, str] = {}
        for id_, found in homes.items():
            if len(found) > 1:
                said[id_] = f"{' and '.join(sorted(found))} both have this id. Enrich each index separately"
            elif found.total() > 1:
                said[id_] = f"{found.total()} documents of {next(iter(found))} have this id, with different routings"
        return said


@dataclass(frozen=True, slots=True)
class Page:
    """Documents to look at; of one shard, in the order of their writes, if that is known."""

    written: list[Written]
    shard: Shard | None = None
    upto: int = reading.NEVER
    """The number of the shard's writes up to which this and the pages before it have everything."""


@dataclass(frozen=True, slots=True)
class Wrote:
    """The outcome of a write: why documents were refused, and which ones somebody else wrote in between."""

    refused: Mapping[str, str]
    changed: frozenset[str] = frozenset()


def open_source(store: Any) -> Source:
    """Raises UsageError, NotFound or InvalidData for what can't be enriched."""
    if not isinstance(store, JoinedStore):
        raise UsageError(
            f"{store.name} is not an index in Elasticsearch. Name one: ccheck index enrich https://host:9200/INDEX"
        )
    if not may_have_one(store.index):
        raise UsageError(f"{store.index!r} can't be enriched: name one index of this server. {SEVERAL}")
    info = store.info()
    if info is None:
        raise NotFound(f"there is no index {store.name}")
    if info.made_here:
        raise InvalidData(
            f"ccheck made {store.name}. To add what a recipe needs, ingest again: ccheck ingest FILE --recipe NAME "
            f"--store {store.name}"
        )
    index, described = store._looked(fresh=True)
    ownership.refuse_enriching(store.index, index, described)
    return Source(store, store.client, index, described)


class Beside:
    """A companion as a target: where what is made of documents goes."""

    def __init__(self, source: Source, store: Companion, *, agreed: bool = False) -> None:
        """`agreed`: it may lose many documents that its index seems to lack."""
        self.source, self.name, self.store, self._agreed = source, store.name, store, agreed
        self.checkpoints: dict[str, int] = {}
        self._shards: list[Shard] | None = None
        self._stuck: set[str] = set()
        self._was_empty = False
        self._begun: dict[str, int] = {}

    def consequences(self, layout: Layout) -> Iterator[str]:
        """Yields what the user should know before the index is changed: nothing."""
        yield from ()

    def prepare(self, layout: Layout) -> None:
        self.store.prepare(layout)
        self._was_empty = self.store.count() == 0
        try:
            self._shards = reading.shards(self.source.client, self.source.index.concrete)
        except Denied:
            self._shards = None
        kept = {} if self._was_empty else self.store.checkpoints()
        if self.source.store.count() - self.store.count() > (self.store.behind() or 0):
            kept = {}  # it has lost some: all are read again, and those that it has are not embedded again
        self._begun = {shard.key: kept.get(shard.key, reading.NEVER) for shard in self._shards or ()}
        self.checkpoints = dict(self._begun)

    def pages(self) -> Iterator[Page]:
        wanted: Any = self.source.index.source or True
        if self._shards is None:
            for some in reading.all_written(self.source.client, self.source.name, wanted):
                yield Page(some)
            return
        for shard in self._shards:
            for upto, some in reading.written_since(self.source.client, shard, self._begun[shard.key], wanted):
                yield Page(some, shard, upto)

    def digests(self, page: Page) -> Mapping[str, str]:
        return {} if self._was_empty else self.store.digests([one.id for one in page.written])

    def write(self, entries: Sequence[tuple[Entry, Written]]) -> Wrote:
        return Wrote(self.store.upsert([entry for entry, _ in entries]))

    def done(self, page: Page, failed: bool) -> None:
        """All documents of the page were dealt with, those before it, too; some in vain where `failed`."""
        if page.shard is None or page.shard.key in self._stuck:
            return
        if failed:
            self._stuck.add(page.shard.key)  # it is read again next time, from here on
            return
        self.checkpoints[page.shard.key] = page.upto

    def remember(self) -> None:
        """Write down how far it is, for a run after one that was killed."""
        self.store.remember(self.checkpoints)

    def release(self) -> None:
        pass

    def finish(self, failures: int) -> int:
        """Make everything searchable, and remove what its index no longer has. Returns how much that was."""
        self.store.publish()
        may_have_removed = not self._was_empty and self._may_have_removed(failures)
        if self._shards is not None:
            for shard in self._shards:
                if shard.key not in self._stuck:
                    self.checkpoints[shard.key] = shard.last
            self.remember()
        return self._remove() if may_have_removed else 0

    def _may_have_removed(self, failures: int) -> bool:
        """Whether documents may have gone: the companion has some that its index does not have, or has anew."""
        if self._shards is None or set(self.store.checkpoints()) - set(self.checkpoints):
            return True
        return self.store.count() > self.source.store.count() - failures

    def _remove(self) -> int:
        """Raises InvalidData if that is much, and was not agreed to: a role can hide documents."""
        gone = [id_ for some in reading.lacking(self.source.client, self.store.index, self.source.name) for id_ in some]
        if not self._agreed and len(gone) > max(FEW_REMOVED, (count := self.store.count()) // 10):
            raise InvalidData(
                f"this key or user does not find {len(gone):,} of the {count:,} documents of {self.name} in "
                f"{self.source.store.name}: they were removed there, or a role hides them. They stay in the companion. "
                "If they were removed, run the same command with --yes"
            )
        removed = sum(self.store.delete(ids) for ids in chunked(gone, reading.DOCUMENTS_AT_ONCE))
        if removed:
            self.store.publish()
        return removed


# -- in place: one object, `ccheck`, in each document of the index itself

OBJECT: Final = "ccheck"
"""The object that a document gets."""
VECTOR, DIGEST = f"{OBJECT}.vector", DIGEST_IN_PLACE
_GRAPH_BYTES: Final = 150
"""About what the HNSW graph and the quantised vector's corrections take for each vector, beside the vector itself."""
_LONGEST: Final = 50
"""Elasticsearch's own limit of a value in a field's `meta`."""
_CHANGED: Final = ("version_conflict_engine_exception", "document_missing_exception")
_PIPELINES: Final = ("default_pipeline", "final_pipeline")


class InPlace:
    """The documents of the index as a target. They say for themselves how far it is."""

    def __init__(self, source: Source) -> None:
        """Raises InvalidData for an index whose documents can't be updated, or would lose something."""
        self.source, self.name = source, source.store.name
        refuse_in_place(source)
        self._to: Bound | None = None
        """The index while it is written to, with an alias of its own for that time."""

    def consequences(self, layout: Layout) -> Iterator[str]:
        """The same. Raises InvalidData if the documents can't have the field."""
        embedding = _embedding(layout)
        (concrete,) = self.source.index.concrete
        self._check_field(concrete, embedding)
        settings = self.source.described[concrete].get("settings", {}).get("index", {})
        if (beside := self.source.store.companion()) is not None:
            yield f"searches use the companion {beside.name}, and not these vectors, until you delete it (--undo)"
        yield (
            f"{concrete} gets the fields {VECTOR} ({embedding.dimensions} dimensions) and {DIGEST}. A field stays in "
            "the mapping until the documents are reindexed into another index: there is no undo"
        )
        yield f"other applications may get the vectors with their hits, unless they exclude {OBJECT} from _source"
        if pipelines := [f"{name} {settings[name]}" for name in _PIPELINES if settings.get(name, "_none") != "_none"]:
            yield (
                f"its ingest pipelines ({', '.join(pipelines)}) do not run on these updates. A document that its owner "
                "writes again passes through them and loses its vector, until you run this command again"
            )
        replicas, documents = int(settings.get("number_of_replicas", 0)), self.source.store.count()
        size = figures(self.source.client, self.source.index)[0] or 0
        gain = documents * (embedding.dimensions * 5 + _GRAPH_BYTES) * (1 + replicas)
        yield (
            f"{documents:,} documents are written again, with {counted(replicas, 'replica')}: about "
            f"{_bytes(gain)} for vectors, and up to {_bytes(size + gain)} more until old segments are merged"
        )

    def prepare(self, layout: Layout) -> None:
        embedding = _embedding(layout)
        (concrete,) = self.source.index.concrete
        self._check_field(concrete, embedding)
        self._to = bound.bind(self.source.client, bound.found(concrete, self.source.described[concrete]))
        self._request("PUT", "_mapping", _mapping(embedding))

    @property
    def _wanted(self) -> Any:
        wanted: Any = dict(self.source.index.source)
        return (wanted | {"includes": [*wanted["includes"], DIGEST]} if "includes" in wanted else wanted) or True

    def pages(self) -> Iterator[Page]:
        yield from map(Page, reading.all_written(self.source.client, self._held.name, self._wanted))

    def digests(self, page: Page) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for one in page.written:
            held = (one.source or {}).get(OBJECT)
            if isinstance(held, dict) and isinstance(digest := held.get("digest"), str):
                found[one.id] = digest
        return found

    def write(self, entries: Sequence[tuple[Entry, Written]]) -> Wrote:
        operations = (_update(entry, written) for entry, written in entries)
        refused = bulk.write(self.source.client, self._held, operations).refused
        changed = {id_ for id_, why in refused.items() if why.startswith(_CHANGED)}
        failed = {id_: why for id_, why in refused.items() if id_ not in changed}
        return Wrote(failed, frozenset(changed - self._made([entry for entry, _ in entries], changed)))

    def _made(self, entries: Sequence[Entry], changed: set[str]) -> set[str]:
        """Those that this run has written itself, with an answer that was lost, and then sent again in vain."""
        if not changed:
            return set()
        self._request("POST", "_refresh", slow=True)
        hits = hits_by_id(self.source.client, self._held.name, sorted(changed), _source=self._wanted)
        now = {hit["_id"]: Written(hit["_id"], hit.get("_source"), reading.NEVER, 0) for hit in hits}
        held, of = self.digests(Page([*now.values()])), self.source.document
        same = (one for one in entries if one.digest == held.get(one.document.id))
        return {one.document.id for one in same if one.document == of(now[one.document.id])}

    def finish(self, failures: int) -> int:
        self._request("POST", "_refresh", slow=True)
        return 0

    def done(self, page: Page, failed: bool) -> None:
        pass

    def remember(self) -> None:
        pass

    def release(self) -> None:
        """End a run, also one that failed."""
        if self._to is not None:
            bound.release(self.source.client, self._to)

    @property
    def _held(self) -> Bound:
        assert self._to is not None
        return self._to

    def _request(self, method: str, action: str, body: Mapping[str, Any] | None = None, **how: Any) -> dict[str, Any]:
        return bound.request(self.source.client, self._held, method, action, body, **how)

    def _check_field(self, concrete: str, embedding: Embedding) -> None:
        """Raises InvalidData if the documents have an object of this name that is not the same model's."""
        properties = self.source.described[concrete].get("mappings", {}).get("properties", {})
        if OBJECT not in properties:
            return
        there = properties[OBJECT].get("properties", {}).get("vector", {})
        if there.get("meta") == _meta(embedding) and there.get("dims") == embedding.dimensions:
            return
        meta = there.get("meta")
        made = meta.get("model", "another model") if isinstance(meta, dict) and "weights" in meta else None
        what = f"with vectors of {made}. Name that model with --model, or use" if made else "which is not ccheck's. Use"
        raise InvalidData(f"{self.name} has a field {OBJECT} already, {what} a companion index (without --in-place)")


Target: TypeAlias = Beside | InPlace


def refuse_in_place(source: Source) -> None:
    """Raises InvalidData if updates would fail, or would lose something of a document."""
    instead = "Use a companion index (without --in-place)"
    if len(source.index.concrete) != 1:
        raise InvalidData(
            f"{source.store.name} stands for {len(source.index.concrete)} indices. Name one of them. {instead}"
        )
    (concrete,) = source.index.concrete
    described = source.described[concrete]
    settings = described.get("settings", {}).get("index", {})
    kept = described.get("mappings", {}).get("_source", {})
    mode = settings.get("mapping", {}).get("source", {}).get("mode") or kept.get("mode")
    following = settings.get("xpack", {}).get("ccr", {}).get("following_index")
    reasons = {
        f"belongs to the data stream {described.get('data_stream')}, which only takes new documents": (
            described.get("data_stream")
        ),
        "keeps only a part of each document in _source, and an update would lose the rest": (
            kept.get("includes") or kept.get("excludes")
        ),
        "has a synthetic _source, which an update would change": (
            mode == "synthetic" or settings.get("mode") in ("logsdb", "time_series")
        ),
        "is mounted from a snapshot and can't be written to": settings.get("store", {}).get("type") == "snapshot",
        "follows an index of another cluster and takes only its writes": str(following).lower() == "true",
        f"does not accept changes ({', '.join(blocks := bound.blocks(described))} is set)": blocks,
    }
    for why, applies in reasons.items():
        if applies:
            raise InvalidData(f"{concrete} {why}. {instead}")


def _bytes(number: float) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.1f} MB"


def _embedding(layout: Layout) -> Embedding:
    """The only thing that a document can get."""
    embedding = layout.embedding
    if embedding is None or set(layout.dense) != {MAIN_VECTORS} or layout != Layout(dense=layout.dense):
        raise UsageError(
            "--in-place adds the vectors of one embedding model and nothing else. Without --in-place, a companion "
            "index takes everything that a recipe needs"
        )
    return embedding


def _mapping(embedding: Embedding) -> dict[str, Any]:
    vector = {
        "type": "dense_vector",
        "dims": embedding.dimensions,
        "similarity": "cosine",
        "index_options": {"type": "int8_hnsw"},
        "meta": _meta(embedding),
    }
    digest = {"type": "keyword", "index": False, "doc_values": False}
    return {"properties": {OBJECT: {"properties": {"vector": vector, "digest": digest}}}}


def _meta(embedding: Embedding) -> dict[str, str]:
    """A part of a long name could be another model's, and the field names none then."""
    name = {"model": embedding.model} if len(embedding.model) <= _LONGEST else {}
    return {**name, "weights": embedding.fingerprint[:_LONGEST]}


def _update(entry: Entry, written: Written) -> bulk.Operation:
    action: dict[str, Any] = {"_id": written.id, "if_seq_no": written.number, "if_primary_term": written.term}
    if written.routing is not None:
        action["routing"] = written.routing
    passages = entry.passages.get(MAIN_VECTORS, ())
    # A document whose text is gone loses its vector.
    vector = passages[0].vector if passages else None
    return bulk.operation(written.id, {"update": action}, {"doc": {OBJECT: {"digest": entry.digest, "vector": vector}}})
