"""The mappings of an index that ccheck makes: what is static from the templates, the rest from its layout."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from ... import es_mappings
from ...layout import MAIN_VECTORS, Embedding, Layout, UnitField, analysis_key

FORMAT: Final = 1
"""Increased when older versions can't read an index of this version."""
OURS: Final = "ccheck"
"""The key of what ccheck remembers under a mapping's `_meta`."""
ADDITIONAL, SPARSE, TERMS, UNITS = "additional", "sparse", "terms", "units"
"""The fields of additional texts and of sparse vectors, and the objects that hold the terms of analyses and units."""
ID: Final = "id"
"""Repeats `_id` as a doc value: the ids of 10,000 hits are read in a tenth of the time that stored ones take."""

_BY_WHITE_SPACE = {"type": "text", "analyzer": "whitespace", "index_options": "freqs"}
"""Terms that ccheck made, joined by spaces. In `_source`, so that a partial update or a reindex keeps them."""


def create_body(alias: str, layout: Layout) -> dict[str, Any]:
    """The request that makes an index for documents of this layout, behind an alias."""
    mappings = es_mappings.fields()
    mappings["properties"] |= layout_mappings(layout)["properties"]
    mappings["_meta"] = {OURS: remembered(layout)}
    return {"settings": es_mappings.settings(), "mappings": mappings, "aliases": {alias: {"is_write_index": True}}}


def layout_mappings(layout: Layout) -> dict[str, Any]:
    """What a layout adds to the fields that every index has; an index that has some of it may be sent it all."""
    properties = {name: _passages(field.embedding) for name, field in layout.dense.items()}
    if layout.sparse is not None:
        properties |= es_mappings.sparse()["properties"]
    if layout.analyses:
        properties[TERMS] = {
            "properties": {analysis_key(analysis): dict(_BY_WHITE_SPACE) for analysis in layout.analyses}
        }
    if layout.units:
        properties[UNITS] = {"properties": {name: _units(field) for name, field in layout.units.items()}}
    return {"properties": properties}


def remembered(layout: Layout) -> dict[str, Any]:
    """What ccheck keeps in the mapping's `_meta`; `terms` says to people of what analysis each such field is."""
    kept = {"version": version("ccheck"), "format": FORMAT, "layout": layout.to_dict()}
    said = {analysis_key(one): one.model_dump(mode="json", exclude_defaults=True) for one in layout.analyses}
    return kept | ({TERMS: said} if said else {})


def _passages(embedding: Embedding) -> dict[str, Any]:
    """A nested field of passages with their vectors."""
    mapping: dict[str, Any] = es_mappings.vectors()["properties"][MAIN_VECTORS]
    mapping["properties"]["vector"]["dims"] = embedding.dimensions
    return mapping


def _units(field: UnitField) -> dict[str, Any]:
    """A nested field of the units of one granularity, with vectors where a model makes them."""
    place = {"type": "integer", "index": False, "doc_values": False}
    properties = {
        "number": {"type": "integer", "index": False},
        "start": place,
        "end": place,
        "content": es_mappings.fields()["properties"]["content"],
    }
    if field.embedding is not None:
        # The full vectors are searched: a document's units are then told apart by their exact cosines.
        options = {"type": "hnsw"}
        dims = field.embedding.dimensions
        properties["vector"] = {"type": "dense_vector", "dims": dims, "similarity": "cosine", "index_options": options}
    return {"type": "nested", "dynamic": "strict", "properties": properties}
