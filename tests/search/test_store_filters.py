"""What filters can be on, in every kind of store."""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from searching import rank_all, write

from ccheck.core.errors import UsageError
from ccheck.core.layout import Layout
from ccheck.core.stages import Bm25
from ccheck.core.types import Document, Entry, Query, Value
from ccheck.ingest.documents import make_document
from ccheck.search import Filter, Store, parse_filter
from ccheck.search.filters import DOCUMENT_ID, PUBLISHED, Kind, as_number, refuse_unfit

METADATA: list[dict[str, Value]] = [
    {"year": 2011, "journal": "Nature", "volume": "41", "mixed": 1, "tags": ["a", "b"], "pages": "1-9", "open": True},
    {"year": 2015, "journal": "Science", "volume": "1.5", "mixed": "x", "tags": ["7"], "date": "2015-03-31"},
    {"year": "2019", "volume": -3, "nothing": None, "empty": [], "published": "soon", "dotted.name": 1},
]
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("year", "volume", "dotted.name"), "numbers"),
    **dict.fromkeys(("mixed", "tags"), "either"),
    **dict.fromkeys(("journal", "pages", "open", "date"), "text"),
}


@pytest.fixture
def store(make_store: Callable[[], Store]) -> Store:
    store = make_store()
    store.prepare(Layout())
    add(store, *METADATA)
    return store


def add(store: Store, *metadata: dict[str, Value], first: int = 0, published: str | None = None) -> None:
    write(store, [Entry(Document(f"d{first + n}", "T", "sea", one, published), "1") for n, one in enumerate(metadata)])


def test_fields_are_those_that_a_document_has(store: Store) -> None:
    assert dict(store.fields()) == KINDS
    add(store, {"year": "n.d.", "doi": "10.5555/aB"}, first=3, published="2015-12-31")
    assert dict(store.fields()) == KINDS | {"year": "either", "doi": "text", PUBLISHED: "dates"}
    add(store, {"doi": "https://doi.org/10.5555/aB"}, first=4)
    for one, count in {"=10.5555/Ab": 2, "=https://doi.org/10.5555/AB": 2, "!=10.5555/ab": 3, "=10.5555/a": 0}.items():
        assert store.count([parse_filter(f"doi{one}")]) == count, one


def test_a_store_without_metadata(make_store: Callable[[], Store]) -> None:
    store = make_store()
    store.prepare(Layout())
    add(store, {})
    assert dict(store.fields()) == {}
    with pytest.raises(UsageError, match=r"'a=1' can't be applied: no document in .* has metadata"):
        refuse_unfit([parse_filter("a=1")], store.fields(), store.name)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("yaer>=2010", "no document in {} has a field 'yaer'; did you mean 'year'? The fields are date,"),
        ("Year>=2010", "has a field 'Year'; did you mean 'year'? The fields are"),
        ("zzz=1", "a field 'zzz'. The fields are date, dotted.name, journal, mixed, open, pages, tags, volume, year"),
        ("year>=abc", "the filter 'year>=abc' can't be applied to {}: year holds numbers, and 'abc' is not a number"),
        ("journal>=2010", "journal holds text, which >= compares letter by letter, but '2010' is a num"),
        ("published<2015-01-01", "no document in {} has a date, so conditions on"),
    ],
)
def test_filters_that_are_mistakes_are_refused(store: Store, condition: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said.format(store.name))):
        refuse_unfit([parse_filter("year>=0"), parse_filter(condition)], store.fields(), store.name)


def test_numbers_in_text() -> None:
    assert not any(as_number(one) for one in ["2015-03-31", "1-9", "1.2.3", "+", "", ".", "٣", "1\n", "1e999", "5f"])
    assert [as_number(one) for one in ("5", "-5", "+5.25", "007", "5.", ".5", "1e5")] == [5, -5, 5.25, 7, 5, 0.5, 1e5]


@pytest.mark.parametrize(
    ("kind", "conditions"),
    [
        ("dates", "a>=2015 a<2015-01-31T10:00||+1d a<now-1d a<1700000000000"),
        *(("words", "a=b"), ("booleans", "a=true"), ("keys", "a.b=c")),
        *(("either", "a>1 a>b"), ("numbers", "a<=-1.5"), ("text", "a=5 a<b")),
    ],
)
def test_what_values_can_be_compared_with(kind: Kind, conditions: str) -> None:
    refuse_unfit([parse_filter(one) for one in conditions.split()], {"a": kind}, "s")


