"""The structure of an index, whether ccheck made it or found it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...core.errors import InvalidData
from ...core.layout import MAIN_VECTORS, Layout
from ...core.profiles import StoreProfile
from ...core.types import Document
from .fields import Field, Index, fields_of, flatten, text_of, words_of
from .found import Sampling, choose, unified
from .mappings import ADDITIONAL, FORMAT, ID, OURS, UNITS

DIGEST_IN_PLACE = "ccheck.digest"
"""What `ccheck index enrich --in-place` adds to a document beside its vector. It is not the document's own."""
WORDS = ("title", "text", "content")
"""The fields of words of every index that ccheck made."""


def read_index(name: str, mappings: Mapping[str, Any], names: StoreProfile, where: str, sampling: Sampling) -> Index:
    """Understand what `GET /NAME/_mapping` answered; `where` is how messages call it.

    `sampling` looks at documents of an index that ccheck did not make. Raises InvalidData for an index of a later
    ccheck, for an alias that mixes ccheck's indices with others, and if nothing can be searched.
    """
    concrete = tuple(sorted(mappings))
    metas = [mappings[index]["mappings"].get("_meta", {}).get(OURS) for index in concrete]
    is_alias = name not in mappings
    fields = unified({index: fields_of(mappings[index]["mappings"]) for index in concrete})
    ours = {
        index: meta for index, meta in zip(concrete, metas, strict=True) if isinstance(meta, dict) and "format" in meta
    }
    if ours and len(concrete) > 1:
        raise InvalidData(
            f"{where} stands for {len(concrete)} indices ({', '.join(concrete)}), and ccheck made "
            f"{', '.join(ours)}: a store is one index. A rollover adds an index, for example. Remove the others from "
            "the alias (POST _aliases), or name one index with --store"
        )
    if ours:
        return _made_here(concrete, is_alias, ours[concrete[0]], fields, where)
    return replace(choose(fields, names, sampling, where), concrete=concrete, is_alias=is_alias)


def _made_here(
    concrete: tuple[str, ...], is_alias: bool, meta: Mapping[str, Any], fields: Mapping[str, Field], where: str
) -> Index:
    try:
        layout = Layout.from_dict(meta["layout"]) if meta.get("layout") else Layout()
        readable = int(meta["format"]) <= FORMAT
    except (AttributeError, KeyError, TypeError, ValueError):
        readable = False
    if not readable:
        raise InvalidData(
            f"{where} has a format that this version of ccheck can't read. ccheck {meta.get('version')} made it. "
            "Upgrade ccheck"
        )
    vectors = {name: f"{name}.vector" for name in layout.dense}
    named = [*vectors.values(), *(f"{UNITS}.{name}.vector" for name, one in layout.units.items() if one.embedding)]
    if lacking := [name for name in (*WORDS, *named) if name not in fields]:
        raise InvalidData(
            f"the mapping of {where} has no {', '.join(lacking)}. If a role of your key hides fields (field_security), "
            "let it show them. If the index was copied, copy its whole mapping. Otherwise, delete it and ingest again"
        )
    additional = {ADDITIONAL: (ADDITIONAL,)} if layout.additional is not None else {}
    return Index(
        name=where,
        concrete=concrete,
        is_alias=is_alias,
        made_here=True,
        layout=layout,
        meta=meta,
        fields=fields,
        title="title",
        text=("text",),
        searched={"content": ("content",), "title": ("title",), "text": ("text",)} | additional,
        vector=vectors.get(MAIN_VECTORS),
        published="published.day",
        vectors=vectors,
        id=ID,
        source={"includes": ["title", "text", "metadata", "published"]},
    )


# -- documents


def document(index: Index, id_: str, source: Mapping[str, Any]) -> Document:
    """A document from its `_source`."""
    if index.made_here:
        # Somebody else can have written it, with any value that the mapping takes.
        metadata, published = source.get("metadata"), source.get("published")
        return Document(
            id_,
            text_of(source.get("title")),
            text_of(source.get("text")),
            flatten(metadata) if isinstance(metadata, dict) else {},
            published[:10] if isinstance(published, str) else None,
        )
    values = flatten(source)
    title = text_of(values.pop(_path(index, index.title), None)) if index.title else ""
    texts = [values.pop(_path(index, name), None) or values.pop(f"{name}.text", None) for name in index.text]
    # A list is one text, except of nested documents, which are passages.
    parts = [
        "\n\n".join(map(str, value)) if isinstance(value, list) and index.fields[name].nested else text_of(value)
        for name, value in zip(index.text, texts, strict=True)
    ]
    # A copy of a text, such as the one that the server itself embeds, is neither read twice nor metadata.
    different = {words_of(part): part for part in reversed(parts) if part}
    text = "\n\n".join(reversed(different.values()))
    values = {name: value for name, value in values.items() if words_of(text_of(value)) not in different}
    values.pop(DIGEST_IN_PLACE, None)
    published = values.get(index.published) if index.published else None
    return Document(id_, title, text, values, published[:10] if isinstance(published, str) else None)


def _path(index: Index, name: str) -> str:
    """Where a field's value is in `_source`."""
    return index.fields[name].of or name
