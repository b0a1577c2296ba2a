"""Writing to one index and to no other, whatever happens to its names meanwhile.

The index has an alias of its own, hidden and with a random name. Writes go to this alias, and the server refuses them
(`require_alias`) if it is gone: with the index, which its successor of the same name does not give it back. A key that
may not add the alias writes to the index by its name, and compares the index's uuid before and after each request.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from ...core.errors import CcheckError, InvalidData, NotFound
from .client import Client, path_of
from .errors import OWN_ALIAS, Denied

_BLOCKS = ("read_only", "read_only_allow_delete", "write", "metadata")


class Lost(InvalidData):
    """The index is gone, and another one may have its name."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One index. `name` is where to write: its own alias, or its name if it has none."""

    index: str
    uuid: str
    name: str

    @property
    def guarded(self) -> bool:
        """Whether the server itself refuses writes to another index."""
        return self.name != self.index

    @property
    def bulk(self) -> dict[str, Any]:
        """Parameters of a bulk request, which would otherwise make a bare index in place of a lost one."""
        return {"require_alias": True} if self.guarded else {}

    @property
    def required(self) -> list[dict[str, Any]]:
        """Actions of `_aliases` that make the whole request fail unless the index is there."""
        alias = {"index": self.index, "alias": self.name}
        return [{"remove": alias | {"must_exist": True}}, {"add": alias | {"is_hidden": True}}] if self.guarded else []


def new_alias(index: str) -> dict[str, Any]:
    """An alias for the writes to an index, as the request that creates the index names it."""
    return {f"{index}-writes-{secrets.token_hex(8)}": {"is_hidden": True}}


def is_own(alias: str) -> bool:
    """Whether an alias is one of these."""
    return OWN_ALIAS.search(alias) is not None


def described(client: Client, name: str) -> dict[str, Any]:
    """Every index behind a name, with its aliases, settings and mapping. Raises NotFound."""
    answer = client.on_index("GET", name)
    with client.understanding():
        for index, one in answer.items():
            found(index, one)
    return answer


def found(index: str, one: Mapping[str, Any]) -> Bound:
    """The index that `described` has, with its alias if it has one."""
    own = sorted(alias for alias in one.get("aliases", {}) if is_own(alias) and alias.startswith(f"{index}-writes-"))
    return Bound(index, uuid_of(one), own[0] if own else index)


def uuid_of(one: Mapping[str, Any]) -> str:
    return str(one.get("settings", {}).get("index", {}).get("uuid", ""))


def blocks(one: Mapping[str, Any]) -> list[str]:
    """The settings with which an index that `described` has refuses writes."""
    settings = one.get("settings", {}).get("index", {})
    found = {f"index.blocks.{name}": settings.get("blocks", {}).get(name) for name in _BLOCKS}
    found["index.verified_before_close"] = settings.get("verified_before_close")  # it is closed
    return [name for name, value in found.items() if str(value).lower() == "true"]


def bind(client: Client, one: Bound) -> Bound:
    """The same index with an alias that no other index has, if the key may add one. Raises Lost."""
    if one.guarded:
        with contextlib.suppress(Lost):
            still(client, one)
            return one
    alias = next(iter(new_alias(one.index)))
    add = {"add": {"index": one.index, "alias": alias, "is_hidden": True}}
    try:
        client.request("POST", "/_aliases", {"actions": [add]}, index=one.index)
    except Denied:
        alias = one.index
    made = replace(one, name=alias)
    try:
        still(client, made)
    except Lost:
        release(client, made)
        raise
    return made


def still(client: Client, one: Bound) -> None:
    """Raise Lost unless the index is there, by its uuid."""
    try:
        answer = client.on_index("GET", one.name, "_settings/index.uuid")
    except NotFound:
        answer = {}
    if {index: uuid_of(settings) for index, settings in answer.items()} != {one.index: one.uuid}:
        raise Lost(f"the index {one.index} is not there any more" + (", another one has its name" if answer else ""))


def request(
    client: Client, one: Bound, method: str, action: str, body: Mapping[str, Any] | None = None, **how: Any
) -> dict[str, Any]:
    """The server's answer to a request to this index. Raises Lost if that is gone."""
    if not one.guarded:
        still(client, one)
    try:
        return client.on_index(method, one.name, action, body, **how)
    except NotFound as error:
        raise Lost(f"the index {one.index} is not there any more") from error


def release(client: Client, one: Bound) -> None:
    """Remove the index's own alias, if it is there."""
    if one.guarded:
        with contextlib.suppress(CcheckError):
            client.on_index("DELETE", one.index, f"_alias/{quote(one.name, safe='')}", patient=False)


def delete(client: Client, one: Bound) -> None:
    """Delete the index. The server deletes by name only, so that it is compared a moment before. Raises Lost."""
    still(client, one)
    client.request("DELETE", path_of(one.index), index=one.index, patient=False)
