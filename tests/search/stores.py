"""The stores that tests of all of them run on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ccheck.search import Store

SERVERS = {
    "elasticsearch": "elasticsearch_url",
    "elasticsearch-basic": "elasticsearch_basic_url",
    "elasticsearch-8": "elasticsearch_8_url",
}
"""The fixture of each server: its own rrf, without the licence for it, and Elasticsearch 8."""


@pytest.fixture(params=["local", *SERVERS])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens the store of that name anew at each call; tests run for each kind of store."""
    opened: list[Store] = []
    if request.param == "local":
        from ccheck.search.local import LocalStore

        def open_store(name: str = "store") -> Store:
            opened.append(LocalStore(tmp_path / name))
            return opened[-1]
    else:
        from ccheck.search.elastic import Connection, ElasticStore

        url = request.getfixturevalue(SERVERS[request.param])
        index = request.getfixturevalue("elasticsearch_index")

        def open_store(name: str = "store") -> Store:
            # The fixture removes the index of its own name only.
            opened.append(ElasticStore(Connection(url=url), index if name == "store" else f"{index}-{name}"))
            return opened[-1]

    yield open_store
    for store in opened:
        if store.name.endswith("-other") and store.info() is not None:
            store.drop()
        store.close()
