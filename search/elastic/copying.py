"""Copying one index of ccheck's into another while others write to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from ...core.errors import InvalidData
from . import bulk, changes
from .bound import Bound, Lost
from .changes import Checkpoints, Written
from .client import Client

Operations: TypeAlias = Callable[[Sequence[Written]], Iterable[bulk.Operation]]
"""Makes the operations that write some documents to the other index."""

_WITH_VECTORS: tuple[Any, ...] = ({"exclude_vectors": False}, True)
"""From 9.2 on vectors are kept beside `_source` and come on request; before, a server does not know the request."""


def copy_changes(
    client: Client,
    source: Bound,
    target: Bound,
    copied: Checkpoints,
    operations: Operations,
    on_copied: Callable[[Checkpoints, int], None],
    with_vectors: bool = True,
) -> tuple[dict[str, int], bool]:
    """Copy what was written to `source` since `copied`. Returns up to where, and whether writes were still under way.

    `on_copied` hears of each step, with the number of documents. Raises InvalidData for a document that the other index
    refuses, Lost if one of the indices is gone, and ServerError.
    """
    done, found = dict(copied), changes.shards(client, [source.index])
    if any(shard.uuid != source.uuid for shard in found):
        raise Lost(f"the index {source.index} is not there any more, another one has its name")
    read = all_of_source(client, source.index) if with_vectors else True
    for shard in found:
        for upto, written in changes.written_since(
            client, shard, done.get(shard.key, changes.NEVER), read, source.name
        ):
            if written:
                write(client, target, operations(written))
            done[shard.key] = upto
            on_copied(done, len(written))
    return done, any(shard.newest > shard.last for shard in found)


def write(client: Client, target: Bound, operations: Iterable[bulk.Operation]) -> bulk.Outcome:
    """Raises InvalidData if a document is refused: a copy must have every one."""
    outcome = bulk.write(client, target, operations)
    if outcome.refused:
        id_, reason = next(iter(outcome.refused.items()))
        more = f", and {len(outcome.refused) - 1:,} more" if len(outcome.refused) > 1 else ""
        raise InvalidData(f"{target.index} refuses the document {id_!r}{more}: {reason}")
    return outcome


def as_stored(written: Sequence[Written]) -> Iterator[bulk.Operation]:
    """The same documents, with the vectors that they have."""
    for one in written:
        action = {"_id": one.id} | ({"routing": one.routing} if one.routing is not None else {})
        yield bulk.operation(one.id, {"index": action}, one.source)


def all_of_source(client: Client, index: str) -> Any:
    """Returns the `_source` option with which this server sends the vectors too."""
    newer, older = _WITH_VECTORS
    try:
        client.search(index, {"size": 0, "_source": newer})
    except InvalidData:
        return older
    return newer
