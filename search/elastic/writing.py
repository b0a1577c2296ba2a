"""Writing to a store: to the one index that was checked, and after `ccheck index migrate` to its copy."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import InvalidData, NotFound
from ...core.layout import Layout
from . import bound, bulk, mappings, ownership
from .bound import Bound, Lost
from .client import Client
from .errors import WriteBlocked
from .fields import Index
from .moving import LEASE_SECONDS, MOVE

if TYPE_CHECKING:
    from .store import ElasticStore

BLOCKED_SECONDS: Final = 0.5
"""How long a write waits for the end of a migration before it tries again."""


class Writer:
    """What is written to a store from `ElasticStore.prepare` on, or without it from the first write on.

    Safe to use from several threads.
    """

    def __init__(self, store: ElasticStore, layout: Layout | None = None) -> None:
        """Asks the server nothing yet. `layout` is what the documents are made for."""
        self._store, self._client, self._layout = store, store.client, layout
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        """How many documents were written to or removed from each index."""
        self.bound: Bound | None = None
        """The index that is written to."""

    def index(self, fresh: bool = False) -> Index:
        """The store's index, which `bound` writes to. Raises InvalidData if the name went to another one."""
        ownership.refuse_several(self._store.index)
        with self._lock:
            try:
                index, described = self._store._looked(fresh, within=LEASE_SECONDS)
                if not index.made_here:
                    raise ownership.foreign(self._store.name)
            except (NotFound, InvalidData) as error:
                if self.bound is None:
                    raise
                raise InvalidData(f"{error}. {self._tally()}") from error
            ((name, one),) = described.items()
            now = bound.found(name, one)
            if self.bound is None or (now.index, now.uuid) != (self.bound.index, self.bound.uuid):
                if self.bound is not None:
                    self._refuse_moved(index, _meta(one), self.bound)
                self.bound = bound.bind(self._client, now)
        return index

    def request(self, method: str, action: str, body: Mapping[str, Any] | None = None, **how: Any) -> dict[str, Any]:
        """A request to the index that is written to. Raises Lost if that is gone."""
        assert self.bound is not None
        try:
            return bound.request(self._client, self.bound, method, action, body, **how)
        except Lost as error:
            raise Lost(f"{error}. {self._tally()}") from error

    def remember(self, meta: Mapping[str, Any], fields: Mapping[str, Any] | None = None) -> None:
        """Write what ccheck keeps in the mapping's `_meta`, and new fields."""
        # What a migration remembers there stays.
        _, described = self._store._looked()
        there = _meta(next(iter(described.values())))
        self.request("PUT", "_mapping", {**(fields or {}), "_meta": {**there, mappings.OURS: dict(meta)}})

    def write(self, operations: Callable[[Index], Iterable[bulk.Operation]]) -> bulk.Outcome:
        """Write the operations, after the end of a migration that is under way. Raises what `bulk.write` raises."""
        since, total = time.monotonic(), bulk.Outcome()
        while True:
            index, into, outcome = self.index(), self.bound, bulk.Outcome()
            assert into is not None
            try:
                before = functools.partial(self._refuse_elsewhere, into)
                bulk.write(self._client, into, operations(index), before, outcome)
            except _Elsewhere:
                continue
            except Lost as error:
                self._find_again(into, error)
            except WriteBlocked as error:
                if not self._in_a_move():
                    raise
                if time.monotonic() - since > self._client.connection.retry_seconds or self._client.abandoned:
                    raise WriteBlocked(
                        f"{self._store.name} does not accept changes: ccheck index migrate blocked them, and has not "
                        f"ended. If it runs no more, run it again with the same options. {self._tally()}"
                    ) from error
                time.sleep(BLOCKED_SECONDS)
            else:
                return total
            finally:
                total.add(outcome)
                with self._lock:
                    done = sum(count for result, count in outcome.results.items() if result != "not_found")
                    self._counts[into.index] += done

    def _refuse_moved(self, index: Index, meta: Mapping[str, Any], before: Bound) -> None:
        """Raise InvalidData unless the index is a copy of the one before, which `ccheck index migrate` finished."""
        (now,) = index.concrete
        if meta.get(MOVE, {}).get("from") != before.index or not _takes_no_writes(self._client, before):
            another = "another index with the name " if now == before.index else ""
            raise InvalidData(
                f"{self._store.name} now stands for {another}{now}. {self._tally()}. Find out who moved it. To "
                f"write to {now}, run the same command again"
            )
        if self._layout is not None:
            index.layout.check(self._layout, self._store.name)

    def _tally(self) -> str:
        """How much of what was written is in which index."""
        counts = ({self.bound.index: 0} if self.bound is not None else {}) | self._counts
        said = " and ".join(f"{count:,} in {index}" for index, count in counts.items())
        return f"{said} were written or removed, and none elsewhere"

    def _refuse_elsewhere(self, into: Bound) -> None:
        """Raise _Elsewhere if the store is another index by now, or is written to by another name."""
        self.index()
        if self.bound != into:
            raise _Elsewhere

    def _find_again(self, into: Bound, error: Lost) -> None:
        """Bind the index again if only its own alias was removed. If it is gone, raises Lost with what went where."""
        with self._lock:
            try:
                there = bound.found(into.index, bound.described(self._client, into.index)[into.index])
            except (NotFound, KeyError):
                there = None
            if there is None or there.uuid != into.uuid or not into.guarded:
                gone = f"What was in {into.index} is gone with it. Run the same command again"
                raise Lost(f"{error}. {self._tally()}. {gone}") from error
            self.bound = bound.bind(self._client, dataclasses.replace(there, name=there.index))

    def _in_a_move(self) -> bool:
        """Whether the index is one that `ccheck index migrate` copies, or has made."""
        _, described = self._store._looked(fresh=True)
        return any(MOVE in _meta(one) for one in described.values())


class _Elsewhere(Exception):
    """The store is another index by now."""


def _meta(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `_meta` of an index's mapping."""
    meta: Mapping[str, Any] = one.get("mappings", {}).get("_meta", {})
    return meta


def _takes_no_writes(client: Client, one: Bound) -> bool:
    """Whether the index is there and refuses writes."""
    try:
        found = bound.described(client, one.name)[one.index]
    except (NotFound, KeyError):
        return False
    blocks = found.get("settings", {}).get("index", {}).get("blocks", {})
    return bound.uuid_of(found) == one.uuid and str(blocks.get("write")).lower() == "true"
