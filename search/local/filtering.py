"""Filters of the local store: their SQL, and the fields that they can use."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ...core.types import Filter
from ..filters import DOCUMENT_ID, NEGATED, PUBLISHED, Kind, is_number, number_of


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
                    (numbers if is_number(one) else texts).add(name)
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
    """The SQL of a filter, with its parameters."""
    if filter_.field == DOCUMENT_ID:
        return f"id {filter_.operator} ?", [filter_.value]
    if filter_.field == PUBLISHED:
        compared = "<=" if filter_.operator == "not>" else filter_.operator
        return f"coalesce(published {compared} ?, ?)", [filter_.value, int(filter_.operator in NEGATED)]
    # json_each yields a scalar as one row and a list as one row for each of its values.
    path = "$." + json.dumps(filter_.field, ensure_ascii=False)
    negated = filter_.operator in NEGATED
    operator = NEGATED.get(filter_.operator, filter_.operator)
    text = "CASE type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE atom END"
    parameters: list[str | float] = [filter_.value]
    sql = f"type NOT IN ('integer', 'real') AND {text} {operator} ?"
    number = number_of(filter_)
    if number is not None:
        as_number = f"CAST(atom AS REAL) {operator} ?"
        # As in `is_number`: digits, with an optional sign and fraction.
        digits = "CASE WHEN atom GLOB '[+-]*' THEN substr(atom, 2) ELSE atom END"
        numeric = (
            f"type IN ('integer', 'real') OR (type = 'text' AND ({digits}) GLOB '[0-9]*' "
            f"AND ({digits}) NOT GLOB '*[^0-9.]*' AND atom NOT GLOB '*.*.*' AND atom NOT GLOB '*.')"
        )
        sql = f"({numeric}) AND {as_number}" if operator != "=" else f"({sql}) OR (({numeric}) AND {as_number})"
        parameters = [number] if operator != "=" else [filter_.value, number]
    return f"{'NOT ' * negated}EXISTS (SELECT 1 FROM json_each(metadata, ?) WHERE {sql})", [path, *parameters]
