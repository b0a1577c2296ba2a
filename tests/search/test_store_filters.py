"""What filters can be on, in every kind of store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from filling import write

from ccheck.core.errors import UsageError
from ccheck.core.layout import Layout
from ccheck.core.types import Document, Entry, Value
from ccheck.search import Store, parse_filter
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.filters import PUBLISHED, Filter, Kind, as_number, refuse_ordered_ids, refuse_unfit

METADATA: list[dict[str, Value]] = [
    {"year": 2011, "journal": "Nature", "volume": "41", "mixed": 1, "tags": ["a", "b"], "pages": "1-9", "open": True},
    {"year": 2015, "journal": "Science", "volume": "1.5", "mixed": "x", "tags": ["7"], "date": "2015-03-31"},
    {"year": "2019", "volume": -3, "nothing": None, "empty": [], "published": "soon", "dotted.name": 1},
]
KINDS: dict[str, Kind] = {
    "year": "numbers",
    "journal": "text",
    "volume": "numbers",
    "mixed": "either",
    "tags": "either",
    "pages": "text",
    "open": "text",
    "date": "text",
    "dotted.name": "numbers",
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
    add(store, {"year": "n.d.", "doi": "10.1/x"}, first=3, published="2015-12-31")
    assert dict(store.fields()) == KINDS | {"year": "either", "doi": "text", PUBLISHED: "dates"}


def test_a_store_without_metadata(make_store: Callable[[], Store]) -> None:
    store = make_store()
    store.prepare(Layout())
    add(store, {})
    assert dict(store.fields()) == {}
    with pytest.raises(UsageError, match=r"'a=1' can't be applied: no document in .* has metadata"):
        refuse_unfit([parse_filter("a=1")], store.fields(), store.name)


def test_what_is_not_after_a_day_has_another_date_or_none(store: Store) -> None:
    """Of four documents, one is from the end of 2015; the fixture's three have no date."""
    add(store, {"year": "n.d."}, first=3, published="2015-12-31")
    for day, passing in (("2015-12-30", 3), ("2015-12-31", 4), ("2016-01-01", 4)):
        assert store.count([Filter(PUBLISHED, "not>", day)]) == passing
    assert store.count([Filter("volume", "not>", "10")]) == store.count() - store.count([Filter("volume", ">", "10")])


