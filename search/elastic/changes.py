"""Reads the writes to an index, oldest first, and finds the documents of it that another index lacks.

Every write to a shard, a removal too, has the next number. A document has that of its last write. So adding to an index
of others, copying one of ours, catching up and going on after a crash are all the same: what was dealt with up to a
number stays dealt with, because a document that is written again gets a higher one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from ...core.errors import ServerError
from .client import Client
from .reading import hits_by_id, pages

AT_ONCE = 1_000
"""How many documents are read by one request."""
KEEP_ALIVE = "1h"
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

    index: str
    id: str
    source: Mapping[str, Any] | None
    number: int
    term: int
    routing: str | None = None


def shards(client: Client, concrete: Sequence[str], *, refresh: bool = True) -> list[Shard]:
    """The shards of indices. Without `refresh`, searches may not see the writes up to `last` yet.

    Raises Denied if the key or user lacks the privilege, and ServerError if a shard has no primary.
    """
    name, path = ", ".join(concrete), f"/{quote(','.join(concrete), safe=',')}"
    answer = client.request("GET", f"{path}/_stats/docs", params={"level": "shards"}, index=name)
    if refresh:
        client.request("POST", f"{path}/_refresh", index=name, slow=True)
    found: list[Shard] = []
    with client.understanding():
        for index, one in sorted(answer["indices"].items()):
            for number, copies in one["shards"].items():
                primary = next((copy["seq_no"] for copy in copies if copy["routing"]["primary"]), None)
                if primary is None:
                    raise ServerError(
                        f"{client.connection.name}: shard {number} of {index} has no primary. Try again later"
                    )
                last, newest = int(primary["global_checkpoint"]), int(primary["max_seq_no"])
                found.append(Shard(index, one["uuid"], int(number), last, newest))
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
    found = pages(client, name, {"size": AT_ONCE, **_read(source)}, KEEP_ALIVE)
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


def behind(shards: Sequence[Shard], checkpoints: Checkpoints) -> int | None:
    """How many writes came after these checkpoints; None if that is unknown."""
    if any(shard.key not in checkpoints for shard in shards):
        return None
    return sum(max(0, shard.last - checkpoints[shard.key]) for shard in shards)


def _read(source: Any) -> dict[str, Any]:
    return {"_source": source, "seq_no_primary_term": True, "track_total_hits": False}


def _written(hits: Sequence[Mapping[str, Any]]) -> list[Written]:
    return [
        Written(
            hit["_index"], hit["_id"], hit.get("_source"), hit["_seq_no"], hit["_primary_term"], hit.get("_routing")
        )
        for hit in hits
    ]
