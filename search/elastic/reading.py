"""Reading documents: by their ids, all, or those written since; and telling apart those that share an id.

Documents that a search found are read by a search, too: it goes where the first one went (every shard, through the
alias, with its filter and its privileges), which getting a document by its id does not.

Every write to a shard, a removal too, has the next number. A document has that of its last write. So adding to an index
of others, copying one of ours, catching up and going on after a crash are all the same: what was dealt with up to a
number stays dealt with, because a document that is written again gets a higher one.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from elastic_transport import TransportError
from more_itertools import chunked

from ...core.errors import CcheckError, ServerError
from ...core.types import Document
from .client import Client
from .errors import Denied, part_error
from .fields import TEXT_TYPES, Index, document
from .mappings import ID

DOCUMENTS_AT_ONCE, IDS_AT_ONCE = 1_000, 10_000
"""How many hits one request may ask for, with and without what is stored of them. The second is the server's limit."""

SCANNED_AT_ONCE, KEEP_ALIVE = 500, "5m"
"""How many documents one page of a scan has, and how long the server keeps the scan's point in time."""

Key: TypeAlias = tuple[str, str]
"""A document's index and id: an alias can stand for several indices."""


def found_by_id(client: Client, name: str, index: Index, ids: Iterable[str]) -> dict[Key, Document]:
    """The documents with these ids as searches see them, each under the index that it is in."""
    source, copies = index.source or True, len(index.concrete)
    hits = hits_by_id(client, name, ids, copies=copies, at_once=DOCUMENTS_AT_ONCE, _source=source)
    found = ((key_of(hit), hit["_source"]) for hit in hits if "_source" in hit)
    return {key: document(index, key[1], held) for key, held in found}


def shared_ids(client: Client, name: str, index: Index, ids: Iterable[str]) -> frozenset[str]:
    """Those of the ids that documents in several of the indices have."""
    if len(index.concrete) == 1:
        return frozenset()
    homes: dict[str, set[str]] = {}
    for hit in hits_by_id(client, name, sorted(set(ids)), copies=len(index.concrete), _source=False):
        concrete, id_ = key_of(hit)
        homes.setdefault(id_, set()).add(concrete)
    return frozenset(id_ for id_, some in homes.items() if len(some) > 1)


def by_ids(ids: Sequence[str]) -> dict[str, Any]:
    """A query for documents by their ids."""
    return {"ids": {"values": list(ids)}}


def key_of(hit: Mapping[str, Any]) -> Key:
    """Raises KeyError for a hit that has its id neither by itself nor in the field that repeats it."""
    return hit.get("_index", ""), hit["_id"] if "_id" in hit else hit["fields"][ID][0]


def public_id(key: Key, shared: frozenset[str]) -> str:
    """The id that a document has outside the store: INDEX/ID where several indices have it."""
    concrete, id_ = key
    return f"{concrete}/{id_}" if id_ in shared else id_


def got(client: Client, name: str, index: Index, ids: Sequence[str]) -> dict[str, Document]:
    """Documents of an index that ccheck did not make by public ids. An id that several indices share is not one."""
    homes = {id_: home_of(index, id_) for id_ in ids}
    found = found_by_id(client, name, index, dict.fromkeys([*ids, *(one[1] for one in homes.values() if one)]))
    by_id: dict[str, list[Document]] = {}
    for (_, id_), one in found.items():
        by_id.setdefault(id_, []).append(one)
    documents: dict[str, Document] = {}
    for id_, home in homes.items():
        if len(by_id.get(id_, ())) == 1:
            documents[id_] = by_id[id_][0]
        elif home in found:
            one = found[home]
            documents[id_] = replace(one, id=id_)
    return documents


def scan(client: Client, name: str, index: Index, query: Mapping[str, Any]) -> Iterator[Document]:
    """All documents that a query matches, at one point in time."""
    for hits in pages(client, name, {"query": query, "_source": index.source or True}):
        shared = shared_ids(client, name, index, [hit["_id"] for hit in hits])
        for hit in hits:
            id_ = public_id(key_of(hit), shared)
            yield document(index, id_, hit.get("_source", {}))


def pages(
    client: Client, name: str, search: Mapping[str, Any], keep_alive: str = KEEP_ALIVE
) -> Generator[Sequence[Mapping[str, Any]]]:
    """All hits of a search at one point in time, a page at a time; each page renews how long the server keeps that."""
    keep = {"keep_alive": keep_alive}
    held = client.on_index("POST", name, "_pit", params=keep)["id"]
    body: dict[str, Any] = {
        "size": SCANNED_AT_ONCE,
        "sort": [{"_shard_doc": "asc"}],
        "track_total_hits": False,
        **search,
    }
    try:
        while True:
            body["pit"] = {"id": held, **keep}
            try:
                answer = client.request("POST", "/_search", body, index=name, slow=True)
            except Denied:
                if "search_after" in body:
                    raise
                yield from _scrolled(client, name, search, keep_alive)
                return
            held = answer.get("pit_id", held)
            hits = answer.get("hits", {}).get("hits", ())
            if not hits:
                return
            yield hits
            body["search_after"] = hits[-1]["sort"]
    finally:
        client.request("DELETE", "/_pit", {"id": held}, index=name)


