"""Finds what else uses a store's index on the server: aliases with conditions, other aliases, data streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ...core.errors import CcheckError, InvalidData, UsageError
from . import bound
from .bound import Bound, is_own
from .client import Client
from .fields import Index
from .reading import figures

_HARMFUL = {"rollover", "delete", "shrink", "searchable_snapshot", "downsample"}
"""Actions of a life cycle policy after which the index is another one, or none."""
RECORD = "ccheck_checks"
"""What the mapping's `_meta` has if the index is a record of checks."""
_CONDITIONS = {"filter": "a filter", "index_routing": "a routing", "search_routing": "a routing"}


@dataclass(frozen=True, slots=True)
class Removal:
    """The things that removing a store deletes: its indices with all documents, and an alias that no other has."""

    one: Bound
    alias: str | None
    documents: int
    bytes: int | None
    kept: tuple[Removal, ...] = ()
    """The store's other indices: from before a migration, or of one that was not finished."""

    @property
    def all(self) -> list[Bound]:
        return [self.one, *(removal.one for removal in self.kept)]

    def __str__(self) -> str:
        size = f" ({self.bytes / 1e6:,.1f} MB)" if self.bytes is not None else ""
        alias = f" and its alias {self.alias}" if self.alias else ""
        return "; ".join(
            [f"the index {self.one.index} with {self.documents:,} documents{size}{alias}", *map(str, self.kept)]
        )


def refuse_several(name: str) -> None:
    """Raise UsageError for a name that can stand for several indices, which can only be searched."""
    if "," in name or "*" in name:
        raise UsageError(
            f"{name!r} can stand for several indices, which ccheck only searches. To write or remove, name "
            "one index with --store"
        )


def foreign(store: str) -> InvalidData:
    """The error of who writes to an index that ccheck did not make."""
    return InvalidData(
        f"ccheck did not make {store} and only searches it. To ingest, name another index with --store. ccheck "
        "then creates it"
    )


def refuse_writing(client: Client, name: str, index: Index, described: Mapping[str, Any]) -> None:
    """Raise InvalidData where what is written by this name would not reach the whole of one index, and it alone.

    `described` is what the server says of each index behind the name, as in all that follows.
    """
    for concrete, found in described.items():
        _refuse_data_stream(index, concrete, found, "write to")
        if problem := policy_problem(client, concrete, found):
            raise InvalidData(problem)
        _refuse_conditions(index, name, concrete, found, "to write")
        if found.get("aliases", {}).get(name, {}).get("is_write_index") is False:
            raise InvalidData(
                f"the alias {index.name} does not take writes: is_write_index is false for {concrete}. "
                "Set it to true (POST _aliases), then run the same command again"
            )


def policy_problem(client: Client, concrete: str, found: Mapping[str, Any]) -> str | None:
    """Says what is wrong with an index's life cycle policy, and what to do; None if the policy may stay.

    `found` is what `GET /INDEX` answered. A policy that makes a new index, or removes or replaces this one, takes the
    store apart: searches would see a part of the documents, or none.
    """
    lifecycle = found.get("settings", {}).get("index", {}).get("lifecycle", {})
    policy = lifecycle.get("name")
    if not policy:
        return None
    remove = f"Remove the policy (POST {concrete}/_ilm/remove), also from the index template that attached it"
    try:
        answer = client.request("GET", f"/_ilm/policy/{quote(str(policy), safe='')}", patient=False)
        phases = answer[policy]["policy"]["phases"].values()
        actions = {action for phase in phases for action in phase.get("actions", {})}
    except (CcheckError, KeyError, TypeError, AttributeError):
        return (
            f"the index {concrete} has the ILM policy {policy}, which this key or user can't read. A policy that rolls "
            f"over or deletes would break the store. {remove}, or grant the cluster privilege read_ilm"
        )
    if str(lifecycle.get("indexing_complete")).lower() == "true":
        actions -= {"rollover"}
    harmful = sorted(actions & _HARMFUL)
    if not harmful:
        return None
    return (
        f"the index {concrete} has the ILM policy {policy} with {' and '.join(harmful)}, which would break the store: "
        f"a store is one index. {remove}, or use a policy without it"
    )


def removal(client: Client, name: str, index: Index, described: Mapping[str, Any]) -> Removal:
    """Returns what removing the store would delete. Raises InvalidData if somebody else uses any of it."""
    if not index.made_here and any(RECORD not in one["mappings"].get("_meta", {}) for one in described.values()):
        raise InvalidData(f"{index.name} was not made by ccheck. ccheck removes only what it made")
    ((concrete, found),) = described.items()
    _refuse_data_stream(index, concrete, found, "remove")
    _refuse_conditions(index, name, concrete, found, "to remove")
    others = sorted(one for one in found.get("aliases", {}) if one != name and not is_own(one))
    if others:
        raise InvalidData(
            f"the index {concrete} is also used by the alias{'es' if len(others) > 1 else ''} {', '.join(others)}. "
            "ccheck does not remove an index that others use. Remove those aliases first (POST _aliases), or name "
            "its only alias with --store"
        )
    alias = name if name != concrete else None
    return Removal(bound.found(concrete, found), alias, client.count(concrete), figures(client, index)[0])


def _refuse_data_stream(index: Index, concrete: str, found: Mapping[str, Any], doing: str) -> None:
    if stream := found.get("data_stream"):
        raise InvalidData(
            f"{index.name} is the data stream {stream}, or {concrete} behind it, which ccheck does not {doing}. Name "
            "another index with --store"
        )


def _refuse_conditions(index: Index, name: str, concrete: str, found: Mapping[str, Any], doing: str) -> None:
    alias = found.get("aliases", {}).get(name, {})
    said = dict.fromkeys(words for key, words in _CONDITIONS.items() if key in alias)
    if said:
        raise InvalidData(
            f"{index.name} is an alias with {' and '.join(said)}: it covers only part of the index {concrete}. You "
            f"can search it, but {doing}, name the index or an alias of the whole with --store"
        )


def refuse_enriching(name: str, index: Index, described: Mapping[str, Any]) -> None:
    """Raise InvalidData if the name is a part of an index, or texts can't be read."""
    for concrete, one in described.items():
        _refuse_conditions(index, name, concrete, one, "to enrich it")
        source = one.get("mappings", {}).get("_source", {})
        mode = one.get("settings", {}).get("index", {}).get("mapping", {}).get("source", {}).get("mode")
        if source.get("enabled") is False or "disabled" in (mode, source.get("mode")):
            raise InvalidData(
                f"{concrete} does not keep _source, so its texts can't be read. Ingest the documents from their files "
                "into another index: ccheck ingest FILE"
            )
