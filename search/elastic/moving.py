"""Moving a store's alias from one numbered index to another, without a pause for searches.

A copy remembers in its mapping's `_meta` from which index it is filled and how far it has come. That is also how the
way back works: when the alias has gone, the index that it left remembers how much of the new one it has.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote

from ...core.errors import InvalidData, NotFound, UsageError
from ...core.layout import Layout
from ...core.profiles import StoreProfile
from ...core.pump import Pump
from . import bound, bulk, mappings, reading
from .bound import Bound
from .bulk import LEASE_SECONDS, MOVE
from .client import Client
from .fields import Index
from .found import read_index, sampled
from .reading import Written

AHEAD = 2
"""How many batches may wait for the server while the next one is made."""
LAST_ROUNDS = 100
Operations: TypeAlias = Callable[[Sequence[Written]], Iterable[bulk.Operation]]
"""Makes the operations that write some documents to the other index."""
_OPTIONS = {one.name for one in fields(mappings.IndexOptions)}
_NUMBERED = re.compile(r"(.+)-(\d{6,})")


@dataclass(frozen=True, slots=True)
class Numbered:
    """One index of a store: its name, whether the alias is there, and from which index it is filled."""

    name: str
    one: Bound
    index: Index
    in_use: bool
    filled_from: str | None = None
    copied: Mapping[str, int] = field(default_factory=dict)
    left: bool = False
    """The alias was here before it went to `filled_from`."""
    wanted: mappings.IndexOptions = field(default_factory=mappings.IndexOptions)
    """The options that were asked for when the index was made as a copy."""


def numbered(client: Client, alias: str) -> list[Numbered]:
    """The indices of a store that ccheck made, by number: ALIAS-000001, …, whether the alias is there or not."""
    path = f"/{quote(alias, safe='')}-*,{quote(alias, safe='')}"
    answer = client.request("GET", path, params={"ignore_unavailable": True, "allow_no_indices": True}, index=alias)
    found = []
    with client.understanding():
        for name, one in sorted(answer.items()):
            in_use = alias in one.get("aliases", {}) or name == alias
            match = _NUMBERED.fullmatch(name)
            meta = one.get("mappings", {}).get("_meta", {})
            ours = isinstance(meta.get(mappings.OURS), dict) and "format" in meta[mappings.OURS]
            if not ours or not (in_use or (match is not None and match[1] == alias)):
                continue
            where = f"{client.connection.url}/{name}"
            index = read_index({name: one}, StoreProfile(), where, partial(sampled, client, name))
            found.append(Numbered(name, bound.found(name, one), index, in_use))
            move = meta.get(MOVE)
            if isinstance(move, dict) and move.get("alias") == alias:
                # Another version of ccheck may have made the copy, with options of its own.
                wanted = {key: value for key, value in move.get("wanted", {}).items() if key in _OPTIONS}
                found[-1] = replace(
                    found[-1],
                    filled_from=str(move["from"]),
                    copied={str(key): int(at) for key, at in move["copied"].items()},
                    left=bool(move.get("left")),
                    wanted=mappings.IndexOptions(**wanted),
                )
    return found


def in_use(client: Client, alias: str) -> Numbered:
    """The index that the alias is on. Raises NotFound without one, InvalidData if there are several, or no alias."""
    where = f"{client.connection.url}/{alias}"
    found = [one for one in numbered(client, alias) if one.in_use]
    if not found:
        raise NotFound(f"there is no store {where} that ccheck made. Name an alias that ccheck ingest created")
    if len(found) > 1:
        raise InvalidData(
            f"{where} stands for {len(found)} indices ({', '.join(one.name for one in found)}). A rollover adds an "
            "index, for example. Remove the others from the alias (POST _aliases)"
        )
    if found[0].name == alias:
        raise UsageError(
            f"{where} is an index, not an alias, so nothing can be put in its place. Name its alias with --store"
        )
    return found[0]


def next_name(client: Client, alias: str) -> str:
    """The first number that no index has had since."""
    answer = client.request("GET", f"/{quote(alias, safe='')}-*/_settings/index.uuid", index=alias)
    numbers = [int(match[2]) for name in answer if (match := _NUMBERED.fullmatch(name)) and match[1] == alias]
    return f"{alias}-{max(numbers, default=0) + 1:06d}"


def create(client: Client, alias: str, layout: Layout, options: mappings.IndexOptions) -> str:
    """Make the first index of a store behind its alias. Returns its name; raises AlreadyExists."""
    name = next_name(client, alias)
    client.on_index("PUT", name, "", mappings.create_body(name, alias, layout, options))
    return name


def begin(client: Client, alias: str, source: Numbered, layout: Layout, options: mappings.IndexOptions) -> Numbered:
    """An empty index beside the alias, that remembers what it is a copy of."""
    name = next_name(client, alias)
    body = mappings.create_body(name, None, layout, options)
    body["mappings"]["_meta"][MOVE] = {"alias": alias, "from": source.name, "copied": {}, "wanted": asdict(options)}
    client.on_index("PUT", name, "", body)
    made = next((one for one in numbered(client, alias) if one.name == name), None)
    if made is None or made.filled_from != source.name:
        raise bound.Lost(f"the index {name} is not there any more, although ccheck just made it")
    return made


class Move:
    """From `source`, which the alias is on, to `target`. Every step can be made again after a crash."""

    def __init__(self, client: Client, alias: str, source: Numbered, target: Numbered) -> None:
        """Raises InvalidData if the target was filled from another index, or one of them is gone."""
        self._client, self.alias, self.source, self.target = client, alias, source, target
        self._from, self._to = bound.bind(client, source.one), bound.bind(client, target.one)
        # Documents are copied with their vectors, unless the other index has others.
        self._as_stored = source.index.layout == target.index.layout
        self._copied = dict(target.copied)
        if target.filled_from != source.name:
            raise InvalidData(
                f"{target.name} was filled from {target.filled_from or 'no index'}, but the alias {alias} is on "
                f"{source.name}. {self._again}"
            )

    @property
    def _again(self) -> str:
        return f"Delete {self.target.name} (ccheck index delete --store {self.target.index.name}), then migrate again"

    def catch_up(self, operations: Operations, on_documents: Callable[[int], None]) -> None:
        """Copy all that was written to the source since the last time, and remember how far that is.

        Raises InvalidData for a document that the other index refuses, and Lost if one of the indices is gone.
        """
        _block(self._client, self._to, False)
        self._copy(operations, on_documents)
        self._remember()

    def remove_surplus(self) -> int:
        """Remove what was removed from the source meanwhile."""
        before, after = self.counts()
        if after <= before:
            return 0
        surplus = reading.lacking(self._client, self.target.name, self.source.name)
        return self._write(bulk.delete_operation(id_) for ids in surplus for id_ in ids)["deleted"]

    def counts(self) -> tuple[int, int]:
        """The documents of both, as searches see them now."""
        reading.shards(self._client, [self.source.name, self.target.name])  # refreshes
        return self._client.count(self.source.name), self._client.count(self.target.name)

    def switch(self, operations: Operations, on_documents: Callable[[int], None]) -> None:
        """Stop writes, copy the last of them, compare the counts, and put the alias on the target in one step.

        Writes are refused meanwhile; ccheck's own ingests wait. If the layout changes, writes to the target are
        refused for `2 * LEASE_SECONDS` more, so that no ingest writes vectors of the old model to it. Searches go
        on all the while. If anything fails before the alias moves, the source takes writes again.
        """
        client, source, target = self._client, self.source.name, self.target.name
        current = in_use(client, self.alias)
        if current.name != source or current.index.layout != self.source.index.layout:
            raise InvalidData(
                f"the store {self.alias} changed while it was copied: its index is {current.name}, made with "
                f"{current.index.layout.describe()}. {self._again}"
            )
        moved = False
        # Whoever writes to the source then waits for the end of the move.
        _remember(client, self._from, {"alias": self.alias, "from": target, "copied": {}, "left": False})
        _block(client, self._from, True)
        try:
            for _ in range(LAST_ROUNDS):
                if not self._copy(operations, on_documents):
                    break
            self.remove_surplus()
            before, after = self.counts()
            if before != after:
                raise InvalidData(
                    f"{source} has {before:,} documents, but its copy {target} has {after:,}: the alias stays where it "
                    f"is. {self._again}"
                )
            has = {shard.key: shard.last for shard in reading.shards(client, [target])}
            # Before the alias goes, so that the way back is known whenever it has gone.
            _remember(client, self._from, {"alias": self.alias, "from": target, "copied": has, "left": True})
            if not self._as_stored:
                _block(client, self._to, True)
            actions = [
                *self._from.required,
                *self._to.required,
                {"remove": {"index": source, "alias": self.alias, "must_exist": True}},
                {"add": {"index": target, "alias": self.alias, "is_write_index": True}},
            ]
            client.request("POST", "/_aliases", {"actions": actions}, index=self.alias)
            moved = True
        finally:
            if not moved:
                _block(client, self._from, False)
                _block(client, self._to, False)
        if not self._as_stored:
            time.sleep(2 * LEASE_SECONDS)
            _block(client, self._to, False)

    def _copy(self, operations: Operations, on_documents: Callable[[int], None]) -> bool:
        """Copy what was written to the source since the last time. Returns whether writes were still under way."""
        found = reading.shards(self._client, [self.source.name])
        if any(shard.uuid != self._from.uuid for shard in found):
            raise bound.Lost(f"the index {self.source.name} is not there any more, another one has its name")
        read = self._with_vectors() if self._as_stored else True

        def settled(batch: tuple[str, int, int], wrote: object) -> None:
            key, upto, documents = batch
            self._copied[key] = upto
            on_documents(documents)

        with Pump("ccheck-migrate", 1, settled, self._abandon, self._remember) as pump:
            for shard in found:
                since = self._copied.get(shard.key, reading.NEVER)
                for upto, written in reading.written_since(self._client, shard, since, read, self._from.name):
                    made = list(operations(written)) if written else []
                    pump.put((shard.key, upto, len(written)), partial(self._write, made), AHEAD - 1)
        return any(shard.newest > shard.last for shard in found)

    def _abandon(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._client.abandon()

    def _with_vectors(self) -> Any:
        """Returns the `_source` option with which this server sends the vectors too.

        From 9.2 on vectors are kept beside `_source` and come on request; before, a server does not know the request.
        """
        try:
            self._client.search(self.source.name, {"size": 0, "_source": {"exclude_vectors": False}})
        except InvalidData:
            return True
        return {"exclude_vectors": False}

    def _write(self, operations: Iterable[bulk.Operation]) -> Counter[str]:
        """Raises InvalidData if a document is refused: a copy must have every one."""
        outcome = bulk.write(self._client, self._to, operations)
        if outcome.refused:
            id_, reason = next(iter(outcome.refused.items()))
            more = f", and {len(outcome.refused) - 1:,} more" if len(outcome.refused) > 1 else ""
            raise InvalidData(f"{self.target.name} refuses the document {id_!r}{more}: {reason}")
        return outcome.results

    def _remember(self) -> None:
        move = {"alias": self.alias, "from": self.source.name, "copied": self._copied, "left": False}
        _remember(self._client, self._to, move)


def as_stored(written: Sequence[Written]) -> Iterator[bulk.Operation]:
    """The same documents, with the vectors that they have."""
    for one in written:
        action = {"_id": one.id} | ({"routing": one.routing} if one.routing is not None else {})
        yield bulk.operation(one.id, {"index": action}, one.source)


def unfinished(client: Client, alias: str, source: Numbered) -> Numbered | None:
    """The copy that a migration from this source began and did not finish."""
    return next(iter(_filled_from(client, alias, source, left=False)), None)


def former(client: Client, alias: str, current: Numbered) -> Numbered:
    """The index that the alias was on before. Raises NotFound."""
    if not (found := _filled_from(client, alias, current, left=True)):
        raise NotFound(
            f"no index is left that {client.connection.url}/{alias} could go back to: {current.name} was not made by "
            "ccheck index migrate, or the index before it was deleted"
        )
    return found[-1]


def _filled_from(client: Client, alias: str, source: Numbered, *, left: bool) -> list[Numbered]:
    found = numbered(client, alias)
    return [one for one in found if one.filled_from == source.name and one.left == left and not one.in_use]


def release(client: Client, one: Numbered) -> None:
    """Let an index take writes again, after a migration was ended in the middle."""
    _block(client, bound.bind(client, one.one), False)


def _remember(client: Client, one: Bound, move: Mapping[str, Any]) -> None:
    meta = bound.request(client, one, "GET", "_mapping")[one.index]["mappings"].get("_meta", {})
    bound.request(client, one, "PUT", "_mapping", {"_meta": {**meta, MOVE: {**meta.get(MOVE, {}), **move}}})


def _block(client: Client, one: Bound, blocked: bool) -> None:
    """Refuse writes to an index, or take them again. Returns when no write is under way any more."""
    if blocked:
        bound.request(client, one, "PUT", "_block/write", slow=True)
    else:
        bound.request(client, one, "PUT", "_settings", {"index.blocks.write": None})


def role(one: Numbered) -> str:
    """Describes the role of an index in its store."""
    if one.in_use:
        return "in use"
    if one.left:
        return f"the one before {one.filled_from}; ccheck index revert returns to it"
    if one.filled_from is not None:
        return f"an unfinished copy of {one.filled_from}; run ccheck index migrate again to finish it"
    return "not in use"
