"""Filters against an evaluation in plain Python, over names, values, updates and scopes that hypothesis makes up."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from filling import write
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from searching import rank_all

from ccheck.core.layout import Layout
from ccheck.core.stages import Bm25
from ccheck.core.types import Document, Entry, Query
from ccheck.ingest.documents import make_document
from ccheck.search import Filter, Store
from ccheck.search.filters import DOCUMENT_ID, PUBLISHED

NAMES = [
    *('a"b', '"', 'a"', "a\\b", "a\\", "a\\u0062", "ab", "a.b", "a..b", "a", "a[0]", "[0]", "0", "a*", "*", "?", "$"),
    *("$.a", '$."a"', "a b", "a'b", "é", "e\u0301", "\u2028", "😀", "a%b", "a_b", "{a}", "a,b", "type", "key", "field"),
    *("as_number", "metadata", "ingested", "NULL", "a/b", "<a>", "#a", "A"),
]
"""Not made up: a server's index has a limited number of fields."""
IDS = [f"d{number}" for number in range(6)]
DAYS = ["2011-01-31", "2011-02-01", "2015"]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

# Without the letters that are part of a number in Java and of none here, as in 5f.
text = st.text("ab\"\\.-+e109 *%_[ßé😀'", max_size=4) | st.from_regex(r"[+-]?[0-9]{1,3}\.?[0-9]?", fullmatch=True)
integers = st.integers(-3, 12) | st.sampled_from([2**53 + 1, 2**53, -(2**63), 10**30])
scalar = text | integers | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
metadata = st.dictionaries(st.sampled_from(NAMES), scalar | st.lists(scalar, max_size=3), max_size=4)
record = st.builds(lambda day, rest: rest | ({"date": day} if day else {}), st.sampled_from([None, *DAYS]), metadata)
steps = st.lists(st.dictionaries(st.sampled_from(IDS), st.none() | record, min_size=1), min_size=1, max_size=3)
"""What is written at once: documents, and those that are removed."""


def filters_on(documents: Mapping[str, Document]) -> st.SearchStrategy[Filter]:
    """Filters, most of them on what the documents have."""
    there = [
        (name, one) for document in documents.values() for name in document.metadata for one in values(document, name)
    ]
    fresh = st.tuples(st.sampled_from(NAMES), text | integers.map(str))
    pairs = fresh | st.sampled_from([(name, shown(one)) for name, one in there]) if there else fresh
    ordered = st.builds(
        lambda pair, one: Filter(pair[0], one, pair[1]), pairs, st.sampled_from([*OPERATORS, "!=", "not>"])
    )
    dated = st.builds(Filter, st.just(PUBLISHED), st.sampled_from([*OPERATORS, "!=", "not>"]), st.sampled_from(DAYS))
    by_id = st.builds(Filter, st.just(DOCUMENT_ID), st.sampled_from(["=", "!="]), st.sampled_from([*IDS, "other", '"']))
    return st.one_of(ordered, ordered, ordered, dated, by_id)


def values(document: Document, field: str) -> list[Any]:
    value = document.metadata.get(field)
    return value if isinstance(value, list) else [] if value is None else [value]


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def number(value: object) -> float | None:
    if isinstance(value, str):
        plain = value.isascii() and re.fullmatch("[-+.0-9eE]+", value) is not None
        try:
            return float(value) if plain and abs(float(value)) < float("inf") else None
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def passes(document: Document, one: Filter) -> bool:
    if one.operator in ("!=", "not>"):
        return not passes(document, Filter(one.field, "=" if one.operator == "!=" else ">", one.value))
    compare = OPERATORS[one.operator]
    if one.field == DOCUMENT_ID:
        return document.id == one.value
    if one.field == PUBLISHED:
        return document.published is not None and compare(document.published, one.value)
    found = values(document, one.field)
    numbers = [made for value in found if (made := number(value)) is not None]
    asked = number(one.value)
    long_id = re.fullmatch(r"[+-]?[0-9]{16,}", one.value) is not None
    if asked is None or (one.operator == "=" and long_id):
        ordered = one.operator == "=" or not numbers
        return ordered and any(compare(shown(value), one.value) for value in found)
    return any(compare(made, asked) for made in numbers)


@pytest.mark.parametrize(
    ("make_store", "examples"),
    [("local", 40), ("elasticsearch", 20)],
    indirect=["make_store"],
    ids=["local", "server"],
)
def test_filters_pass_what_python_says(make_store: Callable[[], Store], examples: int) -> None:
    store = make_store()
    store.prepare(Layout())

    @settings(
        max_examples=examples,
        phases=[Phase.generate],  # an example is a store, which takes minutes to shrink
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(steps, st.data())
    def check(written: list[dict[str, dict[str, Any] | None]], data: st.DataObject) -> None:
        store.delete(IDS)
        there: dict[str, Document] = {}
        for step in written:
            made = {
                id_: make_document({"id": id_, "title": "", "text": "sea", **record}).document
                for id_, record in step.items()
                if record is not None
            }
            there = {id_: one for id_, one in (there | made).items() if step.get(id_, True) is not None}
            store.delete([id_ for id_, one in step.items() if one is None])
            write(store, [Entry(one, str(one.metadata)) for one in made.values()])
        scopes = data.draw(st.lists(st.lists(filters_on(there), min_size=1, max_size=2), min_size=4, max_size=12))
        shared = data.draw(st.lists(filters_on(there), max_size=1))
        asked = [Query("sea", filters=tuple(scope)) for scope in scopes]
        rankings = rank_all(store, asked, {"bm25": Bm25()}, filters=shared)
        for scope, ranking in zip(scopes, rankings, strict=True):
            both = [*shared, *scope]
            expected = {id_ for id_, one in there.items() if all(passes(one, condition) for condition in both)}
            assert isinstance(ranking, dict), ranking
            assert {id_ for id_, _ in ranking["bm25"]} == expected, both
            assert {one.id for one in store.scan(both)} == expected, both
            assert store.count(both) == len(expected), both

    check()
