"""`ccheck index delete` and writing, where the index belongs to others as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cli_runs import ccheck
from elastic_stub import MAPPING, Stub
from filling import fill

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.layout import Layout
from ccheck.core.types import Document, Entry
from ccheck.search.elastic import Connection, ElasticStore


@pytest.fixture
def made(elasticsearch_url: str, elasticsearch_index: str) -> Iterator[httpx.Client]:
    """A store with three documents."""
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        fill(store, Layout(), [Entry(Document(f"d{n}", "Sea", "Text.", {"year": 2000 + n}), "1") for n in range(3)])
    with httpx.Client(base_url=f"{elasticsearch_url}", timeout=60) as client:
        yield client


def alias(client: httpx.Client, index: str, name: str, **conditions: Any) -> None:
    action = {"add": {"index": index, "alias": name, **conditions}}
    client.post("/_aliases", json={"actions": [action]}).raise_for_status()


def documents(client: httpx.Client, index: str) -> int:
    return int(client.get(f"/{index}/_count").json()["count"])


def test_delete_says_what_goes(made: httpx.Client, elasticsearch_url: str, elasticsearch_index: str) -> None:
    store = f"{elasticsearch_url}/{elasticsearch_index}"
    ran = ccheck("index", "delete", "--store", store, stdin="n\n")
    said = f"the index {elasticsearch_index}-000001 with 3 documents ("
    assert ran.code == 0 and said in " ".join(ran.err.split()) and f"its alias {elasticsearch_index}?" in ran.err
    assert " MB)" in ran.err and documents(made, elasticsearch_index) == 3
    assert ccheck("index", "delete", "--store", store, "--yes").code == 0
    assert made.get(f"/{elasticsearch_index}-000001").status_code == 404


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"filter": {"range": {"metadata.year.as_number": {"gte": 2002}}}}, "an alias with a filter"),
        ({"routing": "a"}, "an alias with a routing"),
        ({"search_routing": "a"}, "an alias with a routing"),
        ({}, "also used by the alias"),
    ],
)
def test_what_is_a_part_or_used_by_others_is_not_removed(
    made: httpx.Client, elasticsearch_url: str, elasticsearch_index: str, conditions: dict[str, Any], said: str
) -> None:
    name = f"{elasticsearch_index}-view"
    alias(made, f"{elasticsearch_index}-000001", name, **conditions)
    ran = ccheck("index", "delete", "--store", f"{elasticsearch_url}/{name}", "--yes")
    assert ran.code == 5 and said in " ".join(ran.err.split()), ran.err
    for other in (elasticsearch_index, f"{elasticsearch_index}-000001"):
        ran = ccheck("index", "delete", "--store", f"{elasticsearch_url}/{other}", "--yes")
        assert ran.code == 5 and "also used by the alias" in " ".join(ran.err.split()) and name in ran.err
    assert documents(made, f"{elasticsearch_index}-000001") == 3
    with ElasticStore(Connection(elasticsearch_url), name) as store:
        if conditions:
            with pytest.raises(InvalidData, match=f"{said}.*You can search it, but to write"):
                store.prepare(Layout())
        else:
            store.prepare(Layout())


def test_an_index_is_removed_by_its_own_name_too(
    made: httpx.Client, elasticsearch_url: str, elasticsearch_index: str
) -> None:
    """Where no alias is left."""
    index = f"{elasticsearch_index}-000001"
    made.delete(f"/{index}/_alias/{elasticsearch_index}").raise_for_status()
    ran = ccheck("index", "delete", "--store", f"{elasticsearch_url}/{index}", stdin="y\n")
    assert ran.code == 0 and "its alias" not in ran.err
    assert made.get(f"/{index}").status_code == 404


def test_an_alias_that_takes_no_writes(made: httpx.Client, elasticsearch_url: str, elasticsearch_index: str) -> None:
    alias(made, f"{elasticsearch_index}-000001", elasticsearch_index, is_write_index=False)
    with (
        ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store,
        pytest.raises(InvalidData, match="is_write_index is false"),
    ):
        store.prepare(Layout())


@pytest.mark.parametrize("name", ["papers", "papers-000001"])
def test_a_data_stream_is_neither_written_to_nor_removed(stub: Stub, name: str) -> None:
    """The test nodes have no data streams: this is what a server with them answers."""
    described = {"papers-000001": MAPPING["papers-000001"] | {"aliases": {}, "data_stream": "papers"}}
    stub.answers["GET", f"/{name}"] = [(200, described)]
    with ElasticStore(Connection(stub.url), name) as store:
        for asks in (store.drop, store.removal, lambda: store.prepare(Layout())):
            with pytest.raises(InvalidData, match="the data stream papers"):
                asks()
    assert not [one for one in stub.seen if one.method in ("DELETE", "PUT")]


@pytest.mark.parametrize(
    "name", ["papers*", "a,b", "-papers", "_all", "*", "papers-*,-papers-1", "%3Cpapers-%7Bnow%7D%3E"]
)
def test_a_name_that_means_several_is_refused(name: str) -> None:
    ran = ccheck("index", "delete", "--store", f"http://127.0.0.1:9/{name}", "--yes")
    said = " ".join(ran.err.split())
    assert ran.code == UsageError.exit_code and ("name one index" in said or "does not name an index" in said)
