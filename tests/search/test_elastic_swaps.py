"""A store's name goes to somebody else's index while ccheck writes: at every position between two requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_runs import ccheck, jsonl
from elastic_indices import LAYOUT, entry, node_client  # noqa: F401 (a fixture)
from filling import fill
from tiny_embedder import TinyEmbedder

from ccheck.cli import index_documents
from ccheck.core.errors import CcheckError, InvalidData
from ccheck.core.layout import Chunking
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.ingest import Encoders, ingest, run
from ccheck.ingest.encoders import DenseEncoder
from ccheck.pipeline.enrich import Enricher
from ccheck.pipeline.migrate import Changes, migrate
from ccheck.search.elastic import Connection, ElasticStore, JoinedStore, bulk, moving, reading
from ccheck.search.elastic.client import Client
from ccheck.search.elastic.companion import Companion
from ccheck.search.elastic.enrich import Beside, InPlace, open_source
from ccheck.search.elastic.mappings import IndexOptions

DOCUMENTS, AT_ONCE, THEIRS = 24, 6, 8
Swap = Callable[[httpx.Client, str], None]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests for a few documents."""
    monkeypatch.setattr(run, "BATCH_DOCUMENTS", 2 * AT_ONCE)
    monkeypatch.setattr(bulk, "CHUNK_DOCUMENTS", AT_ONCE)


class Hook:
    """Does something before the n-th request; counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, position: int, action: Callable[[], None]) -> None:
        send, self.position, self.action, self.seen = Client.send, position, action, 0

        def hooked(client: Client, *asked: Any, **more: Any) -> dict[str, Any]:
            self.seen += 1
            if self.seen == self.position:
                self.action()
            return send(client, *asked, **more)

        monkeypatch.setattr(Client, "send", hooked)

    @property
    def done(self) -> bool:
        return self.seen >= self.position


def make_theirs(client: httpx.Client, name: str) -> None:
    """Somebody else's index, with ids of ours among its documents."""
    client.put(f"/{name}", json={"mappings": {"properties": {"body": {"type": "text"}}}}).raise_for_status()
    for number in range(THEIRS):
        source = {"body": f"theirs {number}"}
        client.put(f"/{name}/_doc/d{number}", json=source, params={"refresh": "true"}).raise_for_status()


def state(client: httpx.Client, name: str) -> tuple[Any, ...]:
    """All that a write could change: documents, their versions, fields, settings."""
    client.post(f"/{name}/_refresh").raise_for_status()
    hits = client.post(f"/{name}/_search", json={"size": 100, "version": True, "seq_no_primary_term": True}).json()
    found = {one["_id"]: (one["_source"], one["_seq_no"], one["_version"]) for one in hits["hits"]["hits"]}
    (one,) = client.get(f"/{name}").json().values()
    own = {alias for alias in one["aliases"] if "-writes-" in alias}
    return found, one["mappings"], own, one["settings"]["index"].get("blocks")


def move_alias(client: httpx.Client, store: str) -> None:
    """The alias is moved, or made, before ccheck knows."""
    old = client.get(f"/_alias/{store}")
    actions: list[Any] = [{"remove": {"index": one, "alias": store}} for one in (old.json() if old.is_success else ())]
    actions.append({"add": {"index": f"{store}-theirs", "alias": store, "is_write_index": True}})
    client.post("/_aliases", json={"actions": actions}).raise_for_status()


def make_again(client: httpx.Client, store: str) -> None:
    """The index itself is deleted, and made again with the same name and alias."""
    client.delete(f"/{store}-000001")
    make_theirs(client, f"{store}-000001")
    client.post("/_aliases", json={"actions": [{"add": {"index": f"{store}-000001", "alias": store}}]})


@contextmanager
def swapped(
    monkeypatch: pytest.MonkeyPatch, client: httpx.Client, store: str, swap: Swap, position: int
) -> Iterator[Hook]:
    """Swaps before the request at this position. Their index must be as it was then."""
    at_swap: dict[str, Any] = {}
    theirs = f"{store}-theirs" if swap is move_alias else f"{store}-000001"
    if swap is move_alias:
        make_theirs(client, theirs)

    def act() -> None:
        swap(client, store)
        at_swap["state"] = state(client, theirs)

    with monkeypatch.context() as patching:
        hook = Hook(patching, position, act)
        yield hook
    if hook.done:
        found, mapped, own, blocks = state(client, theirs)
        assert (found, mapped, blocks) == (at_swap["state"][0], at_swap["state"][1], at_swap["state"][3]), position
        assert own == at_swap["state"][2] == set(), position
    for index in client.get("/_cat/indices", params={"h": "index"}).text.split():
        if index.startswith(store):
            client.delete(f"/{index}").raise_for_status()


