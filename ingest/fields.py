"""Which fields of a record are the document's, and what to say if they are not there."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import InvalidData

ID_FIELDS = (
    *("_id", "id", "doc_id", "docid", "corpus_id", "corpusid", "paper_id"),
    *("abstract_id", "cord_uid"),  # of ClimateCheck and CheckThat!
)
TITLE_FIELDS = ("title", "article_title", "paper_title", "document_title")
TEXT_FIELDS = ("text", "abstract", "abstract_text", "abstractText", "abstract_note")
DATE_FIELDS = (
    *("date", "published", "publication_date", "publish_date", "pub_date", "year", "publication_year"),
    *("publicationDate", "publish_time", "pub_year", "pubYear"),
)
"""The usual names, in the order in which they count. Case, and whether words are joined by _, - or a space, do not."""
MANY = 10_000
"""Of an object with more keys, only exact names are looked for: no paper has so many, and a line of 64 MiB can."""
_SHOWN = 20
_DEEP = 3


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of a record are the document's; None: the first of the usual ones that is there.

    A dot leads into an object: `front.abstract`. Without `titles` documents have none: what the record has as its title
    is metadata, which nothing searches, reranks or judges.
    """

    id: str | None = None
    title: str | None = None
    text: str | None = None
    date: str | None = None
    titles: bool = True


def check_fields(records: Sequence[Mapping[str, Any]], fields: Fields) -> None:
    """Raises InvalidData if none of some records has a field that was named, or any of the text.

    The message names the fields that there are, the nearest first. A title alone will do where no text was named.
    """
    if not records:
        return
    asked = {"text": fields.text, "title": fields.title, "date": fields.date, "id": fields.id}
    for what, name in asked.items():
        usual = (*TEXT_FIELDS, *TITLE_FIELDS) if what == "text" else ()
        names = (name,) if name is not None else usual
        if names and not any(has_field(data, one) for data in records for one in names):
            raise InvalidData(no_field(name, TEXT_FIELDS if usual else (), what, records))


def no_field(asked: str | None, usual: Sequence[str], what: str, records: Sequence[Mapping[str, Any]]) -> str:
    """The error for a missing field, such as the title's. It lists the fields that are there, the nearest first."""
    wanted = " or ".join(repr(name) for name in ((asked,) if asked is not None else usual[:2]))
    there = list(dict.fromkeys(name for data in records for name in _names(data)))
    near = difflib.get_close_matches(asked, there, len(there), 0.0) if asked is not None and there else there
    shown = ", ".join(map(repr, near[:_SHOWN])) or "none"
    more = f" and {len(near) - _SHOWN:,} more" if len(near) > _SHOWN else ""
    return f"no field {wanted} for the {what}. The records have {shown}{more}: choose one with --{what}-field"


def has_field(data: Any, name: str) -> bool:
    """Whether a record has a field, empty or not; a dot leads into an object, or into those of a list."""
    return any(True for _ in _values(data, name))


def field_of(data: Any, name: str) -> Any:
    """The first value of a field; None if it is not there."""
    return next(_values(data, name), None)


def _values(data: Any, name: str) -> Iterator[Any]:
    if isinstance(data, list):
        for inner in data:
            yield from _values(inner, name)
    if not isinstance(data, Mapping):
        return
    for held in (data, data.get("metadata")):
        if isinstance(held, Mapping) and (key := key_of(held, name)) is not None:
            yield held[key]
            return
    first, dot, rest = name.partition(".")
    if dot and (key := key_of(data, first)) is not None:
        yield from _values(data[key], rest)


def key_of(data: Mapping[str, Any], name: str) -> str | None:
    """The key of a field: exactly that, else one that differs only in case, `_`, `-` or spaces."""
    if name in data:
        return name
    if len(data) > MANY:
        return None
    wanted = _bare(name)
    return next((key for key in data if _bare(key) == wanted), None)


@functools.lru_cache(maxsize=1 << 14)
def _bare(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()[:200]


def _names(data: Mapping[str, Any], way: str = "", depth: int = 0) -> Iterator[str]:
    for name, value in list(data.items())[: 10 * _SHOWN]:
        if isinstance(value, Mapping) and depth < _DEEP:
            yield from _names(value, f"{way}{name}.", depth + 1)
        else:
            yield f"{way}{name}"[:100]
