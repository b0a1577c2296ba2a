"""Which fields of a record are the document's, and what to say where they are not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidData

TEXT_FIELDS = ("text", "abstract")
_PAGES = {
    *("data", "results", "items", "records", "docs", "documents", "papers", "articles", "works", "hits"),
    *("hits.hits", "response.docs", "message.items", "resultList.result"),
}
"""Where the pages of services have their records: Semantic Scholar, OpenAlex, Elasticsearch, Solr, Crossref, PubMed."""
_OF_RECORDS = {"_id", "id", "_source", "doc_id", "paperid", "paper_id", "corpusid", "corpus_id", "doi", "title"}
"""Fields by which objects in a list are taken for records of their own, and not for parts of one."""
_SHOWN = 20
_DEEP = 3


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of a record are the document's; None: the first of the usual ones that is there.

    A dot leads into an object: `front.abstract`.
    """

    id: str | None = None
    title: str | None = None
    text: str | None = None
    date: str | None = None


def check_fields(records: Sequence[Mapping[str, Any]], fields: Fields) -> None:
    """Raises InvalidData where none of some records has a field that was named, or any of the text.

    The message names the fields that there are, the nearest first, or says that the records are whole pages.
    """
    if not records:
        return
    pages = [page_of(data, fields) for data in records]
    if pages[0] is not None and None not in pages:
        raise InvalidData(pages[0])
    asked = {"text": fields.text, "title": fields.title, "date": fields.date, "id": fields.id}
    for what, name in asked.items():
        usual = TEXT_FIELDS if what == "text" else ()
        names = (name,) if name is not None else usual
        if names and not any(has_field(data, one) for data in records for one in names):
            raise InvalidData(no_field(name, usual, what, records))


def no_field(asked: str | None, usual: Sequence[str], what: str, records: Sequence[Mapping[str, Any]]) -> str:
    """What to say where the field of the title, say, is not there: the fields that are, the nearest first."""
    wanted = " or ".join(repr(name) for name in ((asked,) if asked is not None else usual))
    there = list(dict.fromkeys(name for data in records for name in _names(data)))
    near = sorted(there, key=lambda name: -_likeness(name, asked)) if asked is not None else there
    shown = ", ".join(map(repr, near[:_SHOWN])) or "none"
    more = f" and {len(near) - _SHOWN:,} more" if len(near) > _SHOWN else ""
    return f"no field {wanted} for the {what}. The records have {shown}{more}: choose one with --{what}-field"


def page_of(data: Mapping[str, Any], fields: Fields) -> str | None:
    """What to say of a record that is a page of records, as services answer, and not one; else None.

    It has neither id, title nor text of its own, or the text is to be taken from its list.
    """
    if any(str(name).lower() in _OF_RECORDS for name in data):
        return None
    own = (fields.text,) if fields.text is not None else TEXT_FIELDS
    for place, records in _lists(data, "", 0):
        into = any(name == place or name.startswith(f"{place}.") for name in own)
        if into or not any(has_field(data, name) for name in own):
            first = records[0]
            if place in _PAGES or any(str(name).lower() in _OF_RECORDS for name in first):
                return (
                    f"this is a page with {len(records):,} records in {place!r}, not a single record. Unpack it and "
                    f"ingest the result: jq -c '.{place}[]' FILE > FILE.jsonl"
                )
    return None


def has_field(data: Any, name: str) -> bool:
    """Whether a record has a field, empty or not; a dot leads into an object, or into each of a list."""
    if isinstance(data, list):
        return any(has_field(inner, name) for inner in data)
    if not isinstance(data, Mapping):
        return False
    if name in data or (isinstance(data.get("metadata"), Mapping) and name in data["metadata"]):
        return True
    first, dot, rest = name.partition(".")
    return bool(dot) and first in data and has_field(data[first], rest)


def _lists(data: Mapping[str, Any], way: str, depth: int) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The lists of objects in a record, with the dotted names that lead to them."""
    for name, value in data.items():
        if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value[:5]):
            yield f"{way}{name}", value
        elif isinstance(value, Mapping) and depth < _DEEP:
            yield from _lists(value, f"{way}{name}.", depth + 1)


def _names(data: Mapping[str, Any], way: str = "", depth: int = 0) -> Iterator[str]:
    for name, value in list(data.items())[: 10 * _SHOWN]:
        if isinstance(value, Mapping) and depth < _DEEP:
            yield from _names(value, f"{way}{name}.", depth + 1)
        else:
            yield f"{way}{name}"[:100]


def _likeness(one: str, other: str) -> float:
    last = one.rpartition(".")[2]
    return max(difflib.SequenceMatcher(None, name.lower()[:100], other.lower()[:100]).ratio() for name in (one, last))
