"""Making documents of records: which field is what, cleaning, dates, limits."""

from __future__ import annotations

import calendar
import functools
import hashlib
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ..core.errors import InvalidData
from ..core.layout import Layout
from ..core.text import TEXT_CHARS
from ..core.types import Document, Scalar, Value
from .fields import DATE_FIELDS, ID_FIELDS, TEXT_FIELDS, TITLE_FIELDS, Fields, has_field, key_of, no_field

ID_BYTES = 512
"""UTF-8, as Elasticsearch has it."""
TITLE_CHARS = 10_000
METADATA_KEYS = 256
METADATA_BYTES = 64 << 10
"""As JSON in UTF-8."""
DEPTH = 20
"""How deeply objects and arrays may be nested."""
NAME_CHARS = 1_000
RAW_CHARS = 2 * TEXT_CHARS
"""The limit of any field before cleaning, which makes texts shorter."""
OF_THE_DOCUMENT = 3
"""Fields that do not count as metadata: id, title and text."""
DATE_CHARS = 64
PAGE_STARTS = "page_starts"
"""The field of a record with the offsets in its `text` at which the pages of a paper begin, the first at 0."""
FILE_HASH = "file_sha256"
"""The metadata field with the hash of the PDF that a document was read from."""

VERSION = 1
"""Raised when the same record becomes another document or other vectors, so that stores take it again."""

_USUAL = Fields()


@dataclass(frozen=True, slots=True)
class Made:
    """A document, whether its id was made from its content, and whether it has a date that could not be read."""

    document: Document
    id_made: bool = False
    date_unread: bool = False


def make_document(data: Mapping[str, Any], fields: Fields = _USUAL, *, untyped: bool = False) -> Made:
    """The document that a record describes. `untyped`: numbers come as text, as in CSV.

    One without a text is stored by its title.

    Raises InvalidData with the reason where the record can't be one.
    """
    flat = _flatten({name: value for name, value in data.items() if name != PAGE_STARTS})
    # One field can be both; a title that nobody named is not also the text.
    both = fields.text is not None and fields.text == fields.title
    given_text = _take(data, flat, fields.text, TEXT_FIELDS)
    pieces = given_text if isinstance(given_text, list) else [given_text]
    if not untyped and (wrong := [one for one in pieces if not isinstance(one, str | None)]):
        raise InvalidData(f"the text must be a string or a list of strings, got {json.dumps(wrong[0])[:100]}")
    text = _text(given_text)
    title = text if both else _text(_take(data, flat, fields.title, TITLE_FIELDS))
    if title and not fields.titles and not both:
        flat, title = {"title": title, **flat}, ""
    given = _take_id(data, flat, fields.id)
    if not text and not title:
        there = any(has_field(data, name) for name in ((fields.text,) if fields.text else TEXT_FIELDS))
        raise InvalidData("empty text" if there else no_field(fields.text, TEXT_FIELDS, "text", [data]))
    _check("the title is too long", len(title), TITLE_CHARS)
    _check("the text is too long", len(text), TEXT_CHARS)
    # The same content always has the same id.
    made = hashlib.blake2b(f"{title}\n{text}".encode(), digest_size=16).hexdigest()
    identifier = made if given is None else given
    starts = _page_starts(data, text)
    metadata = {name: _number(value) for name, value in flat.items()} if untyped else flat
    _check("too much metadata", len(metadata), METADATA_KEYS, "fields")
    _check("the metadata are too long", len(_canonical(metadata)), METADATA_BYTES, "bytes")
    names = (fields.date,) if fields.date else DATE_FIELDS
    dates = [flat[key] for name in names if (key := key_of(flat, name)) is not None]
    published = next((day for date in dates if (day := last_day(date))), None)
    return Made(
        Document(identifier, title, text, metadata, published, starts), given is None, bool(dates) and published is None
    )


