"""Parts of documents. Units have one nested field for each granularity, so that each has BM25 statistics of its own.

Elasticsearch ranks documents. The best `depth` units lie in the `depth` documents with the best units, so a search asks
for these documents with their units as inner hits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...core.analysis import clip
from ...core.fusion import projected
from ...core.stages import Retriever
from ...core.types import Hit, Query, Unit, document_of, unit_key
from .client import Client
from .fields import Index, flatten, text_of, without_tags
from .mappings import UNITS
from .reading import Key, by_ids, home_of, key_of, stored

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
    retriever: Retriever, parents: Iterable[tuple[Key, Mapping[str, Any]]], score: Callable[[float], float]
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


# -- passages in nested documents of an index that ccheck did not make


def with_passages(
    client: Client, name: str, index: Index, queries: Sequence[Query], hits: Sequence[Sequence[Hit]]
) -> list[tuple[Hit, ...]]:
    """The hits of each query with the passage of a document that has most of its words, as a unit of the document.

    A document none of whose passages has a word of the query stays whole. Raises a CcheckError.
    """
    fields = [] if index.made_here else [one for one in index.text if index.fields[one].nested]
    bodies: list[Mapping[str, Any]] = []
    asked: list[int] = []
    for place, (query, found) in enumerate(zip(queries, hits, strict=True)):
        if fields and found and (text := clip(query.text)).strip():
            bodies.append(_passages_of(index, fields, text, found))
            asked.append(place)
    answers = list(map(tuple, hits))
    responses = client.searches(name, bodies, slow=True)
    with client.understanding():
        for place, response in zip(asked, responses, strict=True):
            best = {key_of(hit): _best(hit) for hit in response["hits"]["hits"]}
            answers[place] = tuple(_narrowed(index, hit, best) for hit in answers[place])
    return answers


def _passages_of(index: Index, fields: Sequence[str], text: str, hits: Sequence[Hit]) -> dict[str, Any]:
    should = [
        {
            "nested": {
                "path": index.fields[one].within,
                "query": {"match": {index.searched[one][0]: text}},
                "ignore_unmapped": True,
                "inner_hits": {"name": one, "size": 1, "_source": [one], "ignore_unmapped": True},
            }
        }
        for one in fields
    ]
    ids = list(dict.fromkeys((home_of(index, hit.document.id) or ("", hit.document.id))[1] for hit in hits))
    query = {"bool": {"filter": [by_ids(ids)], "should": should}}
    return {"query": query, "size": len(ids) * len(index.concrete), "_source": False, "track_total_hits": False}


def _best(hit: Mapping[str, Any]) -> tuple[float, str, int, str] | None:
    """The score, nested path, place and text of a document's best passage; None if none has a word."""
    found: list[tuple[float, str, int, str]] = []
    for field, inner in hit.get("inner_hits", {}).items():
        for one in inner["hits"]["hits"]:
            nested = one["_nested"]
            text = flatten(one.get("_source", {})).get(field.removeprefix(f"{nested['field']}."))
            if isinstance(text, str):
                found.append((float(one["_score"]), nested["field"], int(nested["offset"]), without_tags(text)))
    return max(found, key=lambda one: one[0], default=None)


def _narrowed(index: Index, hit: Hit, best: Mapping[tuple[str, str], tuple[float, str, int, str] | None]) -> Hit:
    homes = [home_of(index, hit.document.id), *((concrete, hit.document.id) for concrete in index.concrete)]
    passage = next((best[one] for one in homes if one is not None and one in best), None)
    if passage is None or hit.unit is not None:
        return hit
    _, path, number, text = passage
    start = hit.document.text.find(text)
    if start < 0 or text == hit.document.text:
        return hit
    return replace(hit, unit=Unit(path, number, start, start + len(text), text))
