"""Writes many documents in parallel requests, sized by bytes. Only what failed is sent again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

import orjson
from elastic_transport import ApiError, TransportError
from more_itertools import constrained_batches

from ...core.analysis import terms_text
from ...core.errors import InvalidData, NotFound
from ...core.layout import Layout, analysis_key
from ...core.pump import Pump
from ...core.types import Entry, UnitEntry
from . import bound, mappings, ownership
from .bound import Bound, Lost, still
from .client import Client, path_of
from .errors import Busy, WriteBlocked, from_response, is_type, may_pass, reason_of, translate
from .fields import Index
from .mappings import ADDITIONAL, ID, SPARSE, TERMS, UNITS

if TYPE_CHECKING:
    from .store import ElasticStore

CHUNK_BYTES = 5 << 20
CHUNK_DOCUMENTS = 500
MAX_ID_BYTES = 512
"""Elasticsearch's own limit."""
WANTED = "items.*.status,items.*.result,items.*.error"
"""The parts of an answer that are read (`filter_path`)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One document's lines of a bulk request."""

    id: str
    lines: bytes


@dataclass(slots=True)
class Outcome:
    """The outcome of operations: how many had which result (created, updated, deleted, not_found), and the refused."""

    results: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        self.results.update(other.results)
        self.refused |= other.refused