@pytest.mark.parametrize(
    ("swap", "vectors", "there", "lease"),
    [
        (move_alias, False, False, 5.0),
        (move_alias, True, True, 0.0),
        (make_again, False, True, 5.0),
        (make_again, True, False, 0.0),
    ],
)
def test_an_ingest_writes_to_no_other_index(
    monkeypatch: pytest.MonkeyPatch,
    client: httpx.Client,
    elasticsearch_url: str,
    elasticsearch_index: str,
    tmp_path: Path,
    swap: Swap,
    vectors: bool,
    there: bool,
    lease: float,
) -> None:
    """Into a new store, and into one that has some of the documents, with another text."""
    monkeypatch.setattr(bulk, "LEASE_SECONDS", lease)
    corpus = jsonl(tmp_path / "corpus.jsonl", [{"_id": f"d{n}", "text": f"the sea {n}"} for n in range(DOCUMENTS)])
    position, done, told = 0, True, 0
    while done:
        position += 1
        embedder = TinyEmbedder() if vectors else None
        with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
            if there:
                old = jsonl(tmp_path / "old.jsonl", [{"_id": f"d{n}", "text": f"old {n}"} for n in range(AT_ONCE)])
                ingest(str(old), store, embedder)
            with swapped(monkeypatch, client, elasticsearch_index, swap, position) as hook:
                try:
                    ingest(str(corpus), store, embedder)
                except CcheckError as error:
                    assert hook.done, (position, error)
                    told += "were written or removed, and none elsewhere" in str(error)
                done = hook.done
    assert position > 12 and told >= 3, (position, told)


def test_a_store_that_was_moved_is_said_with_what_went_where(
    monkeypatch: pytest.MonkeyPatch, client: httpx.Client, elasticsearch_url: str, elasticsearch_index: str
) -> None:
    make_theirs(client, f"{elasticsearch_index}-theirs")
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        store.prepare(LAYOUT)
        assert store.upsert([entry(f"d{n}") for n in range(5)]) == {}
        move_alias(client, elasticsearch_index)
        assert store.upsert([entry(f"e{n}") for n in range(4)]) == {}  # to ours: within the lease
        with pytest.raises(InvalidData, match=f"9 in {elasticsearch_index}-000001 were written or removed, and none"):
            store.mark_ingested()
        monkeypatch.setattr(bulk, "LEASE_SECONDS", 0.0)
        with pytest.raises(InvalidData, match="did not make"):
            store.delete(["d1"])
    client.post(f"/{elasticsearch_index}-000001/_refresh").raise_for_status()
    assert client.get(f"/{elasticsearch_index}-000001/_count").json()["count"] == 9


def test_an_index_whose_own_alias_was_removed_is_written_to_all_the_same(
    client: httpx.Client, elasticsearch_url: str, elasticsearch_index: str
) -> None:
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        fill(store, LAYOUT, [entry("a")])
        client.delete(f"/{elasticsearch_index}-000001/_alias/*-writes-*").raise_for_status()
        assert store.upsert([entry("b")]) == {}
        store.publish()
        assert store.count() == 2


def test_what_was_shown_is_removed_and_nothing_else(
    client: httpx.Client, elasticsearch_url: str, elasticsearch_index: str
) -> None:
    names = [elasticsearch_index, f"{elasticsearch_index}-second"]
    for name in names:
        with ElasticStore(Connection(elasticsearch_url), name) as store:
            fill(store, LAYOUT, [entry("a")])
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        assert f"{elasticsearch_index}-000001 with 1 document" in store.removal()
        second = f"{elasticsearch_index}-second-000001"
        actions = [
            {"remove": {"index": f"{elasticsearch_index}-000001", "alias": elasticsearch_index}},
            {"remove": {"index": second, "alias": names[1]}},
            {"add": {"index": second, "alias": elasticsearch_index}},
        ]
        client.post("/_aliases", json={"actions": actions}).raise_for_status()
        with pytest.raises(InvalidData, match="Nothing was removed"):
            store.drop()
    assert client.get(f"/{second}/_count").json()["count"] == 1


