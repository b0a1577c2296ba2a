"""Conditions on metadata: `year>=2010`, `journal=Nature`, published before a day.

They mean the same in every store. A field that holds a list matches where one of its values does. A number
compares with numbers, also those written as text ("2010"); other values compare as text; `!=` also passes documents
without the field.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..errors import UsageError

Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
PUBLISHED = "published"
"""The field of a document's own date, beside its metadata."""

_FORM = re.compile(r"\s*(?P<field>[^\s=!<>\"]+)\s*(?P<operator>>=|<=|!=|==|=|<|>)\s*(?P<value>.+?)\s*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one field: `PUBLISHED`, or the name of a metadata field."""

    field: str
    operator: Operator
    value: str

    @property
    def number(self) -> float | None:
        """The value as a number, where it is one."""
        return float(self.value) if _NUMBER.fullmatch(self.value) else None


def parse_filter(text: str) -> Filter:
    """Read `FIELD OPERATOR VALUE`; quotes around the value are dropped. Raises UsageError."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"the filter {text!r} is not of the form FIELD=VALUE (or !=, <, <=, >, >=): try 'year>=2010'")
    operator, value = match["operator"], match["value"]
    if value[0] in "=<>":
        field, rest = match["field"], value[1:].strip()
        meant = {"=>": ">=", "=<": "<=", "<>": "!="}.get(operator + value[0])
        hint = (
            f"did you mean {f'{field}{meant}{rest}'!r}?" if meant and rest else "quote a value that begins with a sign"
        )
        raise UsageError(f"the filter {text!r} has two operators, one after the other: {hint}")
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return Filter(match["field"], "=" if operator == "==" else operator, value)  # type: ignore[arg-type]


def before(day: str) -> Filter:
    """Documents that were surely published before a day (ISO 8601). Raises UsageError."""
    try:
        return Filter(PUBLISHED, "<", datetime.date.fromisoformat(day.strip()).isoformat())
    except ValueError as error:
        raise UsageError(f"{day!r} is not a day such as 2015-01-31") from error
