"""Which fields of a record are the document's, and what to say if they are not there."""

from __future__ import annotations

import difflib
import functools
import html
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeAlias

from ..core.citation import authors_of, normal_doi
from ..core.errors import InvalidData
from ..core.text import whole_number

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


# -- plain records

Plain: TypeAlias = dict[str, Any]
At: TypeAlias = Callable[[str], list[Any]]
"""The values at a place of a source's record."""

_ONE = (
    *("_id", "title", "text", "journal", "volume", "issue", "language", "url", "pmid", "pmcid", "corpusid"),
    "cited_by_count",
)
"""The fields that have one value."""
_AS_GIVEN = ("_id", "url")
"""The fields that have no markup: `&copy=` in an address is not an entity."""
_RETRACTED_TITLE = re.compile(r"^\W*retracted(?:\s+(?:article|paper|chapter))?\s*:", re.IGNORECASE)
"""As publishers mark the titles of papers that they retract."""
_YEAR = re.compile(r"(?<![0-9])([0-9]{4})(?:[0-9]{4})?(?![0-9])")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()

_BLOCK = re.compile(r"</?(?:jats:)?(?:p|h[1-6]|title|sec|br|div|li|list|list-item)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][\w:.-]*(?:\s[^<>]*)?/?>")
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")
_HEADING = re.compile(r"^\s*(?:abstract|summary)\s*[:.]?\s*\n", re.IGNORECASE)


@functools.cache
def places() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """The table `places.toml`: the places of each field, by kind of record; the first that has a value counts."""
    table = tomllib.loads((files(f"{__package__}") / "places.toml").read_text(encoding="utf-8"))
    return {
        kind: {field: tuple(place.strip() for place in given.split("|")) for field, given in fields.items()}
        for kind, fields in table.items()
    }


@functools.cache
def known_by() -> tuple[tuple[str, tuple[frozenset[str], ...]], ...]:
    """The kinds that are told by their fields: each set of fields will do."""
    return tuple(
        (kind, tuple(frozenset(name.strip() for name in way.split("&")) for way in fields["known_by"]))
        for kind, fields in places().items()
        if "known_by" in fields
    )


def plain_record(kind: str, at: At, **known: Any) -> Plain:
    """The plain record of a source's record; `known` are fields that are not just somewhere in it."""
    own = places()[kind]

    def found(name: str) -> Iterator[list[Any]]:
        for place in own.get(name, ()):
            values = [_value(one, marked_up=name not in _AS_GIVEN) for one in at(place)]
            yield [value for value in values if value not in (None, "")]

    def values(name: str) -> list[Any]:
        return next(filter(None, found(name)), [])

    def parts(name: str) -> list[str]:
        return [part.strip() for value in values(name) for part in str(value).split(";") if part.strip()]

    first = values("first")[:1]
    made: Plain = {name: next(iter(values(name)), None) for name in _ONE}
    made |= {
        "doi": next((doi for place in own.get("doi", ()) for one in at(place) if (doi := normal_doi(one))), None),
        "authors": [str(one) for one in values("authors")] or list(authors_of("; ".join(map(str, values("byline"))))),
        "date": next((one for some in found("date") for one in some if year_of(one)), None),
        "keywords": parts("keywords"),
        "pages": "-".join(dict.fromkeys(map(str, (*first, *values("last")[:1])))) if first else None,
        "type": parts("type"),
    }
    made |= {name: value for name, value in known.items() if value not in (None, "", [])}
    made["title"] = " ".join(str(made["title"] or "").split())
    if str(made["text"]).lower().strip("[]. ") == "no abstract available":
        made["text"] = None
    made["year"] = year_of(next(iter(values("year")), made["date"]))
    made["pages"] = made["pages"] or next(iter(values("pages")), None)
    retracted = any("retracted" in one.lower() for one in made["type"]) or _RETRACTED_TITLE.match(made["title"])
    if retracted or any(one is True or str(one).lower() == "retraction" for one in values("notice")):
        made["retracted"] = True
    if len(made["type"]) == 1:
        [made["type"]] = made["type"]
    return {name: value for name, value in made.items() if value not in (None, "", [])}


def _value(value: Any, *, marked_up: bool) -> Any:
    if isinstance(value, str):
        return plain(value) if marked_up else value.strip()
    return value if isinstance(value, int | float) else None


def inside(data: Mapping[str, Any]) -> At:
    """The values in an object: a dot leads into the objects in it, also into those of a list."""

    def at(place: str) -> list[Any]:
        found: list[Any] = [data]
        for name in place.split("."):
            inner = [one[name] for one in found if isinstance(one, dict) and name in one]
            found = [value for one in inner for value in (one if isinstance(one, list) else [one])]
        return found

    return at


def year_of(date: Any) -> int | None:
    """The first year in a date; None if there is none."""
    match = _YEAR.search(str(date))
    return int(match[1]) if match else None


def iso_date(year: Any = "", month: Any = "", day: Any = "", *_: Any) -> str:
    """The date in ISO 8601, as far as its parts are known; a month can have a name. Empty without a year."""
    known = year_of(year)
    if known is None:
        return ""
    name = str(month).strip().lower()
    number = _MONTHS.index(name[:3]) + 1 if name.isalpha() and name[:3] in _MONTHS else whole_number(name)
    of_month = whole_number(str(day).strip())
    parts = [known] if number is None else [known, number] if of_month is None else [known, number, of_month]
    return "-".join(f"{part:0{4 if place == 0 else 2}}" for place, part in enumerate(parts))


def plain(text: str) -> str:
    """A text without tags and entities; blocks end lines. "p<0.05" is not a tag and stays.

    So titles and abstracts lose the markup of Crossref (JATS), Europe PMC and OpenAlex (HTML).
    """
    if "<" not in text and "&" not in text:
        return text.strip()
    text = _TAG.sub("", _BLOCK.sub("\n", text))
    text = _LINES.sub("\n", _SPACES.sub(" ", html.unescape(text))).strip()
    return _HEADING.sub("", text, count=1)