@pytest.mark.parametrize("lease", [0.0, 5.0])
def test_documents_are_removed_from_no_other_index_than_the_one_that_was_shown(
    monkeypatch: pytest.MonkeyPatch,
    client: httpx.Client,
    elasticsearch_url: str,
    elasticsearch_index: str,
    lease: float,
) -> None:
    """The name goes to another store of ours, which has the same document, while the question is on the screen."""
    monkeypatch.setattr(bulk, "LEASE_SECONDS", lease)
    first, second = f"{elasticsearch_index}-000001", f"{elasticsearch_index}-second-000001"
    for name in (elasticsearch_index, f"{elasticsearch_index}-second"):
        with ElasticStore(Connection(elasticsearch_url), name) as store:
            fill(store, LAYOUT, [entry("a"), entry("b")])

    def agree(question: str, *, yes: bool) -> bool:
        actions = [
            {"remove": {"index": first, "alias": elasticsearch_index}},
            {"add": {"index": second, "alias": elasticsearch_index}},
        ]
        client.post("/_aliases", json={"actions": actions}).raise_for_status()
        return True

    monkeypatch.setattr(index_documents, "confirmed", agree)
    ran = ccheck("index", "remove", "a", "--store", f"{elasticsearch_url}/{elasticsearch_index}")
    assert ran.code == (0 if lease else InvalidData.exit_code), ran.err
    assert lease or f"0 in {first} were written or removed, and none elsewhere" in " ".join(ran.err.split())
    for index, left in ((first, 1 if lease else 2), (second, 2)):
        client.post(f"/{index}/_refresh").raise_for_status()
        assert client.get(f"/{index}/_count").json()["count"] == left


def test_a_migration_writes_to_no_other_index(
    monkeypatch: pytest.MonkeyPatch, client: httpx.Client, elasticsearch_url: str, elasticsearch_index: str
) -> None:
    """The copy is made again by somebody else, before any request after it was made."""
    monkeypatch.setattr(moving, "LEASE_SECONDS", 0.0)
    copy = f"{elasticsearch_index}-000002"
    position, done = 0, True
    while done:
        position += 1
        with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
            fill(store, LAYOUT, [entry(f"d{n}", f"Sea {n}") for n in range(DOCUMENTS)])
        kept: dict[str, Any] = {}

        def recreate(kept: dict[str, Any] = kept) -> None:
            if client.delete(f"/{copy}").is_success:
                make_theirs(client, copy)
                kept["state"] = state(client, copy)

        with monkeypatch.context() as patching:
            hook = Hook(patching, position, recreate)
            try:
                settings = Settings(store=f"{elasticsearch_url}/{elasticsearch_index}", recipe="bm25")
                migrate(Runtime(settings), Changes(IndexOptions("hnsw")), lambda before, after, remade: "")
            except CcheckError as error:
                assert kept, (position, error)
        done = hook.done
        if kept:
            after, before = state(client, copy), kept["state"]
            assert (after[0], after[1], after[3]) == (before[0], before[1], before[3]) and not after[2], position
            assert elasticsearch_index not in client.get(f"/{copy}").json()[copy]["aliases"], position
        for index in client.get("/_cat/indices", params={"h": "index"}).text.split():
            if index.startswith(elasticsearch_index):
                client.delete(f"/{index}").raise_for_status()
    assert position > 30


@pytest.mark.parametrize("in_place", [True, False])
def test_enriching_changes_no_other_index(
    monkeypatch: pytest.MonkeyPatch,
    client: httpx.Client,
    elasticsearch_url: str,
    elasticsearch_index: str,
    in_place: bool,
) -> None:
    """The index is made again by somebody else with the same ids in the same order, before any request."""
    monkeypatch.setattr(reading, "AT_ONCE", 3)
    encoders = Encoders((DenseEncoder(TinyEmbedder(), Chunking.whole(32)),))
    connection = Connection(elasticsearch_url, retry_seconds=1)
    theirs = f"{elasticsearch_index}-000001"
    position, done = 0, True
    while done:
        position += 1
        make_theirs(client, theirs)
        kept: dict[str, Any] = {}

        def recreate(kept: dict[str, Any] = kept) -> None:
            make_again(client, elasticsearch_index)
            kept["state"] = state(client, theirs)

        settings = Settings(store=f"{elasticsearch_url}/{theirs}")
        with monkeypatch.context() as patching, JoinedStore(connection, theirs) as store:
            source = open_source(store)
            enricher = Enricher(InPlace(source) if in_place else Beside(source, Companion(store)), encoders, settings)
            hook = Hook(patching, position, recreate)
            try:
                enricher.run()
            except CcheckError as error:
                assert kept, (position, error)
        done = hook.done
        if kept:
            assert state(client, theirs) == kept["state"], position
        for index in client.get("/_cat/indices", params={"h": "index"}).text.split():
            if elasticsearch_index in index:
                client.delete(f"/{index}").raise_for_status()
    assert position > 8
