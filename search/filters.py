"""Conditions on metadata: `year>=2010`, `journal=Nature`, published before a day.

They mean the same in every store. A list matches if one of its values matches. A number is compared with numbers,
including numbers written as text ("2010"). Other values are compared as text, and with < and > only in documents whose
field has no number. Documents without the field pass `!=`.
"""

from __future__ import annotations

import calendar
import datetime
import math
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Literal, TypeAlias

from ..core.citation import DOI_PREFIXES, folded, normal_doi
from ..core.errors import UsageError
from ..core.text import did_you_mean, is_unicode
from ..core.types import Filter, Operator

PUBLISHED = "published"
"""The field of a document's own date, beside its metadata."""
DOCUMENT_ID = "_id"
"""The field of a document's id, beside its metadata: a scope of one document. Only = and != apply to it."""

NEGATED: Mapping[Operator, Operator] = {"!=": "=", "not>": ">"}
"""The operators that documents without the field pass, and what each negates."""

_FORM = re.compile(
    r"\s*(?P<field>'[^']+'|[^=!<>\"'\s](?:[^=!<>\"']*[^\s=!<>\"'])?)\s*(?P<operator>>=|<=|!=|==|=|<|>)\s*(?P<value>.+?)\s*",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T.*)?)?)?|[0-9]{5,}|now\b.*")
NAMED = 20
"""The most fields that an error lists."""

Kind: TypeAlias = Literal["numbers", "text", "either", "words", "dates", "booleans", "keys", "nested", "mixed", "other"]
"""The kind of a field's values for a filter: only numbers (including numbers written as text), only text, or either.

`words` can only be searched for. `keys` are an object's, and each (`FIELD.KEY`) holds text. Filters can't use `nested`,
`mixed` (a different type in each index of an alias) and `other` fields at all.
"""


def as_number(text: str) -> float | None:
    """The number that a text is for filters, or None: decimal digits, with an optional sign, point and exponent."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def number_of(one: Filter) -> float | None:
    """The number to compare with; None if values are compared with the filter's text.

    = and != compare integers of more digits than a float keeps as text, so that long ids differ.
    """
    if one.operator in ("=", "!=") and one.value.lstrip("+-").isdecimal() and len(one.value) > sys.float_info.dig:
        return None
    return as_number(one.value)


def dois_of(one: Filter) -> list[str]:
    """What = and != compare a field of DOIs with, in any case: the ways to write the value; empty for others."""
    bare = normal_doi(one.value) if one.operator in ("=", "!=") and folded(one.field) == "doi" else None
    return [] if bare is None else [one.value, *(f"{prefix}{bare}" for prefix in ("", *DOI_PREFIXES))]


def refuse_unfit(filters: Sequence[Filter], fields: Mapping[str, Kind], store: str) -> None:
    """Raise UsageError for a filter on a field that no document has, or that its values can't be compared with.

    Such a filter would pass nothing, or everything, for every claim: it is a mistake.
    """
    refuse_ordered_ids(filters)
    for one in filters:
        kind = "either" if one.field == DOCUMENT_ID else fields.get(one.field)
        above = accumulate(one.field.split("."), "{}.{}".format)
        if kind is None and any(fields.get(name) == "keys" for name in above):
            kind = "text"
        if kind is None:
            raise UsageError(_unknown(one, fields, store))
        wrong = _unfit(one, kind)
        if wrong is not None:
            raise UsageError(f"the filter {str(one)!r} can't be applied to {store}: {wrong}")


def refuse_ordered_ids(filters: Sequence[Filter]) -> None:
    """Raise UsageError for a filter that compares ids with <, <=, > or >=."""
    for one in filters:
        if one.field == DOCUMENT_ID and one.operator not in ("=", "!="):
            raise UsageError(f"the filter {str(one)!r} can't be applied: ids can only be compared with = and !=")


def _unknown(one: Filter, fields: Mapping[str, Kind], store: str) -> str:
    if one.field == PUBLISHED:
        return (
            f"no document in {store} has a date, so conditions on {PUBLISHED} exclude all of them. Name the "
            "field of the date at ingest (--date-field)"
        )
    names = sorted(name for name in fields if name != PUBLISHED)
    if not names:
        return f"the filter {str(one)!r} can't be applied: no document in {store} has metadata"
    hint = did_you_mean(one.field, names)
    end = f"; {hint}" if hint else "."
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"no document in {store} has a field {one.field!r}{end} The fields are {', '.join(names[:NAMED])}{more}"


def _unfit(one: Filter, kind: Kind) -> str | None:
    """Why the values of a field can't be compared like this; None if they can."""
    orders = one.operator not in ("=", "!=")
    match kind:
        case "nested":
            return f"{one.field} is in nested documents, which filters can't reach"
        case "mixed":
            return (
                f"{one.field} has a different type in each index of the alias. Choose one of the indices with --store"
            )
        case "other":
            return f"{one.field} holds neither text nor numbers nor dates"
        case "words" if orders:
            return f"{one.field} is full text, which can only be compared with = and !="
        case "booleans" if orders or one.value not in ("true", "false"):
            return f"{one.field} is true or false. Write {one.field}=true or {one.field}=false"
        case "dates" if not _is_date(one.value):
            example = f"{one.field}{one.operator}2015-01-31"
            return f"{one.field} holds dates, and {one.value!r} is not a date. Write, for example, {example}"
        case "numbers" if as_number(one.value) is None:
            return f"{one.field} holds numbers, and {one.value!r} is not a number"
        case "text" if as_number(one.value) is not None and orders:
            return (
                f"{one.field} holds text, which {one.operator} compares letter by letter, but {one.value!r} is a number"
            )
    return None


