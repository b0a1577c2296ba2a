"""Indices of another cluster, `remote:papers`: searched through this one, which can't ask for their mapping.

`_field_caps` says which fields they have, but not the dimensions and similarity of vectors: only words are searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ...core.errors import ServerError
from .client import Client
from .errors import WHOLE, reason_of, refuse_parts

_PARENTS = ("object", "nested")


def is_remote(name: str) -> bool:
    """Whether a name, or a list with commas, has an index of another cluster."""
    return ":" in name


def mappings(client: Client, name: str) -> dict[str, Any]:
    """Returns what `GET /NAME/_mapping` would answer, as far as it is known. Raises a CcheckError."""
    params = {"fields": "*", "filters": "-metadata"}
    answer = client.request("GET", f"/{quote(name, safe=',')}/_field_caps", params=params, index=name)
    if answer.get("failures"):
        raise ServerError(
            f"{client.connection.name}/{name} does not answer in full: {reason_of(answer['failures'][0])[1]}. Look at "
            "GET _remote/info on the server, then try again"
        )
    everywhere = answer["indices"]
    by_index: dict[str, dict[str, tuple[str, bool]]] = {index: {} for index in everywhere}
    for field, kinds in answer["fields"].items():
        for type_, kind in kinds.items():
            usable = bool(kind.get("searchable")) and type_ != "dense_vector"
            for index in kind.get("indices", everywhere):
                by_index[index][field] = (type_, usable)
    return {index: {"mappings": {"properties": _properties(fields)}} for index, fields in by_index.items()}


def count(client: Client, name: str, query: Mapping[str, Any] | None) -> int:
    """How many documents match. Raises a CcheckError where a cluster is missing, which `_count` passes over."""
    body = {"size": 0, "track_total_hits": True, **({"query": query} if query else {})}
    answer = client.on_index("POST", name, "_search", body, params=WHOLE)
    refuse_parts(answer, client.connection, name)
    return int(answer["hits"]["total"]["value"])


def _properties(fields: Mapping[str, tuple[str, bool]]) -> dict[str, Any]:
    """The tree of a mapping: what lies below a field that holds values is a multi-field of it."""
    root: dict[str, Any] = {"properties": {}}
    made: dict[str, dict[str, Any]] = {"": root}
    for name, (type_, usable) in sorted(fields.items()):
        if type_ == "unmapped":
            continue
        above = name.rpartition(".")[0]
        while above not in made:
            above = above.rpartition(".")[0]
        owner = made[above]
        below = "properties" if owner.get("type", "object") in _PARENTS else "fields"
        one = {"type": type_} if type_ in _PARENTS else {"type": type_, "index": usable}
        owner.setdefault(below, {})[name.removeprefix(f"{above}.")] = made[name] = one
    properties: dict[str, Any] = root["properties"]
    return properties