def write(
    client: Client,
    into: Bound,
    operations: Iterable[Operation],
    before: Callable[[], object] = lambda: None,
    total: Outcome | None = None,
) -> Outcome:
    """Send all operations to this index; done when each is stored or refused. `before` is called ahead of each request.

    `total` is what the outcome is added to, also where an error ends it all. Operations must bear being done twice: a
    request whose answer was lost is sent again. Raises Lost if the index is gone; another CcheckError where the server
    is gone for longer than `Connection.retry_seconds`, or refuses for a reason that concerns no document.
    """
    total = total if total is not None else Outcome()
    threads = -(-client.connection.concurrency // 2)  # a store may write twice at a time
    outcomes: list[Outcome] = []
    try:
        with (
            client.stopping() as stopped,
            Pump[Outcome, None](
                "ccheck-bulk", threads, lambda outcome, wrote: None, lambda error: stopped.set()
            ) as pump,
        ):
            for chunk in constrained_batches(
                operations, CHUNK_BYTES, CHUNK_DOCUMENTS, lambda one: len(one.lines), strict=False
            ):
                outcomes.append(Outcome())
                send = partial(_send, client, into, stopped, before, chunk, outcomes[-1])
                pump.put(outcomes[-1], send, 2 * threads - 1)
    finally:
        for outcome in outcomes:
            total.add(outcome)
    return total


def index_operation(entry: Entry, layout: Layout, *, whole: bool = True) -> Operation:
    """The document with all that was made of it; not `whole`: only what was made of it, for a companion.

    Raises InvalidData for a document that no index takes, and what an analysis of the layout raises.
    """
    document = entry.document
    length = len(document.id.encode("utf-8", "surrogatepass"))
    if not 0 < length <= MAX_ID_BYTES:
        raise InvalidData(f"its id has {length} bytes; Elasticsearch takes 1 to {MAX_ID_BYTES}")
    source: dict[str, Any] = {ID: document.id, "digest": entry.digest}
    if whole:
        source |= {"title": document.title, "text": document.text, "metadata": dict(document.metadata)}
    if whole and document.published is not None:
        source["published"] = document.published
    if whole and document.pages:
        source["pages"] = list(document.pages)
    for name, cut in layout.units.items():
        if cut.embedding is not None and any(one.vector is None for one in entry.units.get(name, ())):
            raise InvalidData(f"its units {name!r} have no vectors, but the index stores vectors for them")
    if entry.additional:
        source[ADDITIONAL] = list(entry.additional)
    if layout.analyses:
        source[TERMS] = {
            analysis_key(analysis): terms_text(analysis, document.title, document.text) for analysis in layout.analyses
        }
    for name, passages in entry.passages.items():
        if passages:
            source[name] = [{"start": one.start, "end": one.end, "vector": one.vector} for one in passages]
    if entry.sparse is not None and len(entry.sparse.ids):
        source[SPARSE] = dict(zip(map(str, entry.sparse.ids.tolist()), entry.sparse.weights, strict=True))
    if units := {name: list(map(_unit, some)) for name, some in entry.units.items() if some}:
        source[UNITS] = units
    try:
        return operation(document.id, {"index": {"_id": document.id}}, source)
    except orjson.JSONEncodeError as error:
        raise InvalidData(f"it can't be written as JSON: {error}") from error


def operation(id_: str, *lines: Mapping[str, Any] | None) -> Operation:
    """The lines of one document, which may have arrays. Raises orjson.JSONEncodeError."""
    # Only contiguous arrays are written as they are.
    written = (orjson.dumps(one, methodcaller("tolist"), orjson.OPT_SERIALIZE_NUMPY) for one in lines)
    return Operation(id_, b"".join(b"%b\n" % line for line in written))


def delete_operation(id_: str) -> Operation:
    return operation(id_, {"delete": {"_id": id_}})


def _unit(entry: UnitEntry) -> dict[str, Any]:
    unit = entry.unit
    said = {"number": unit.number, "start": unit.start, "end": unit.end, "content": unit.text}
    return said if entry.vector is None else said | {"vector": entry.vector}


def _send(
    client: Client,
    into: Bound,
    stopped: threading.Event,
    before: Callable[[], object],
    operations: Sequence[Operation],
    outcome: Outcome,
) -> None:
    """Send one request, and again what of it failed, until each operation is done."""
    left = list(operations)
    path, params = path_of(into.name, "_bulk"), {"filter_path": WANTED, **into.bulk}

    def attempt() -> None:
        nonlocal left
        with client.writing:
            before()
            if not into.guarded:
                still(client, into)
            answer = client.send("POST", path, b"".join(operation.lines for operation in left), params)
            if not into.guarded:
                _refuse_other(client, into, len(left))
        sent = len(left)
        left, busy = _settle(answer["items"], left, outcome, client, into.index)
        if busy is not None:
            raise Busy(busy.status, busy.body, others=len(left) < sent)

    try:
        client.again(path, attempt, stopped, slow=True)
    except (ApiError, TransportError, Busy) as error:
        if isinstance(error, ApiError) and error.meta.status == 413:
            if len(left) == 1:
                outcome.refused[left[0].id] = f"its {len(left[0].lines):,} bytes are more than the server takes at once"
                return
            for half in (left[: len(left) // 2], left[len(left) // 2 :]):
                _send(client, into, stopped, before, half, outcome)
        elif isinstance(error, ApiError) and is_type(error.body, "index_not_found_exception"):
            raise Lost(f"the index {into.index} is not there any more") from error
        else:
            raise translate(error, client.connection, into.index) from error


def _refuse_other(client: Client, into: Bound, sent: int) -> None:
    """After a request to an index by its name. Raises Lost where another index may have got it."""
    try:
        still(client, into)
    except Lost as error:
        raise Lost(f"{error}: the last request, with {sent:,} documents, may have gone to that one") from error


def _settle(
    items: Sequence[Mapping[str, Any]], sent: Sequence[Operation], outcome: Outcome, client: Client, index: str
) -> tuple[list[Operation], Busy | None]:
    """Sort an answer's items into `outcome`. Returns the operations to send again, with the reason of one."""
    again: list[Operation] = []
    busy: Busy | None = None
    for operation, item in zip(sent, items, strict=True):
        (answer,) = item.values()
        status, error = answer["status"], answer.get("error")
        if error is None:
            outcome.results[answer["result"]] += 1
        elif may_pass(status, error):
            again.append(operation)
            busy = Busy(status, error)
        elif status in (400, 409) or is_type(error, "document_missing_exception"):
            # The last two: somebody else wrote or removed it since its update was made.
            outcome.refused[operation.id] = ": ".join(filter(None, reason_of(error)))
        elif is_type(error, "index_not_found_exception"):
            raise Lost(f"the index {index} is not there any more")
        else:
            raise from_response(status, error, client.connection, index)
    return again, busy


# -- writing to a store: to the one index that was checked, and after `ccheck index migrate` to its copy

MOVE = "ccheck_move"
"""The key under a mapping's `_meta`, beside what ccheck remembers of its fields."""
LEASE_SECONDS = 5.0
"""For how long a writer may believe that an alias has not moved. After that, it looks again before it writes."""
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
                    self._refuse_moved(index, _meta_of(one), self.bound)
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
        there = _meta_of(next(iter(described.values())))
        self.request("PUT", "_mapping", {**(fields or {}), "_meta": {**there, mappings.OURS: dict(meta)}})

    def write(self, operations: Callable[[Index], Iterable[Operation]]) -> Outcome:
        """Write the operations, after the end of a migration that is under way. Raises what `write` raises."""
        since, total = time.monotonic(), Outcome()
        while True:
            index, into, outcome = self.index(), self.bound, Outcome()
            assert into is not None
            try:
                before = partial(self._refuse_elsewhere, into)
                write(self._client, into, operations(index), before, outcome)
            except _Elsewhere:
                continue
            except Lost as error:
                self._find_again(into, error)
            except WriteBlocked as error:
                # Not if `ccheck index migrate` copies the index, or has made it.
                if not any(MOVE in _meta_of(one) for one in self._store._looked(fresh=True)[1].values()):
                    raise
                if time.monotonic() - since > self._client.connection.retry_seconds or self._client.abandoned.is_set():
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
            self.bound = bound.bind(self._client, replace(there, name=there.index))


class _Elsewhere(Exception):
    """The store is another index by now."""


def _meta_of(one: Mapping[str, Any]) -> Mapping[str, Any]:
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
