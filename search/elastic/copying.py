"""Copying one index of ccheck's into another while others write to it: in the order of its writes, shard by shard.

Each shard numbers its writes. What was copied up to a number stays copied: a document that is written again gets a
higher one. So copying, catching up and going on after a crash are one and the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import orjson

from ...errors import InvalidData
from . import bulk
from .client import Client
from .errors import WHOLE, refuse_parts
from .reading import IDS_AT_ONCE

Hit: TypeAlias = Mapping[str, Any]
Operations: TypeAlias = Callable[[Sequence[Hit]], Iterable[bulk.Operation]]
"""What writes some documents to the other index."""
Copied: TypeAlias = Mapping[str, int]
"""By the number of a shard, the last of its writes that was copied."""

WRITES_AT_ONCE = 1_000
"""How many numbers one request spans: at most so many documents."""
NOTHING = -1
_WITH_VECTORS: tuple[Any, ...] = ({"exclude_vectors": False}, True)
"""From 9.2 on vectors are kept beside `_source` and come on request; before, a server does not know the request."""


@dataclass(frozen=True, slots=True)
class Shard:
    """`last` is the number of the last write that every copy has; `newest` that of the last that began."""

    number: str
    last: int
    newest: int


def shards(client: Client, index: str) -> list[Shard]:
    """The index's shards. All writes up to `last` can be searched. Raises ServerError where a shard has no primary."""
    path = f"/{quote(index, safe='')}"
    answer = client.request("GET", f"{path}/_stats/docs", params={"level": "shards"}, index=index)
    refuse_parts(client.request("POST", f"{path}/_refresh", index=index, slow=True), client.connection, index)
    found = []
    with client.understanding():
        for number, copies in answer["indices"][index]["shards"].items():
            seq_no = next(copy["seq_no"] for copy in copies if copy["routing"]["primary"])
            found.append(Shard(number, int(seq_no["global_checkpoint"]), int(seq_no["max_seq_no"])))
    return found


def changed(client: Client, index: str, shard: Shard, after: int, source: Any) -> Iterator[tuple[int, list[Hit]]]:
    """The documents whose last write has a number above `after`, some at a time, with the last number looked at."""
    path, params = f"/{quote(index, safe='')}/_search", {"preference": f"_shards:{shard.number}"} | WHOLE
    while after < shard.last:
        upto = min(after + WRITES_AT_ONCE, shard.last)
        body = {
            "query": {"range": {"_seq_no": {"gt": after, "lte": upto}}},
            "size": WRITES_AT_ONCE,
            "sort": ["_doc"],
            "_source": source,
            "track_total_hits": False,
        }
        answer = client.request("POST", path, body, params=params, index=index, slow=True)
        refuse_parts(answer, client.connection, index)
        yield upto, list(answer.get("hits", {}).get("hits", ()))
        after = upto


def copy_changes(
    client: Client,
    source: str,
    target: str,
    copied: Copied,
    operations: Operations,
    on_copied: Callable[[Copied, int], None],
    with_vectors: bool = True,
) -> tuple[dict[str, int], bool]:
    """Copy what was written to `source` since `copied`. Returns up to where, and whether writes were still under way.

    `on_copied` hears of each step, with the number of documents. Raises InvalidData for a document that the other index
    refuses, and ServerError.
    """
    done, found = dict(copied), shards(client, source)
    read = _all_of_source(client, source) if with_vectors else True
    for shard in found:
        for upto, hits in changed(client, source, shard, done.get(shard.number, NOTHING), read):
            if hits:
                write(client, target, operations(hits))
            done[shard.number] = upto
            on_copied(done, len(hits))
    return done, any(shard.newest > shard.last for shard in found)


def remove_surplus(client: Client, source: str, target: str) -> int:
    """Remove from `target` what `source` no longer has; all that `source` has must be there. Returns how many."""
    removed = 0
    for shard in shards(client, target):
        for _, hits in changed(client, target, shard, NOTHING, False):
            ids = [hit["_id"] for hit in hits]
            surplus = sorted({*ids} - _present(client, source, ids)) if ids else []
            removed += write(client, target, map(bulk.delete_operation, surplus)).results.get("deleted", 0)
    return removed


def missing(client: Client, source: str, target: str) -> Iterator[list[str]]:
    """The ids of `source` that `target` lacks, some at a time."""
    for shard in shards(client, source):
        for _, hits in changed(client, source, shard, NOTHING, False):
            ids = [hit["_id"] for hit in hits]
            if ids and (lacking := sorted({*ids} - _present(client, target, ids))):
                yield lacking


def by_ids(client: Client, index: str, ids: Sequence[str]) -> list[Hit]:
    """Documents with all that is stored of them."""
    body = {"query": {"ids": {"values": ids}}, "size": len(ids), "_source": _all_of_source(client, index)}
    answer = client.request("POST", f"/{quote(index, safe='')}/_search", body, params=WHOLE, index=index, slow=True)
    refuse_parts(answer, client.connection, index)
    return list(answer.get("hits", {}).get("hits", ()))


def write(client: Client, target: str, operations: Iterable[bulk.Operation]) -> bulk.Outcome:
    """Raises InvalidData if a document is refused: a copy must have every one."""
    params = {"filter_path": bulk.WANTED}
    outcome = bulk.write(client, f"/{quote(target, safe='')}/_bulk", target, operations, params)
    if outcome.refused:
        id_, reason = next(iter(outcome.refused.items()))
        more = f", and {len(outcome.refused) - 1:,} more" if len(outcome.refused) > 1 else ""
        raise InvalidData(f"{target} refuses the document {id_!r}{more}: {reason}")
    return outcome


def as_stored(hits: Sequence[Hit]) -> Iterator[bulk.Operation]:
    """The same documents, with the vectors that they have."""
    for hit in hits:
        action = {"_id": hit["_id"]} | ({"routing": hit["_routing"]} if "_routing" in hit else {})
        lines = b"%b\n%b\n" % (orjson.dumps({"index": action}), orjson.dumps(hit["_source"]))
        yield bulk.Operation(hit["_id"], lines)


def count(client: Client, index: str) -> int:
    answer = client.request("GET", f"/{quote(index, safe='')}/_count", index=index)
    refuse_parts(answer, client.connection, index)
    return int(answer["count"])


def _present(client: Client, index: str, ids: Sequence[str]) -> set[str]:
    assert len(ids) <= IDS_AT_ONCE
    body = {"query": {"ids": {"values": ids}}, "size": len(ids), "_source": False, "track_total_hits": False}
    answer = client.request("POST", f"/{quote(index, safe='')}/_search", body, params=WHOLE, index=index, slow=True)
    refuse_parts(answer, client.connection, index)
    return {hit["_id"] for hit in answer.get("hits", {}).get("hits", ())}


def _all_of_source(client: Client, index: str) -> Any:
    """What asks this server for the vectors, too."""
    newer, older = _WITH_VECTORS
    try:
        body = {"size": 0, "_source": newer}
        client.request("POST", f"/{quote(index, safe='')}/_search", body, params=WHOLE, index=index)
    except InvalidData:
        return older
    return newer