def _page_starts(data: Mapping[str, Any], text: str) -> tuple[int, ...]:
    """Where pages begin in the text; nothing if the document's text is not the record's, character by character."""
    starts = data.get(PAGE_STARTS)
    if not starts or data.get("text") != text:
        return ()
    whole = isinstance(starts, list) and all(type(one) is int for one in starts)
    if not whole or starts[0] != 0 or starts[-1] > len(text) or any(a > b for a, b in itertools.pairwise(starts)):
        raise InvalidData(f"{PAGE_STARTS} must be offsets in the text, from 0 and in their order")
    return tuple(starts)


def _check(what: str, size: int, most: int, unit: str = "characters") -> None:
    if size > most:
        raise InvalidData(f"{what}: {size:,} {unit}, at most {most:,}")


def digest(document: Document, layout: bytes) -> str:
    """Changes when anything changes that a store would hold of the document: its fields, or how it is embedded.

    `layout` is what `layout_bytes` made of the store's.
    """
    held = hashlib.blake2b(layout, digest_size=16)
    for part in (document.id, document.title, document.text, document.published or ""):
        data = part.encode()
        held.update(len(data).to_bytes(8, "little"))
        held.update(data)
    held.update(_canonical(document.metadata))
    if document.pages:
        held.update(_canonical(document.pages))
    return held.hexdigest()


def layout_bytes(layout: Layout) -> bytes:
    """Differs where vectors would, or what is made of a record."""
    held = layout.to_dict()
    named = [held["sparse"], *(one["embedding"] for part in ("dense", "units") for one in held[part].values())]
    for model in filter(None, named):
        del model["model"]  # the fingerprint tells; the same weights go by several names
    return _canonical([VERSION, held])


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


_DROPPED = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_NO_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What an id can't have: it is shown on one line, and is part of addresses."""
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85]")

_MARKS_TOGETHER = 30
"""As in Unicode's Stream-Safe Text Format (UAX #15): no language puts more on one letter."""


@functools.cache
def _marks() -> re.Pattern[str]:
    """So many combining marks in a row that ordering them, which takes the square of their number, would take long."""
    marks = "".join(chr(code) for code in range(0x300, 0x1F000) if unicodedata.combining(chr(code)))
    return re.compile(f"[{marks}]{{{_MARKS_TOGETHER}}}")


def _nfc(text: str) -> str:
    """NFC, in linear time: a longer row of marks is normalised in pieces."""
    cuts = [0, *(row.end() for row in _marks().finditer(text)), len(text)]
    return "".join(unicodedata.normalize("NFC", text[start:end]) for start, end in itertools.pairwise(cuts))


def clean(text: str) -> str:
    """NFC, without control characters (all line ends become \\n, tabs stay), lone surrogates, and space around it."""
    if text.isascii() and text.isprintable():
        return text.strip()
    if not text.isprintable():
        text = _DROPPED.sub("", _LINE_ENDS.sub("\n", text))
    return _nfc(text).strip()


def _flatten(data: Mapping[str, Any]) -> dict[str, Value]:
    """The record without nesting: objects' keys joined by dots, arrays' values in one list, null left out.

    An object called `metadata`, as BEIR has it, is unwrapped: its fields stand beside the others.
    """
    flat: dict[str, Value] = {}
    for name, value in data.items():
        if not (name == "metadata" and isinstance(value, dict)):
            _collect(_name(name), value, flat, False, 0)
    inner = data.get("metadata")
    if isinstance(inner, dict):
        for name, value in inner.items():
            beside = name not in data
            _collect(_name(name) if beside else f"metadata.{_name(name)}", value, flat, False, 1)
    return flat