@pytest.mark.parametrize(
    ("kind", "condition", "said"),
    [
        ("words", "a>b", "full text, which can only be compared with = and !="),
        ("booleans", "a>true", "a is true or false. Write a=true"),
        ("booleans", "a=yes", "a is true or false"),
        ("dates", "a>=2011-13", "a holds dates, and '2011-13' is not a date"),
        ("dates", "a<soon", "a holds dates, and 'soon' is not a date. Write, for example, a<2015-01-31"),
        ("nested", "a=1", "a is in nested documents"),
        ("mixed", "a!=1", "a has a different type in each index of the alias"),
        ("other", "a=1", "a holds neither text nor numbers nor dates"),
    ],
)
def test_what_values_can_not_be_compared_with(kind: Kind, condition: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        refuse_unfit([parse_filter(condition)], {"a": kind}, "s")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("year>=2010", ("year", ">=", "2010")),
        (" year == '2010' ", ("year", "=", "2010")),
        ('journal!="New\nPhytologist"', ("journal", "!=", "New\nPhytologist")),
        ("a='", ("a", "=", "'")),
        ("a=''", ("a", "=", "")),
        ("a='b\"", ("a", "=", "'b\"")),
        ("a<b=c", ("a", "<", "b=c")),
        ("journal == 'a=b>c'", ("journal", "=", "a=b>c")),
        ("authors.name=Keeling, C. D.", ("authors.name", "=", "Keeling, C. D.")),
        ("n<-1.5", ("n", "<", "-1.5")),
        ("Source title=Annals", ("Source title", "=", "Annals")),
        ("'Source title' = Annals", ("Source title", "=", "Annals")),
    ],
)
def test_a_condition_is_read(text: str, found: tuple[str, str, str]) -> None:
    one = parse_filter(text)
    assert (one.field, one.operator, one.value) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((one, "Quote a value") for one in ("a=>5", "a<>5")),
        *((one, "FIELD=VALUE") for one in ("a", "=5", "year=", 'a"b=1')),
        ("a=\udcff", "UTF-8"),
    ],
)
def test_what_is_no_condition_says_why(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_filter(text)


def test_days_months_and_years_by_which_documents_were_published() -> None:
    assert parse_filter("published< 2015-01-31 ") == Filter(PUBLISHED, "<", "2015-01-31")
    for said, meant in (("<2015", "<2015-01-01"), (">2015", ">2015-12-31"), ("<=2016-02", "<=2016-02-29")):
        assert str(parse_filter(f"published{said}")) == f"published{meant}"
    for wrong in ("15", "31.1.2015", "2015-02-30", "2015-13", "last year"):
        with pytest.raises(UsageError, match="2015-01-31"):
            parse_filter(f"published<{wrong}")


NAMES = [
    *('a"b', '"', 'a"', "a\\b", "a\\", "a\\u0062", "ab", "a.b", "a..b", "a", "a[0]", "[0]", "0", "a*", "*", "?", "$"),
    *("$.a", '$."a"', "a b", "a'b", "é", "e\u0301", "\u2028", "😀", "a%b", "a_b", "{a}", "a,b", "type", "key", "field"),
    *("as_number", "metadata", "ingested", "NULL", "a/b", "<a>", "#a", "A"),
]
"""Not made up: a server's index has a limited number of fields."""
IDS = [f"d{number}" for number in range(6)]
DAYS = ["2011-01-31", "2011-02-01", "2015"]
COMPARED = operator.eq, operator.lt, operator.le, operator.gt, operator.ge
OPERATORS: dict[str, Callable[[Any, Any], bool]] = dict(zip("= < <= > >=".split(), COMPARED, strict=True))

# Without the letters that are part of a number in Java and of none here, as in 5f.
text = st.text("ab\"\\.-+e109 *%_[ßé😀'", max_size=4) | st.from_regex(r"[+-]?[0-9]{1,3}\.?[0-9]?", fullmatch=True)
integers = st.integers(-3, 12) | st.sampled_from([2**53 + 1, 2**53, -(2**63), 10**30])
scalar = text | integers | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
metadata = st.dictionaries(st.sampled_from(NAMES), scalar | st.lists(scalar, max_size=3), max_size=4)
record = st.builds(lambda day, rest: rest | ({"date": day} if day else {}), st.sampled_from([None, *DAYS]), metadata)
steps = st.lists(st.dictionaries(st.sampled_from(IDS), st.none() | record, min_size=1), min_size=1, max_size=3)
"""What is written at once: documents, and those that are removed."""

STEADY: Any = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


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
    ("make_store", "examples"), [("local", 40), ("elasticsearch", 20)], indirect=["make_store"], ids=["local", "server"]
)
def test_filters_pass_what_python_says(make_store: Callable[[], Store], examples: int) -> None:
    store = make_store()
    store.prepare(Layout())

    @settings(max_examples=examples, phases=[Phase.generate], **STEADY)  # shrinking a store takes minutes
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
