"""The fields that filters can use, from what the server says about them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from more_itertools import chunked

from ..filters import PUBLISHED, Kind
from .client import Client
from .fields import NUMBERS, Index

COUNTED_AT_ONCE = 200
_METADATA: Final = "metadata."
_AS_NUMBER: Final = ".as_number"
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(NUMBERS, "numbers"),
    **dict.fromkeys(("keyword", "constant_keyword", "wildcard", "version", "ip"), "text"),
    **dict.fromkeys(("text", "match_only_text"), "words"),
    **dict.fromkeys(("date", "date_nanos"), "dates"),
    "boolean": "booleans",
}


def field_kinds(client: Client, name: str, index: Index) -> dict[str, Kind]:
    """See `Store.fields`. Which fields are empty the server knows without looking at documents."""
    asked = {"fields": "*", "include_empty_fields": False, "filters": "-metadata"}
    types: Mapping[str, Mapping[str, Any]] = client.on_index("GET", name, "_field_caps", params=asked)["fields"]
    return dict(_made_here(client, name, types) if index.made_here else _found(index, types))


def _made_here(client: Client, name: str, types: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Kind]]:
    """Every metadata field is a keyword, with its number beside it if it is one."""
    if any(field == PUBLISHED or field.startswith(f"{PUBLISHED}.") for field in types):
        yield PUBLISHED, "dates"
    own = [field for field in types if field.startswith(_METADATA) and "keyword" in types[field]]
    numeric = [field for field in own if "double" in types.get(field + _AS_NUMBER, {})]
    with_text = _with_text(client, name, numeric)
    for field in own:
        if field == _METADATA + PUBLISHED:
            continue  # filters mean the document's own date by this name
        kind: Kind = "text" if field not in numeric else "either" if field in with_text else "numbers"
        yield field.removeprefix(_METADATA), kind


def _with_text(client: Client, name: str, fields: Sequence[str]) -> set[str]:
    """Those fields with numbers in which a document has something else."""
    found: set[str] = set()
    for some in chunked(fields, COUNTED_AT_ONCE):
        others = {
            str(place): {
                "bool": {
                    "filter": [{"exists": {"field": field}}],
                    "must_not": [{"range": {field + _AS_NUMBER: {"gte": -sys.float_info.max}}}],
                }
            }
            for place, field in enumerate(some)
        }
        body = {"size": 0, "track_total_hits": False, "aggs": {"others": {"filters": {"filters": others}}}}
        answer = client.search(name, body)
        buckets = answer["aggregations"]["others"]["buckets"]
        found |= {some[int(place)] for place, bucket in buckets.items() if bucket["doc_count"]}
    return found


def _found(index: Index, types: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Kind]]:
    if index.published in types:
        yield PUBLISHED, "dates"
    for field, known in index.fields.items():
        if field == PUBLISHED == index.published or field not in types:
            continue
        kinds = {_KINDS.get(type_, "other") for type_ in types[field]}
        kind: Kind = kinds.pop() if len(kinds) == 1 else "mixed"
        if kind == "words" and known.keyword is not None:
            kind = "text"
        yield field, "nested" if known.nested else kind
