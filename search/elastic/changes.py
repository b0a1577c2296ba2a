"""What was written to an index that ccheck did not make, oldest first, by the sequence numbers of its shards.

Every write to a shard, a removal too, has the next number. A document has that of its last write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from .client import Client
from .errors import WHOLE, Denied, refuse_parts
from .reading import pages
from .schema import Index

AT_ONCE = 1_000
"""How many documents are read by one request."""
KEEP_ALIVE = "1h"
"""How long the server keeps a point in time between two pages: a batch is embedded meanwhile."""
NEVER = -1
"""The number before the first."""

Checkpoints = Mapping[str, int]
"""By `Shard.key`, up to which number everything was dealt with."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of an index. All its copies have the writes up to `last`, so none of them can be lost any more."""

    index: str
    uuid: str
    number: int
    last: int

    @property
    def key(self) -> str:
        """Identifies it among those of all indices that ever had this name."""
        return f"{self.uuid}/{self.number}"


@dataclass(frozen=True, slots=True)
class Written:
    """A document as it was last written. `source` is None where the index does not keep it."""

    index: str
    id: str
    source: Mapping[str, Any] | None
    number: int
    term: int
    routing: str | None = None


def shards(client: Client, index: Index, *, refresh: bool = True) -> list[Shard] | None:
    """The index's shards; None where the key or user may not ask for them.

    Without `refresh`, searches may not see the last writes yet.
    """
    path = f"/{quote(','.join(index.concrete), safe=',')}"
    try:
        answer = client.request("GET", f"{path}/_stats/docs", params={"level": "shards"}, index=index.name)
        if refresh:
            client.request("POST", f"{path}/_refresh", index=index.name, slow=True)
    except Denied:
        return None
    found: list[Shard] = []
    with client.understanding():
        for concrete, one in sorted(answer["indices"].items()):
            for number, copies in one["shards"].items():
                primary = next((copy for copy in copies if copy["routing"]["primary"]), None)
                if primary is None:
                    return None
                found.append(Shard(concrete, one["uuid"], int(number), int(primary["seq_no"]["global_checkpoint"])))
    return found


def written_since(client: Client, shard: Shard, after: int, source: Any) -> Iterator[list[Written]]:
    """The documents of a shard whose last write came later, in the order of their writes, a page at a time.

    Each page shows the shard as it is then: what is written meanwhile comes at the end, once.
    """
    body: dict[str, Any] = {"size": AT_ONCE, "sort": [{"_seq_no": "asc"}], **_read(source)}
    params = {"preference": f"_shards:{shard.number}"} | WHOLE
    path = f"/{quote(shard.index, safe='')}/_search"
    while True:
        body["query"] = {"range": {"_seq_no": {"gt": after}}}
        answer = client.request("POST", path, body, params=params, index=shard.index, slow=True)
        refuse_parts(answer, client.connection, shard.index)
        found = _written(answer.get("hits", {}).get("hits", ()))
        if not found:
            return
        yield found
        after = found[-1].number


def all_written(client: Client, name: str, source: Any) -> Iterator[list[Written]]:
    """Every document at one point in time, a page at a time, in no order."""
    found = pages(client, name, {"size": AT_ONCE, **_read(source)}, KEEP_ALIVE)
    with contextlib.closing(found):
        for hits in found:
            yield _written(hits)


def behind(shards: Sequence[Shard] | None, checkpoints: Checkpoints) -> int | None:
    """How many writes came after these checkpoints; None where that is unknown."""
    if shards is None or any(shard.key not in checkpoints for shard in shards):
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