def _scrolled(
    client: Client, name: str, search: Mapping[str, Any], keep_alive: str
) -> Generator[Sequence[Mapping[str, Any]]]:
    """The same for a key that may search the alias alone, and so no point in time.

    Raises ServerError if a page was lost with its answer: asking again brings the next one.
    """
    body = {"size": SCANNED_AT_ONCE, "sort": ["_doc"], **search, "track_total_hits": True}
    answer = client.on_index("POST", name, "_search", body, params={"scroll": keep_alive}, slow=True)
    with client.understanding():
        left, held = int(answer["hits"]["total"]["value"]), {"scroll_id": answer["_scroll_id"]}
    try:
        while hits := answer.get("hits", {}).get("hits"):
            left -= len(hits)
            yield hits
            answer = client.request("POST", "/_search/scroll", {"scroll": keep_alive, **held}, index=name)
            held = {"scroll_id": answer.get("_scroll_id", held["scroll_id"])}
        if left:
            raise ServerError(f"{client.connection.url}/{name} left out {left:,} documents: try again later")
    finally:
        client.request("DELETE", "/_search/scroll", held, index=name)


def hits_by_id(
    client: Client,
    name: str,
    ids: Iterable[str],
    *,
    filters: Sequence[Mapping[str, Any]] = (),
    copies: int = 1,
    at_once: int = IDS_AT_ONCE,
    **body: Any,
) -> Iterator[Mapping[str, Any]]:
    """The documents with these ids that pass the filters, as searches see them.

    At most `copies` have one id; `body` says what is read.
    """
    for some in chunked(ids, max(1, at_once // copies)):
        query = {"bool": {"filter": [by_ids(some), *filters]}}
        asked = {"query": query, "size": len(some) * copies, "sort": ["_doc"], "track_total_hits": False}
        answer = client.search(name, asked | body, slow=True)
        yield from answer.get("hits", {}).get("hits", ())


def with_vectors(client: Client, name: str, index: Index, count: int) -> list[tuple[Document, list[float]]]:
    """Some documents of an index that ccheck did not make, with their vectors.

    Of documents with vectors in nested passages, the first passage with one is the text, and one without words is none.
    """
    if index.vector is None:
        return []
    path = index.fields[index.vector].within
    inside = [one for one, known in index.fields.items() if path and known.within == path and known.type in TEXT_TYPES]
    texts = [one for one in index.text if one in inside] or inside
    query: dict[str, Any] = {"exists": {"field": index.vector}}
    body: dict[str, Any] = {
        "query": {"nested": {"path": path, "query": query, "ignore_unmapped": True}} if path else query,
        "size": count,
        "sort": ["_doc"],
        "_source": index.source or True,
        "fields": [index.vector, *texts],
        "track_total_hits": False,
    }
    hits = client.search(name, body)["hits"]["hits"]
    pairs: list[tuple[Document, list[float]]] = []
    for hit in hits:
        one, found = document(index, hit["_id"], hit.get("_source", {})), hit.get("fields", {})
        if path:
            passages = ({f"{path}.{name}": value for name, value in some.items()} for some in found.get(path, ()))
            found = next((some for some in passages if index.vector in some), {})
            one = replace(one, text="\n\n".join(str(text) for name in texts for text in found.get(name, ())))
        if index.vector in found and (one.text or not path):
            pairs.append((one, found[index.vector]))
    return pairs


def count_passages(client: Client, name: str, index: Index) -> int:
    """How many vectors of passages there are; where they are flat, documents with one."""
    nested = index.vector is not None and index.fields[index.vector].nested
    if index.vector is None or (nested and not index.made_here):
        return 0
    passages = {"nested": {"path": "passages"}} if nested else {"filter": {"exists": {"field": index.vector}}}
    body = {"size": 0, "aggs": {"passages": passages}}
    return int(client.search(name, body)["aggregations"]["passages"]["doc_count"])


def stored(
    client: Client, name: str, ids: Sequence[str], source: Mapping[str, list[str]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Ids with what an index made by ccheck stores for them, as last written. Raises an error of any of them."""
    for some in chunked(ids, DOCUMENTS_AT_ONCE):
        params = {f"_source_{which}": ",".join(fields) for which, fields in source.items()}
        answer = client.on_index("POST", name, "_mget", {"ids": some}, params=params, slow=True)
        for one in answer["docs"]:
            if "error" in one:
                raise part_error(one, client.connection, name)
            if one.get("found"):
                yield one["_id"], one.get("_source", {})


def home_of(index: Index, id_: str) -> Key | None:
    """The index and id that a public id with an index before it means."""
    for concrete in index.concrete:
        if id_.startswith(f"{concrete}/"):
            return concrete, id_.removeprefix(f"{concrete}/")
    return None


def figures(client: Client, index: Index) -> tuple[int | None, str | None]:
    """The bytes of an index with all copies, and a hash that changes with what searches see.

    Both are None if the key or user lacks the privilege. Raises ServerError for a server that does not answer.
    """
    try:
        answer = client.on_index("GET", ",".join(index.concrete), "_stats/docs,store", params={"level": "shards"})
        primaries = [
            (str(one["uuid"]), int(number), copy["seq_no"], copy["docs"])
            for one in answer["indices"].values()
            for number, copies in one["shards"].items()
            for copy in copies
            if copy["routing"]["primary"]
        ]
        # A write is in the first number at once, and in the others when it has become searchable.
        seen = sorted((*shard, no["max_seq_no"], docs["count"], docs["deleted"]) for *shard, no, docs in primaries)
        state = hashlib.sha256(repr(seen).encode()).hexdigest()[:32]
        return int(answer["_all"]["total"]["store"]["size_in_bytes"]), state
    except (CcheckError, KeyError) as error:
        if isinstance(error.__cause__, TransportError):  # nor would it answer the next request
            raise
        return None, None


# -- what was written, oldest first

AT_ONCE = 1_000
"""How many documents are read by one request."""
KEPT_FOR = "1h"
"""How long the server keeps a point in time between two pages: a batch is embedded meanwhile."""
NEVER = -1
"""The number before the first."""

Checkpoints: TypeAlias = Mapping[str, int]
"""For each `Shard.key`, the number up to which everything was dealt with."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of an index. All its copies have the writes up to `last`; `newest` is the last one that began."""

    index: str
    uuid: str
    number: int
    last: int
    newest: int

    @property
    def key(self) -> str:
        """Identifies it among those of all indices that ever had this name."""
        return f"{self.uuid}/{self.number}"


@dataclass(frozen=True, slots=True)
class Written:
    """A document as it was last written. `source` is None if the index does not keep it."""

    id: str
    source: Mapping[str, Any] | None
    number: int
    term: int
    routing: str | None = None


def shards(client: Client, concrete: Sequence[str]) -> list[Shard]:
    """The shards of indices, refreshed so that searches see the writes up to `last`.

    Raises Denied if the key or user lacks the privilege, and ServerError if a shard has no primary. A search waits for
    all shards, and counts them: statistics leave out those that are not there.
    """
    name = ",".join(concrete)
    there = client.search(name, {"size": 0, "track_total_hits": False})
    answer = client.on_index("GET", name, "_stats/docs", params={"level": "shards"})
    found: list[Shard] = []
    with client.understanding():
        for index, one in sorted(answer["indices"].items()):
            for number, copies in one["shards"].items():
                primary = next((copy["seq_no"] for copy in copies if copy["routing"]["primary"]), None)
                if primary is None:
                    raise ServerError(
                        f"{client.connection.url}: shard {number} of {index} has no primary. Try again later"
                    )
                last, newest = int(primary["global_checkpoint"]), int(primary["max_seq_no"])
                found.append(Shard(index, one["uuid"], int(number), last, newest))
        if len(found) != (total := there["_shards"]["total"]):
            raise ServerError(
                f"{client.connection.url}: {len(found)} of the {total} shards of {name} are there. Try again later"
            )
    client.on_index("POST", name, "_refresh", slow=True)
    return found


def written_since(
    client: Client, shard: Shard, after: int, source: Any, name: str | None = None
) -> Iterator[tuple[int, list[Written]]]:
    """The documents whose last write has a number above `after`, up to the shard's `last`, in the order of writes.

    `name` is what to ask for the index, if not by its own name. They come in pages, each with the number up to which it
    is complete. What is written meanwhile is left for later.
    """
    body: dict[str, Any] = {"size": AT_ONCE, "sort": [{"_seq_no": "asc"}], **_read(source)}
    while after < shard.last:
        body["query"] = {"range": {"_seq_no": {"gt": after, "lte": shard.last}}}
        answer = client.search(name or shard.index, body, slow=True, preference=f"_shards:{shard.number}")
        found = _written(answer.get("hits", {}).get("hits", ()))
        after = found[-1].number if len(found) == AT_ONCE else shard.last
        yield after, found


def all_written(client: Client, name: str, source: Any) -> Iterator[list[Written]]:
    """Every document at one point in time, a page at a time, in no order."""
    found = pages(client, name, {"size": AT_ONCE, **_read(source)}, KEPT_FOR)
    with contextlib.closing(found):
        for hits in found:
            yield _written(hits)


def lacking(client: Client, name: str, other: str) -> Iterator[list[str]]:
    """The ids of documents in `name` that `other` lacks, some at a time, both as they were last refreshed."""
    for some in all_written(client, name, False):
        gone = {one.id for one in some}
        # Several documents of one id can leave no room for others in an answer: what it lacks is asked for again.
        while gone and (there := {hit["_id"] for hit in hits_by_id(client, other, sorted(gone), _source=False)}):
            gone -= there
        if gone:
            yield sorted(gone)


def _read(source: Any) -> dict[str, Any]:
    return {"_source": source, "seq_no_primary_term": True, "track_total_hits": False}


def _written(hits: Sequence[Mapping[str, Any]]) -> list[Written]:
    return [
        Written(hit["_id"], hit.get("_source"), hit["_seq_no"], hit["_primary_term"], hit.get("_routing"))
        for hit in hits
    ]
