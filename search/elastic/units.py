"""Units of documents. They have one nested field for each granularity, so that each has BM25 statistics of its own.

Elasticsearch ranks documents. The best `depth` units lie in the `depth` documents with the best units, so a search asks
for these documents with their units as inner hits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...core.fusion import projected
from ...core.stages import Retriever
from ...core.types import Unit, document_of, unit_key
from .client import Client
from .fields import text_of
from .mappings import UNITS
from .reading import Key, stored

INNER_HITS = "units"
"""The name of the inner hits in an answer."""
EXPECTED = 10
"""How many units of a document one search is expected to find, which decides how many searches share a request."""


def path_of(granularity: str) -> str:
    """The nested field of a granularity."""
    return f"{UNITS}.{granularity}"


def inner_hits(granularity: str, depth: int) -> dict[str, Any]:
    """The part of a nested query that also returns the positions and scores of the best units."""
    return {
        "name": INNER_HITS,
        "size": depth,  # es_mappings/ccheck-settings.json allows as many as a depth can be
        "stored_fields": "_none_",
        "docvalue_fields": [f"{path_of(granularity)}.number"],
    }


def ranked(
    retriever: Retriever,
    parents: Iterable[tuple[Key, Mapping[str, Any]]],
    score: Callable[[float], float],
) -> list[tuple[Key, float]]:
    """The best units of all parents, or, where the retriever projects them, their documents.

    Equal scores: the document that was written first, then the unit that comes first in it.
    """
    found = [
        (-inner["_score"], parent["sort"][1], next(iter(inner["fields"].values()))[0], key)
        for key, parent in parents
        for inner in parent["inner_hits"][INNER_HITS]["hits"].get("hits", ())
    ]
    found.sort(key=lambda unit: unit[:3])
    best = [((key[0], unit_key(key[1], place)), score(-negative)) for negative, _, place, key in found]
    best = best[: retriever.depth]
    if retriever.parents is None:
        return best
    return projected(best, lambda key: [(key[0], document_of(key[1]))], retriever.parents)


def got(client: Client, name: str, granularity: str, keys: Sequence[str]) -> dict[str, Unit]:
    """The units of those keys, as they were written last."""
    path = path_of(granularity)
    source = {"includes": [f"{path}.{part}" for part in ("number", "start", "end", "content")]}
    wanted = frozenset(keys)
    ids = [id_ for id_ in dict.fromkeys(map(document_of, keys)) if id_]
    units: dict[str, Unit] = {}
    for id_, found in stored(client, name, ids, source):
        for one in found.get(UNITS, {}).get(granularity, ()):
            key = unit_key(id_, one["number"])
            if key in wanted:
                units[key] = Unit(granularity, one["number"], one["start"], one["end"], text_of(one["content"]))
    return units
