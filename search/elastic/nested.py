"""Texts in nested documents of an index that ccheck did not make: which passage of a document a claim matches best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...core.analysis import clip
from ...core.types import Hit, Query, Unit
from .client import Client
from .fields import Index, flatten
from .reading import by_ids, home_of, ids_read, key_of


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
            bodies.append(_search(index, fields, text, found))
            asked.append(place)
    answers = list(map(tuple, hits))
    responses = client.searches(name, bodies, slow=True)
    with client.understanding():
        for place, response in zip(asked, responses, strict=True):
            best = {key_of(index, hit): _best(hit) for hit in response["hits"]["hits"]}
            answers[place] = tuple(_narrowed(index, hit, best) for hit in answers[place])
    return answers


def _search(index: Index, fields: Sequence[str], text: str, hits: Sequence[Hit]) -> dict[str, Any]:
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
    query = {"bool": {"filter": [by_ids(index, ids)], "should": should}}
    size = 2 * len(ids) * len(index.concrete)
    return {"query": query, "size": size, "_source": False, "track_total_hits": False, **ids_read(index)}


def _best(hit: Mapping[str, Any]) -> tuple[float, str, int, str] | None:
    """The score, nested path, place and text of a document's best passage; None if none has a word."""
    found: list[tuple[float, str, int, str]] = []
    for field, inner in hit.get("inner_hits", {}).items():
        for one in inner["hits"]["hits"]:
            nested = one["_nested"]
            text = flatten(one.get("_source", {})).get(field.removeprefix(f"{nested['field']}."))
            if isinstance(text, str):
                found.append((float(one["_score"]), nested["field"], int(nested["offset"]), text))
    return max(found, key=lambda one: one[0], default=None)


def _narrowed(index: Index, hit: Hit, best: Mapping[tuple[str, str], tuple[float, str, int, str] | None]) -> Hit:
    home = home_of(index, hit.document.id)
    homes = [*([home] if home else []), *((concrete, hit.document.id) for concrete in index.concrete)]
    passage = next((best[one] for one in homes if one in best), None)
    if passage is None or hit.unit is not None:
        return hit
    _, path, number, text = passage
    start = hit.document.text.find(text)
    if start < 0 or text == hit.document.text:
        return hit
    return replace(hit, unit=Unit(path, number, start, start + len(text), text))
