"""Adding vectors to the documents of an index that ccheck did not make, on request: one object, `ccheck`, in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...core.errors import InvalidData, UsageError
from ...core.layout import MAIN_VECTORS, Embedding, Layout
from ...core.text import counted
from ...core.types import Entry
from . import bound, bulk, changes, reading
from .bound import Bound
from .changes import Written
from .enrich import Page, Source, Target, Wrote
from .fields import DIGEST_IN_PLACE

OBJECT: Final = "ccheck"
"""The object that a document gets."""
VECTOR, DIGEST = f"{OBJECT}.vector", DIGEST_IN_PLACE
_GRAPH_BYTES: Final = 150
"""About what the HNSW graph and the quantised vector's corrections take for each vector, beside the vector itself."""
_LONGEST: Final = 50
"""Elasticsearch's own limit of a value in a field's `meta`."""
_CHANGED: Final = ("version_conflict_engine_exception", "document_missing_exception")
_PIPELINES: Final = ("default_pipeline", "final_pipeline")
_BLOCKS: Final = ("read_only", "read_only_allow_delete", "write", "metadata")


class InPlace(Target):
    """The documents of the index as a target."""

    def __init__(self, source: Source) -> None:
        """Raises InvalidData for an index whose documents can't be updated, or would lose something."""
        super().__init__(source, source.store.name)
        refuse(source)
        self._to: Bound | None = None
        """The index while it is written to, with an alias of its own for that time."""

    def consequences(self, layout: Layout) -> Iterator[str]:
        embedding = _embedding(layout)
        (concrete,) = self.source.index.concrete
        settings = self.source.described[concrete].get("settings", {}).get("index", {})
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
        figures = reading.figures(self.source.client, self.source.index)
        gain = documents * (embedding.dimensions * 5 + _GRAPH_BYTES) * (1 + replicas)
        size = figures.bytes if figures is not None else 0
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

    def pages(self) -> Iterator[Page]:
        wanted: Any = dict(self.source.index.source)
        if "includes" in wanted:
            wanted["includes"] = [*wanted["includes"], DIGEST]
        for some in changes.all_written(self.source.client, self._held.name, wanted or True):
            yield Page(some)

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
        changed = frozenset(id_ for id_, why in refused.items() if why.startswith(_CHANGED))
        return Wrote({id_: why for id_, why in refused.items() if id_ not in changed}, changed)

    def finish(self, failures: int) -> int:
        self._request("POST", "_refresh", slow=True)
        return 0

    def release(self) -> None:
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
        raise InvalidData(
            f"{self.name} has a field {OBJECT} already, "
            + (f"with vectors of {made}. Name that model with --model" if made else "which is not ccheck's")
            + ", or use a companion index (without --in-place)"
        )


def refuse(source: Source) -> None:
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
    if stream := described.get("data_stream"):
        raise InvalidData(f"{concrete} belongs to the data stream {stream}, which only takes new documents. {instead}")
    if kept.get("includes") or kept.get("excludes"):
        raise InvalidData(
            f"{concrete} keeps only a part of each document in _source, and an update would lose the rest. {instead}"
        )
    if mode == "synthetic" or settings.get("mode") in ("logsdb", "time_series"):
        raise InvalidData(f"{concrete} has a synthetic _source, which an update would change. {instead}")
    if settings.get("store", {}).get("type") == "snapshot":
        raise InvalidData(f"{concrete} is mounted from a snapshot and can't be written to. {instead}")
    following = settings.get("xpack", {}).get("ccr", {}).get("following_index")
    if str(following).lower() == "true":
        raise InvalidData(f"{concrete} follows an index of another cluster and takes only its writes. {instead}")
    blocks = settings.get("blocks", {})
    if blocked := [name for name in _BLOCKS if str(blocks.get(name)).lower() == "true"]:
        said = ", ".join(f"index.blocks.{name}" for name in blocked)
        raise InvalidData(f"{concrete} does not accept changes ({said} is set). Remove the block, or: {instead}")


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
    # Without a text there is no vector: an old one goes.
    vector = passages[0].vector if passages else None
    return bulk.operation(written.id, {"update": action}, {"doc": {OBJECT: {"digest": entry.digest, "vector": vector}}})
