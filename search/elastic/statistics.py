"""Figures of the indices of one store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import moving
from .client import Client
from .mappings import index_type_of


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of an index. `bytes` has all copies; `vector_bytes` is what searches map of its vectors; None before 9.1.

    `role` says in words what the index is to the store, `policy` names the ILM policy that is attached to it.
    """

    index: str
    role: str
    documents: int
    deleted: int
    bytes: int | None
    vector_bytes: int | None
    layout: str
    index_type: str
    shards: int
    replicas: int
    segments: int
    policy: str | None


def statistics(client: Client, alias: str) -> list[Statistics]:
    """Those of all of the store's indices, in use or not. Needs the index privilege `monitor`."""
    found = []
    for one in moving.numbered(client, alias):
        answer = client.on_index("GET", one.name, "_stats/docs,store,segments,dense_vector")
        settings = client.on_index("GET", one.name, "_settings", params={"flat_settings": True})
        count = client.on_index("GET", one.name, "_count")
        with client.understanding():
            own, primaries = settings[one.name]["settings"], answer["_all"]["primaries"]
            found.append(
                Statistics(
                    one.name,
                    moving.role(one),
                    int(count["count"]),
                    int(primaries["docs"]["deleted"]),
                    int(answer["_all"]["total"]["store"]["size_in_bytes"]),
                    _mapped(primaries),
                    one.index.layout.describe(),
                    index_type_of(one.index.meta),
                    int(own["index.number_of_shards"]),
                    int(own["index.number_of_replicas"]),
                    int(primaries["segments"]["count"]),
                    own.get("index.lifecycle.name"),
                )
            )
    return found


def _mapped(primaries: dict[str, Any]) -> int | None:
    """Bytes of the files that a search reads at every step: quantised vectors and graphs, else the full vectors."""
    parts = primaries.get("dense_vector", {}).get("off_heap")
    if not parts:
        return None
    small = sum(int(parts.get(f"total_{kind}_size_bytes", 0)) for kind in ("veb", "veq"))
    graph = int(parts.get("total_vex_size_bytes", 0))
    return graph + (small or int(parts.get("total_vec_size_bytes", 0)))
