"""From records as files have them to records of papers: pages are unpacked, services recognised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..core.errors import why_unread
from .fields import Fields, field_of
from .records import Record, Reject, reject_of
from .shapes import recognise

PAGES = (
    *("results", "data", "items", "records", "docs", "documents", "papers", "articles", "works", "recommendedPapers"),
    *("hits.hits", "response.docs", "message.items", "resultList.result"),
)
"""Where the pages of services have their records: OpenAlex, Semantic Scholar, Elasticsearch, Solr, Crossref, Europe
PMC."""
_OF_RECORDS = {"_id", "id", "_source", "doc_id", "paperid", "paper_id", "corpusid", "corpus_id", "doi", "title"}
"""Fields by which objects in a list are taken for records of their own, and not for parts of one."""
_INSIDE = ("_source", "citedPaper", "citingPaper", "paper")
"""Where a record of a page has what it is about: Elasticsearch's hits, Semantic Scholar's citations."""
_WRAPPED = ("message", "result", "work", "article", "paper")
"""Where an answer with one record has it: Crossref's message."""


def papers(records: Iterable[Record | Reject], fields: Fields) -> Iterator[Record | Reject]:
    """The records of papers in the records of files. Fields that the user named are taken from the file's record.

    Whatever one record or part of a page does, the others come.
    """
    for record in records:
        if isinstance(record, Reject):
            yield record
            continue
        try:
            for place, one in _unpacked(record):
                try:
                    yield _recognised(one, fields, place)
                except Exception as error:  # noqa: BLE001 - a stranger's record raises whatever it likes
                    yield reject_of(one, why_unread(error))
        except Exception as error:  # noqa: BLE001
            yield reject_of(record, why_unread(error))


def _unpacked(record: Record) -> Iterator[tuple[str, Record]]:
    """The records of a page with their places in it, or the record itself."""
    found = page_of(record.data)
    if found is None:
        yield "", record
        return
    place, inner = found
    for one in inner:
        if one is None:
            continue  # Semantic Scholar's answer for an id that it does not know
        way = place
        for name in _INSIDE:
            if isinstance(one.get(name), Mapping) and not (_OF_RECORDS - {"_id", "_source"}) & {k.lower() for k in one}:
                one, way = {**({"_id": one["_id"]} if "_id" in one else {}), **one[name]}, f"{place}.{name}"
        yield way, replace(record, data=dict(one))


def page_of(data: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
    """Where a page has its records, and these; None for what is a record itself."""
    if any(str(name).lower() in _OF_RECORDS for name in data) and "abstract_inverted_index" not in data:
        # A record has an id or a title of its own, but so has Elasticsearch's `_source`.
        if not (isinstance(data.get("_source"), Mapping)):
            return None
        return "_source", [{**({"_id": data["_id"]} if "_id" in data else {}), **data["_source"]}]
    for place in PAGES:
        inner = field_of(data, place)
        if isinstance(inner, list) and _are_records(inner):
            return place, inner
    for place in _WRAPPED:
        inner = data.get(place)
        if isinstance(inner, Mapping) and _OF_RECORDS & {str(name).lower() for name in inner}:
            return place, [inner]
    for name, inner in data.items():
        if isinstance(inner, list) and len(data) <= 5 and _are_records(inner):
            return str(name), inner
    return None


def _are_records(inner: list[Any]) -> bool:
    some = [one for one in inner[:5] if one is not None]
    return bool(some) and all(
        isinstance(one, Mapping)
        and ({str(name).lower() for name in one} & _OF_RECORDS or any(name in one for name in _INSIDE))
        for one in some
    )


def _recognised(record: Record, fields: Fields, place: str) -> Record:
    asked = [name for name in (fields.id, fields.title, fields.text, fields.date) if name is not None]
    found = recognise(record.data) if not record.kind else (record.kind, record.data)
    if found is None:
        if not place or not asked:
            return record
        kind, data = "", dict(record.data)
    else:
        kind, data = found
    raw = dict(record.data) if asked else None
    for name in asked:
        # In a page the field can be named from the page, or from the record.
        own = name.removeprefix(f"{place}.") if place else name
        value = field_of(record.data, own)
        if value is not None:
            data.setdefault(name, value)
            if raw is not None:
                raw.setdefault(name, value)
    return replace(record, data=data, kind=kind, raw=raw)
