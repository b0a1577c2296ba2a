"""The mappings of an index that ccheck makes: what is static from the templates, the rest from its layout."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from ... import __version__, es_mappings
from ...core.layout import MAIN_VECTORS, DenseField, Layout, UnitField, analysis_key
from .bound import new_alias

FORMAT: Final = 1
"""Increased when older versions can't read an index of this version."""
OURS: Final = "ccheck"
"""The key of what ccheck remembers under a mapping's `_meta`."""
ADDITIONAL, SPARSE, TERMS, UNITS = "additional", "sparse", "terms", "units"
"""The fields of additional texts and of sparse vectors, and the objects that hold the terms of analyses and units."""
ID: Final = "id"
"""Repeats `_id` as a doc value: the ids of 10,000 hits are read in a tenth of the time that stored ones take."""

IndexType = Literal["int8_hnsw", "bbq_hnsw", "int4_hnsw", "hnsw", "bbq_disk", "int8_flat", "bbq_flat", "flat"]
"""How the server indexes the vectors of passages: its own names. bbq_disk needs 9.2 and an Enterprise licence."""
INDEX_TYPES: Final = get_args(IndexType)
INDEX_TYPE: Final = "index_type"
"""Where `_meta` remembers it, unless it is that of the templates."""
OVERSAMPLE: Final = {"oversample": 3}
"""How many times as many candidates are scored again with the full vectors, where the index has smaller ones."""
_FULL_VECTORS: Final = ("hnsw", "flat")


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The choices of a cluster's owner for an index. None leaves a choice to the templates."""

    index_type: IndexType | None = None
    shards: int | None = None


_BY_WHITE_SPACE = {"type": "text", "analyzer": "whitespace", "index_options": "freqs"}
"""Terms that ccheck made, joined by spaces. In `_source`, so that a partial update or a reindex keeps them."""


def create_body(index: str, alias: str | None, layout: Layout, options: IndexOptions | None = None) -> dict[str, Any]:
    """The request that makes an index for documents of this layout, behind an alias or without one."""
    options = options or IndexOptions()
    mappings = es_mappings.mappings("fields")
    mappings["properties"] |= layout_mappings(layout, options.index_type)["properties"]
    mappings["_meta"] = {OURS: remembered(layout, options.index_type)}
    settings = es_mappings.settings()
    if options.shards is not None:
        settings["index"]["number_of_shards"] = options.shards
    aliases = new_alias(index) | ({} if alias is None else {alias: {"is_write_index": True}})
    return {"settings": settings, "mappings": mappings, "aliases": aliases}


def layout_mappings(layout: Layout, index_type: str | None = None, there: Container[str] = ()) -> dict[str, Any]:
    """Returns the fields that a layout adds to those of every index, without fields of vectors that are `there`.

    An index that already has some of the others may be sent them all.
    """
    # An additional text is one more passage of its document.
    one_each = {name: not field.chunking.cuts and layout.additional is None for name, field in layout.dense.items()}
    properties = {
        name: _passages(field, index_type, flat=one_each[name])
        for name, field in layout.dense.items()
        if name not in there
    }
    if layout.sparse is not None:
        properties |= es_mappings.mappings("sparse")["properties"]
    if layout.analyses:
        properties[TERMS] = {
            "properties": {analysis_key(analysis): dict(_BY_WHITE_SPACE) for analysis in layout.analyses}
        }
    if layout.units:
        properties[UNITS] = {"properties": {name: _units(field) for name, field in layout.units.items()}}
    return {"properties": properties}


def remembered(layout: Layout, index_type: str | None = None) -> dict[str, Any]:
    """Returns what ccheck keeps in the mapping's `_meta`. `terms` tells people the analysis of each field of terms."""
    kept = {"version": __version__, "format": FORMAT, "layout": layout.to_dict()}
    kept |= {INDEX_TYPE: index_type} if index_type is not None else {}
    said = {analysis_key(one): one.model_dump(mode="json", exclude_defaults=True) for one in layout.analyses}
    return kept | ({TERMS: said} if said else {})


def _passages(field: DenseField, index_type: str | None, flat: bool) -> dict[str, Any]:
    """A nested field of passages with their vectors; a flat one, which ES|QL sees, where each document is one."""
    mapping: dict[str, Any] = es_mappings.mappings("vectors")["properties"][MAIN_VECTORS]
    if flat:
        del mapping["type"]
    vector = mapping["properties"]["vector"]
    vector["dims"] = field.embedding.dimensions
    if index_type is not None:
        rescored = {} if index_type in _FULL_VECTORS else {"rescore_vector": dict(OVERSAMPLE)}
        vector["index_options"] = {"type": index_type} | rescored
    return mapping


def _units(field: UnitField) -> dict[str, Any]:
    """A nested field of the units of one granularity, with vectors where a model makes them."""
    place = {"type": "integer", "index": False, "doc_values": False}
    properties = {
        "number": {"type": "integer", "index": False},
        "start": place,
        "end": place,
        "content": es_mappings.mappings("fields")["properties"]["content"],
    }
    if field.embedding is not None:
        # The full vectors are searched: a document's units are then told apart by their exact cosines.
        options = {"type": "hnsw"}
        dims = field.embedding.dimensions
        properties["vector"] = {"type": "dense_vector", "dims": dims, "similarity": "cosine", "index_options": options}
    return {"type": "nested", "dynamic": "strict", "properties": properties}