def _collect(name: str, value: Any, flat: dict[str, Value], many: bool, depth: int) -> None:
    if depth > DEPTH:
        raise InvalidData(f"nested too deeply: more than {DEPTH} levels")
    if len(flat) > METADATA_KEYS + OF_THE_DOCUMENT:
        raise InvalidData(f"too much metadata: more than {METADATA_KEYS} fields")
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(f"{name}.{_name(key)}", inner, flat, many, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _collect(name, inner, flat, True, depth + 1)
    elif (scalar := _scalar(name, value)) is None:
        pass
    elif many:
        values = flat.setdefault(name, [])
        if isinstance(values, list):
            values.append(scalar)
    else:
        flat.setdefault(name, scalar)


def _scalar(name: str, value: Any) -> Scalar:
    if isinstance(value, str):
        if len(value) > RAW_CHARS:
            raise InvalidData(f"the field {name} is too long: {len(value):,} characters, at most {RAW_CHARS:,}")
        return clean(value) or None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)  # more than stores can hold as a number
    return value  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=4096)
def _name(key: str) -> str:
    """A field's name without empty parts between its dots, which Elasticsearch refuses."""
    _check("the name of a field is too long", len(key), NAME_CHARS)
    return ".".join(part for part in clean(key).split(".") if part) or "_"


def _take(data: Mapping[str, Any], flat: dict[str, Value], asked: str | None, defaults: tuple[str, ...]) -> Value:
    """The value of the first of these fields that has one, which then does not count as metadata."""
    for name in (asked,) if asked else defaults:
        if isinstance(data.get(name), dict):
            raise InvalidData(f"the field {name!r} is an object, not a value")
        if (key := key_of(flat, name)) is not None:
            return flat.pop(key)
    return None


def _take_id(data: Mapping[str, Any], flat: dict[str, Value], asked: str | None) -> str | None:
    """The id exactly as it was given, not cleaned; None if there is none."""
    for name in (asked,) if asked else ID_FIELDS:
        key, flat_key = key_of(data, name), key_of(flat, name)
        value = data[key] if key is not None else flat[flat_key] if flat_key is not None else None
        if value is not None and value == value:  # NaN, which tables have for nothing, is not equal to itself
            flat.pop(flat_key or name, None)
            return _id(value)
    if asked:
        raise InvalidData(f"no id: the field {asked!r} is empty or absent")
    return None


def _id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidData(f"the id must be text or a number, got {json.dumps(value)[:100]}")
    identifier = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    if not identifier.strip():
        raise InvalidData("empty id")
    if _NO_NAME.search(identifier):
        raise InvalidData("the id contains line breaks, other control characters or lone surrogates")
    _check("the id is too long", len(identifier.encode()), ID_BYTES, "bytes")
    return identifier


def _text(value: Value) -> str:
    """A title or text; one that comes in pieces (sentences, say) is joined by spaces."""
    if isinstance(value, list):
        return " ".join(str(piece) for piece in value)
    return "" if value is None else str(value)


_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)


def _number(value: Value) -> Value:
    """The number that a text of at most 15 digits is; those with leading zeros are names of something."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value) or len(value.strip("-").replace(".", "")) > 15:
        return value
    return float(value) if "." in value else int(value)


_DATE = re.compile(r"(\d{4})(?:([-/.])(\d{1,2})(?:\2(\d{1,2})(?:[T ].*)?)?)?", re.ASCII | re.DOTALL)
_EIGHT_DIGITS = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)


def last_day(value: Value) -> str | None:
    """The last day that a date can mean, in ISO 8601; None if it can't be read.

    2015 → 2015-12-31, 2015-02 → 2015-02-28, 2015-02-03T10:00Z and 20150203 → 2015-02-03.
    """
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if isinstance(value, list) or len(text := str(value)) > DATE_CHARS:
        return None
    return _last_day(text)


@functools.lru_cache(maxsize=4096)
def _last_day(date: str) -> str | None:
    match = _DATE.fullmatch(_EIGHT_DIGITS.sub(r"\1-\2-\3", date.strip(), count=1))
    if match is None:
        return None
    year, month = int(match[1]), int(match[3] or 12)
    if year < 1 or not 1 <= month <= 12:
        return None
    last = calendar.monthrange(year, month)[1]
    day = int(match[4] or last)
    return f"{year:04}-{month:02}-{day:02}" if 1 <= day <= last else None
