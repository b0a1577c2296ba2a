"""Filters of the local store: their SQL, and the fields that they can use."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ...core.types import Filter
from ..filters import DOCUMENT_ID, NEGATED, PUBLISHED, Kind, as_number, dois_of, number_of

_TEXT = "CASE type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE CAST(atom AS TEXT) END"
_NUMBER = "CASE WHEN type IN ('integer', 'real') THEN CAST(atom AS REAL) WHEN type = 'text' THEN as_number(atom) END"

_HAS = "EXISTS (SELECT 1 FROM json_each(metadata) AS field WHERE field.key = ? AND"


def kinds(documents: Iterable[tuple[str | None, str]]) -> dict[str, Kind]:
    """The fields for filters, see `Store.fields`, from the date and the metadata (JSON) of each document."""
    numbers: set[str] = set()
    texts: set[str] = set()
    dated = False
    for published, metadata in documents:
        dated = dated or published is not None
        for name, value in json.loads(metadata).items():
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, str):
                    (texts if as_number(one) is None else numbers).add(name)
                elif one is not None:
                    (texts if isinstance(one, bool) else numbers).add(name)
    found: dict[str, Kind] = {
        name: "text" if name not in numbers else "either" if name in texts else "numbers" for name in numbers | texts
    }
    for name in (PUBLISHED, DOCUMENT_ID):  # these names mean the document's own date and id
        found.pop(name, None)
    if dated:
        found[PUBLISHED] = "dates"
    return found


def condition(filter_: Filter) -> tuple[str, list[str | float]]:
    """The SQL of a filter, with its parameters. No name or value becomes a part of the SQL or of a JSON path."""
    operator = NEGATED.get(filter_.operator, filter_.operator)
    negated = "NOT " * (filter_.operator in NEGATED)
    if filter_.field == DOCUMENT_ID:
        return f"{negated}id {operator} ?", [filter_.value]
    if filter_.field == PUBLISHED:
        return f"{negated}coalesce(published {operator} ?, 0)", [filter_.value]
    if written := dois_of(filter_):
        sql = _any(f"{_TEXT} COLLATE NOCASE IN ({', '.join('?' * len(written))})")
        return f"{negated}{_HAS} {sql})", [filter_.field, *written, *written]
    number = number_of(filter_)
    value = filter_.value if number is None else number
    sql, parameters = _any(f"{_TEXT if number is None else _NUMBER} {operator} ?"), [filter_.field, value, value]
    if number is None and operator != "=":  # text has an order only where there are no numbers
        sql += f" AND NOT {_any(f'{_NUMBER} IS NOT NULL')}"
    return f"{negated}{_HAS} {sql})", parameters


def _any(passes: str) -> str:
    """SQL: whether the value of a field, or one of those in its list, passes."""
    among = f"EXISTS (SELECT 1 FROM json_each(field.value) WHERE {passes})"
    return f"CASE field.type WHEN 'array' THEN {among} ELSE coalesce({passes}, 0) END"