def _is_date(text: str) -> bool:
    """Whether it is a day that the calendar has, its month or year, a moment, milliseconds since 1970, or `now`."""
    if not _DATE.fullmatch(text):
        return False
    day = text.partition("||")[0]  # what follows is added to it, or rounds it
    try:
        if day[4:5] == "-":
            datetime.datetime.fromisoformat(day if len(day) > len("2011-03") else f"{day}-01")
    except ValueError:
        return False
    return True


def parse_filter(text: str) -> Filter:
    """Parse `FIELD OPERATOR VALUE`. Quotes around the value are removed. Raises UsageError.

    With an order, `published` takes a day, month or year (ISO 8601). A document's date that is only known to the year
    is the year's last day: 2015 is after 2014, not after 2015, and not before 2015-06.
    """
    match = _FORM.fullmatch(text)
    if not is_unicode(text):
        raise UsageError(f"the filter {text!r} is not valid UTF-8")
    if match is None:
        raise UsageError(
            f"the filter {text!r} is not FIELD=VALUE (or !=, <, <=, >, >=). Write, for example, 'year>=2010'. A field "
            "whose name has quotes, blanks at its ends or one of =!<> stands in single quotes"
        )
    operator, value = match["operator"], match["value"]
    if value[0] in "=<>":
        raise UsageError(f"the filter {text!r} has two operators in a row. Quote a value that begins with =, < or >")
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    field = match["field"].strip("'") if match["field"].startswith("'") else match["field"]
    if field == PUBLISHED and operator[0] in "<>":
        value = _day(value, last=operator in (">", "<="))
    return Filter(field, "=" if operator == "==" else operator, value)  # type: ignore[arg-type]


_PART = re.compile(r"(\d{4})(?:-(\d{1,2}))?")


def _day(text: str, *, last: bool) -> str:
    """The day, or the first or last of a month or year."""
    text = text.strip()
    match = _PART.fullmatch(text)
    try:
        if match is None:
            return datetime.date.fromisoformat(text).isoformat()
        year, month = int(match[1]), int(match[2]) if match[2] else 12 if last else 1
        return datetime.date(year, month, calendar.monthrange(year, month)[1] if last else 1).isoformat()
    except (ValueError, IndexError) as error:
        raise UsageError(f"{text!r} is not a date like 2015-01-31, 2015-01 or 2015") from error
