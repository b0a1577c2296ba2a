"""The mappings of an index that ccheck makes: what is static from the templates, the rest from its layout."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from ... import es_mappings
from ...layout import MAIN_VECTORS, Layout, analysis_key

FORMAT: Final = 1
"""Raised when an index of this version can't be read by the one before."""
OURS: Final = "ccheck"
"""The key of what ccheck remembers under a mapping's `_meta`."""
ADDITIONAL, SPARSE, TERMS = "additional", "sparse", "terms"
"""The field of additional texts, that of sparse vectors, and the object that holds the terms of analyses."""
ID: Final = "id"
"""Repeats `_id` as a doc value: the ids of 10,000 hits are read in a tenth of the time that stored ones take."""

_BY_WHITE_SPACE = {"type": "text", "analyzer": "whitespace", "index_options": "freqs"}
"""Terms that ccheck made, joined by spaces. In `_source`, so that a partial update or a reindex keeps them."""


def create_body(alias: str, layout: Layout) -> dict[str, Any]:
    """The request that makes an index for documents of this layout, behind an alias."""
    mappings = es_mappings.fields()
    for name, mapping in layout_mappings(layout)["properties"].items():
        known = mappings["properties"].get(name, {})
        properties = known.get("properties", {}) | mapping.get("properties", {})
        mappings["properties"][name] = known | mapping | ({"properties": properties} if properties else {})
    mappings["_meta"] = {OURS: remembered(layout)}
    return {"settings": es_mappings.settings(), "mappings": mappings, "aliases": {alias: {"is_write_index": True}}}


def layout_mappings(layout: Layout) -> dict[str, Any]:
    """What a layout adds to an index without embeddings; an index that has some of it may be sent it all."""
    properties: dict[str, Any] = {}
    for name, field in layout.dense.items():
        properties[name] = _passages(name, field.embedding.dimensions)
    if layout.sparse is not None:
        properties |= es_mappings.sparse()["properties"]
    if layout.analyses:
        properties[TERMS] = {
            "properties": {analysis_key(analysis): dict(_BY_WHITE_SPACE) for analysis in layout.analyses}
        }
    if layout.additional is not None:  # an index of an earlier ccheck lacks it
        properties[ADDITIONAL] = es_mappings.fields()["properties"][ADDITIONAL]
    return {"properties": properties}


def remembered(layout: Layout) -> dict[str, Any]:
    """What ccheck keeps in the mapping's `_meta`; `terms` says to people of what analysis each such field is."""
    kept = {"version": version("ccheck"), "format": FORMAT, "layout": layout.to_dict()}
    said = {analysis_key(one): one.model_dump(mode="json", exclude_defaults=True) for one in layout.analyses}
    return kept | ({TERMS: said} if said else {})


def _passages(name: str, dimensions: int) -> Mapping[str, Any]:
    """A nested field of passages with their vectors."""
    mapping: dict[str, Any] = copy.deepcopy(es_mappings.vectors()["properties"][MAIN_VECTORS])
    mapping["properties"]["vector"]["dims"] = dimensions
    if name != MAIN_VECTORS:  # the main one's places are in the template
        whole = es_mappings.fields()["properties"][MAIN_VECTORS]
        mapping = whole | {"properties": whole["properties"] | mapping["properties"]}
    return mapping