@pytest.mark.parametrize(
    ("condition", "passing"),
    [
        ("year>=2015", 2),
        ("year!=2015", 2),
        ("volume<10", 2),
        ("volume=41", 1),
        ("journal>=Nature", 2),
        ("journal!=Nature", 2),
        ("mixed>=1", 1),
        ("mixed>=a", 1),
        ("tags=7", 1),
        ("pages=1-9", 1),
        ("date>=2015-03-31", 1),
        ("date=2015", 0),
        ("year>3000", 0),
    ],
)
def test_documents_that_pass_are_counted(store: Store, condition: str, passing: int) -> None:
    filters = [parse_filter(condition)]
    refuse_unfit(filters, store.fields(), store.name)
    assert store.count(filters) == passing
    assert store.count([*filters, Filter("year", ">", "0")]) == passing
    assert store.count() == 3


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (
            "yaer>=2010",
            "no document in {} has a field 'yaer'; did you mean 'year'? The fields are date, dotted.name, j",
        ),
        ("Year>=2010", "has a field 'Year'; did you mean 'year'? The fields are"),
        ("yaer!=2010", "has a field 'yaer'; did you mean 'year'?"),
        (
            "zzz=1",
            "has a field 'zzz'. The fields are date, dotted.name, journal, mixed, open, pages, tags, volume, year",
        ),
        ("nothing=1", "has a field 'nothing'"),
        ("empty=1", "has a field 'empty'"),
        ("year>=abc", "the filter 'year>=abc' can't be applied to {}: year holds numbers, and 'abc' is not a number"),
        ("year=abc", "year holds numbers, and 'abc' is not a number"),
        (
            "journal>=2010",
            "journal holds text, which >= compares letter by letter, but '2010' is a num",
        ),
        ("date>=2015", "date holds text"),
        ("pages<9", "pages holds text"),
        ("published<2015-01-01", "no document in {} has a date, so conditions on"),
    ],
)
def test_filters_that_are_mistakes_are_refused(store: Store, condition: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_unfit([parse_filter("year>=0"), parse_filter(condition)], store.fields(), store.name)
    assert said.format(store.name) in str(caught.value)


def test_numbers_in_text() -> None:
    assert not any(as_number(one) for one in ["2015-03-31", "1-9", "1.2.3", "+", "", ".", "٣", "1\n", "1e999", "5f"])
    assert [as_number(one) for one in ("5", "-5", "+5.25", "007", "5.", ".5", "1e5")] == [5, -5, 5.25, 7, 5, 0.5, 1e5]


# -- without a store


@pytest.mark.parametrize(
    ("kind", "condition", "said"),
    [
        ("words", "a>b", "full text, which can only be compared with = and !="),
        ("words", "a=b", None),
        ("words", "a!=2", None),
        ("booleans", "a=true", None),
        ("booleans", "a!=false", None),
        ("booleans", "a>true", "a is true or false. Write a=true"),
        ("booleans", "a=yes", "a is true or false"),
        ("dates", "a>=2015", None),
        ("dates", "a<2015-01", None),
        ("dates", "a<2015-01-31T10:00", None),
        ("dates", "a<now-1d", None),
        ("dates", "a<1700000000000", None),
        ("dates", "a<soon", "a holds dates, and 'soon' is not a date. Write, for example, a<2015-01-31"),
        ("dates", "a=201", "a holds dates"),
        ("nested", "a=1", "a is in nested documents"),
        ("mixed", "a!=1", "a has a different type in each index of the alias"),
        ("other", "a=1", "a holds neither text nor numbers nor dates"),
        ("either", "a>1", None),
        ("either", "a>b", None),
        ("numbers", "a<=-1.5", None),
        ("text", "a=5", None),
        ("text", "a!=5", None),
        ("text", "a<b", None),
    ],
)
def test_what_values_can_be_compared_with(kind: Kind, condition: str, said: str | None) -> None:
    if said is None:
        refuse_unfit([parse_filter(condition)], {"a": kind}, "s")
        return
    with pytest.raises(UsageError) as caught:
        refuse_unfit([parse_filter(condition)], {"a": kind}, "s")
    assert said in str(caught.value)


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
    ],
)
def test_a_condition_is_read(text: str, found: tuple[str, str, str]) -> None:
    one = parse_filter(text)
    assert (one.field, one.operator, one.value) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=>5", "Quote a value"),
        ("a<>5", "Quote a value"),
        ("a", "FIELD=VALUE"),
        ("=5", "FIELD=VALUE"),
        ("year=", "FIELD=VALUE"),
        ('a"b=1', "FIELD=VALUE"),
        ("a=\udcff", "UTF-8"),
    ],
)
def test_what_is_no_condition_says_why(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert said in str(caught.value)


def test_a_day_before_which_documents_were_published() -> None:
    assert parse_filter("published< 2015-01-31 ") == Filter(PUBLISHED, "<", "2015-01-31")
    for wrong in ("15", "31.1.2015", "2015-02-30"):
        with pytest.raises(UsageError, match="2015-01-31"):
            parse_filter(f"published<{wrong}")


def test_ids_have_no_order() -> None:
    # Put together here, so that it is not the same object as the constant.
    same, ordered = (Filter("".join(["_", "id"]), operator, "d1") for operator in ("=", "<"))
    refuse_ordered_ids([same, Filter("year", "<", "2")])
    with pytest.raises(UsageError, match="only be compared with"):
        refuse_ordered_ids([same, ordered])


def test_an_error_names_so_many_fields() -> None:
    fields: dict[str, Kind] = {f"f{number:04}": "text" for number in range(1_030)} | {PUBLISHED: "dates"}
    with pytest.raises(UsageError, match=r"The fields are f0000, .*, f0019 and 1,010 more$"):
        refuse_unfit([parse_filter("zz=1")], fields, "s")
    with pytest.raises(UsageError, match=r"The fields are f0000, .*, f0019$"):
        refuse_unfit([parse_filter("zz=1")], dict(list(fields.items())[:20]), "s")


# -- an index of others


PROPERTIES: dict[str, Any] = {
    "abstract": {"type": "text"},
    "name": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
    "day": {"type": "date"},
    "date": {"type": "date"},
    "cites": {"type": "long"},
    "year": {"type": "keyword"},
    "open": {"type": "boolean"},
    "authors": {"type": "nested", "properties": {"family": {"type": "keyword"}}},
    "place": {"type": "geo_point"},
    "unused": {"type": "long"},
}
SOURCE = {
    "abstract": "sea",
    "name": "N",
    "day": "2015-03-31",
    "cites": 3,
    "year": "999",
    "open": True,
    "authors": [{"family": "A"}],
    "place": [1, 2],
}


def test_fields_of_an_index_of_others(elasticsearch_url: str, elasticsearch_index: str) -> None:
    with httpx.Client(base_url=elasticsearch_url, timeout=60) as client:
        client.put(f"/{elasticsearch_index}", json={"mappings": {"properties": PROPERTIES}}).raise_for_status()
        client.put(f"/{elasticsearch_index}/_doc/1?refresh=true", json=SOURCE).raise_for_status()
        with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
            expected: dict[str, Kind] = {
                "abstract": "words",
                "name": "text",
                "day": "dates",
                "cites": "numbers",
                "year": "text",
                "open": "booleans",
                "authors.family": "nested",
                "place": "other",
            }
            assert dict(store.fields()) == expected
            assert store.count([parse_filter("cites>2")]) == 1 and store.count([parse_filter("cites>3")]) == 0
            for condition in ("published<2015-01-01", "year>=2010", "unused=1"):
                with pytest.raises(UsageError):
                    refuse_unfit([parse_filter(condition)], store.fields(), store.name)
            client.put(f"/{elasticsearch_index}/_doc/1?refresh=true", json=SOURCE | {"date": "2015"}).raise_for_status()
            assert store.fields()[PUBLISHED] == "dates"


def test_a_field_of_two_types_behind_an_alias(elasticsearch_url: str, elasticsearch_index: str) -> None:
    with httpx.Client(base_url=elasticsearch_url, timeout=60) as client:
        for number, type_ in enumerate(("long", "keyword")):
            index = f"{elasticsearch_index}-{number}"
            properties = {"abstract": {"type": "text"}, "year": {"type": type_}}
            aliases = {f"{elasticsearch_index}-both": {}}
            client.put(
                f"/{index}", json={"mappings": {"properties": properties}, "aliases": aliases}
            ).raise_for_status()
            client.put(f"/{index}/_doc/1?refresh=true", json={"abstract": "sea", "year": 2010}).raise_for_status()
    with ElasticStore(Connection(elasticsearch_url), f"{elasticsearch_index}-both") as store:
        assert dict(store.fields()) == {"abstract": "words", "year": "mixed"}
