"""A store's name goes to somebody else's index while ccheck writes: at every position between two requests."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from cli_runs import ccheck, jsonl
from elastic_indices import entry, make, put_all
from elastic_stub import MAPPING, Stub
from searching import fill, write
from store_documents import LAYOUT
from tiny_embedder import TinyEmbedder, encoders_of

from ccheck.core.errors import CcheckError, InvalidData, UsageError
from ccheck.core.layout import Chunking, Layout
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import Document, Entry
from ccheck.ingest import Encoders, ingest, run
from ccheck.ingest.encoders import DenseEncoder
from ccheck.pipeline.enrich import Enricher
from ccheck.pipeline.migrate import Changes, migrate
from ccheck.search.elastic import Connection, ElasticStore, JoinedStore, bulk, diagnose, moving, reading
from ccheck.search.elastic.client import Client
from ccheck.search.elastic.companion import Companion
from ccheck.search.elastic.enrich import Beside, InPlace, open_source
from ccheck.search.elastic.mappings import IndexOptions

DOCUMENTS, AT_ONCE, THEIRS = 24, 6, 8


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
    make(client, name, {"body": {"type": "text"}})
    put_all(client, name, {f"d{number}": {"body": f"theirs {number}"} for number in range(THEIRS)})


def state(client: httpx.Client, name: str) -> tuple[Any, ...]:
    """All that a write could change: documents, their versions, fields, aliases, settings."""
    client.post(f"/{name}/_refresh").raise_for_status()
    hits = client.post(f"/{name}/_search", json={"size": 100, "version": True, "seq_no_primary_term": True}).json()
    found = {one["_id"]: (one["_source"], one["_seq_no"], one["_version"]) for one in hits["hits"]["hits"]}
    (one,) = client.get(f"/{name}").json().values()
    return found, one["mappings"], one["aliases"].keys(), one["settings"]["index"].get("blocks")


def documents(client: httpx.Client, index: str) -> int:
    client.post(f"/{index}/_refresh").raise_for_status()
    return int(client.get(f"/{index}/_count").json()["count"])


@pytest.fixture
def opened(elasticsearch_url: str, elasticsearch_index: str) -> Callable[..., ElasticStore]:
    """Opens the store of the test's name, or one whose name goes on."""
    return lambda more="": ElasticStore(Connection(elasticsearch_url), f"{elasticsearch_index}{more}")


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


def at_each_request(
    monkeypatch: pytest.MonkeyPatch,
    client: httpx.Client,
    theirs: str,
    swap: Callable[[], object],
    begin: Callable[[], Callable[[], object]],
) -> tuple[int, list[str]]:
    """Runs what `begin` returns again and again, with a swap before its first request, before its second, and so on.

    Their index must stay as it was when it took the place; a swap that gives False was too early. Returns how often it
    ran, and what the runs said that failed.
    """
    position, done, said = 0, True, []
    while done:
        position += 1
        run, kept = begin(), []

        def act(kept: list[Any] = kept) -> None:
            if swap() is not False:
                kept.append(state(client, theirs))

        with monkeypatch.context() as patching:
            hook = Hook(patching, position, act)
            try:
                run()
            except CcheckError as error:
                assert kept, (position, error)
                said.append(str(error))
        done = hook.done
        assert kept == [state(client, theirs) for _ in kept], position
        prefix = theirs.rpartition("-")[0]
        for index in client.get("/_cat/indices", params={"h": "index"}).text.split():
            if prefix in index:
                client.delete(f"/{index}").raise_for_status()
    return position, said


@pytest.mark.parametrize(
    ("swap", "vectors", "there", "lease"),
    [
        (move_alias, False, False, 5.0),
        (move_alias, True, True, 0.0),
        (make_again, False, True, 5.0),
        (make_again, True, False, 0.0),
    ],
)
def test_an_ingest_writes_to_no_other_index(monkeypatch, client, opened, tmp_path, swap, vectors, there, lease):
    """Into a new store, and into one that has some of the documents, with another text."""
    monkeypatch.setattr(bulk, "LEASE_SECONDS", lease)
    corpus = jsonl(tmp_path / "corpus.jsonl", *({"_id": f"d{n}", "text": f"the sea {n}"} for n in range(DOCUMENTS)))
    old = jsonl(tmp_path / "old.jsonl", *({"_id": f"d{n}", "text": f"old {n}"} for n in range(AT_ONCE)))
    name = opened().index
    theirs = f"{name}-theirs" if swap is move_alias else f"{name}-000001"

    def begin() -> Callable[[], object]:
        store, encoders = opened(), encoders_of(TinyEmbedder()) if vectors else None
        if there:
            ingest(str(old), store, encoders)
        if swap is move_alias:
            make_theirs(client, theirs)

        def run() -> None:
            with store:
                ingest(str(corpus), store, encoders)

        return run

    position, said = at_each_request(monkeypatch, client, theirs, lambda: swap(client, name), begin)
    told = sum("were written or removed, and none elsewhere" in one for one in said)
    assert position > 12 and told >= 3, (position, told)


def test_a_store_that_was_moved_is_said_with_what_went_where(monkeypatch, client, opened):
    with opened() as store:
        make_theirs(client, f"{store.index}-theirs")
        store.prepare(LAYOUT)
        assert store.upsert([entry(f"d{n}") for n in range(5)]) == {}
        move_alias(client, store.index)
        assert store.upsert([entry(f"e{n}") for n in range(4)]) == {}  # to ours: within the lease
        with pytest.raises(InvalidData, match=f"9 in {store.index}-000001 were written or removed, and none"):
            store.mark_ingested()
        monkeypatch.setattr(bulk, "LEASE_SECONDS", 0.0)
        with pytest.raises(InvalidData, match="did not make"):
            store.delete(["d1"])
        assert documents(client, f"{store.index}-000001") == 9


def test_an_index_whose_own_alias_was_removed_is_written_to_all_the_same(client, opened):
    with opened() as store:
        fill(store, LAYOUT, [entry("a")])
        client.delete(f"/{store.index}-000001/_alias/*-writes-*").raise_for_status()
        write(store, [entry("b")])
        assert store.count() == 2


@pytest.fixture
def second(client: httpx.Client, opened: Callable[..., ElasticStore]) -> Callable[[], None]:
    """Two stores with the same documents; gives what moves the first one's name to the index of the second."""
    for more in ("", "-second"):
        with opened(more) as store:
            fill(store, LAYOUT, [entry("a"), entry("b")])
    name = opened().index

    def move() -> None:
        remove = {"remove": {"index": f"{name}-000001", "alias": name}}
        actions = [remove, {"add": {"index": f"{name}-second-000001", "alias": name}}]
        client.post("/_aliases", json={"actions": actions}).raise_for_status()

    return move


def test_what_was_shown_is_removed_and_nothing_else(client, opened, second):
    with opened() as store:
        assert f"{store.index}-000001 with 2 documents" in store.removal()
        client.delete(f"/{store.index}-second-000001/_alias/{store.index}-second").raise_for_status()
        second()
        with pytest.raises(InvalidData, match="Nothing was removed"):
            store.drop()
        assert documents(client, f"{store.index}-second-000001") == 2


@pytest.mark.parametrize("lease", [0.0, 5.0])
def test_documents_are_removed_from_no_other_index_than_the_one_that_was_shown(
    monkeypatch, client, opened, second, lease
):
    """The name goes to another store of ours, which has the same document, while the question is on the screen."""
    monkeypatch.setattr(bulk, "LEASE_SECONDS", lease)
    monkeypatch.setattr("ccheck.cli.index.confirmed", lambda *_, **__: second() is None)
    with opened() as store:
        ran = ccheck("index", "remove", "a", "--store", store.name)
    assert ran.code == (0 if lease else InvalidData.exit_code), ran.err
    first = f"{store.index}-000001"
    assert lease or f"0 in {first} were written or removed, and none elsewhere" in " ".join(ran.err.split())
    assert documents(client, first) == (1 if lease else 2)
    assert documents(client, f"{store.index}-second-000001") == 2


def test_a_migration_writes_to_no_other_index(monkeypatch, client, opened):
    """The copy is made again by somebody else, before any request after it was made."""
    monkeypatch.setattr(moving, "LEASE_SECONDS", 0.0)
    copy = f"{opened().index}-000002"

    def recreate() -> bool:
        there = client.delete(f"/{copy}").is_success
        if there:
            make_theirs(client, copy)
        return there

    def begin() -> Callable[[], object]:
        with opened() as store:
            fill(store, LAYOUT, [entry(f"d{n}", f"Sea {n}") for n in range(DOCUMENTS)])
            runtime = Runtime(Settings(store=store.name, recipe="bm25"))
        return lambda: migrate(runtime, Changes(IndexOptions("hnsw")), lambda before, after, remade: "")

    position, _ = at_each_request(monkeypatch, client, copy, recreate, begin)
    assert position > 30


@pytest.mark.parametrize("in_place", [True, False])
def test_enriching_changes_no_other_index(monkeypatch, client, opened, in_place):
    """The index is made again by somebody else with the same ids in the same order, before any request."""
    monkeypatch.setattr(reading, "AT_ONCE", 3)
    encoders = Encoders((DenseEncoder(TinyEmbedder(), Chunking.whole(32)),))
    name = opened().index
    theirs, connection = f"{name}-000001", Connection(str(client.base_url).rstrip("/"), retry_seconds=1)

    def begin() -> Callable[[], object]:
        make_theirs(client, theirs)

        def run() -> None:
            enricher.run()
            store.close()

        store = JoinedStore(connection, theirs)
        source = open_source(store)
        target = InPlace(source) if in_place else Beside(source, Companion(store))
        enricher = Enricher(target, encoders, Settings(store=store.name))
        return run

    position, _ = at_each_request(monkeypatch, client, theirs, lambda: make_again(client, name), begin)
    assert position > 8


# -- an index that belongs to others as well


@pytest.fixture
def made(client: httpx.Client, opened: Callable[..., ElasticStore]) -> httpx.Client:
    """A store with three documents."""
    with opened() as store:
        fill(store, Layout(), [Entry(Document(f"d{n}", "Sea", "Text.", {"year": 2000 + n}), "1") for n in range(3)])
    return client


def alias(client: httpx.Client, index: str, name: str, **conditions: Any) -> None:
    action = {"add": {"index": index, "alias": name, **conditions}}
    client.post("/_aliases", json={"actions": [action]}).raise_for_status()


def test_delete_says_what_goes(made, elasticsearch_url, elasticsearch_index):
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
    made, elasticsearch_url, elasticsearch_index, conditions, said
):
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


def test_an_index_is_removed_by_its_own_name_too(made, elasticsearch_url, elasticsearch_index):
    """Where no alias is left."""
    index = f"{elasticsearch_index}-000001"
    made.delete(f"/{index}/_alias/{elasticsearch_index}").raise_for_status()
    ran = ccheck("index", "delete", "--store", f"{elasticsearch_url}/{index}", stdin="y\n")
    assert ran.code == 0 and "its alias" not in ran.err
    assert made.get(f"/{index}").status_code == 404


def test_an_alias_that_takes_no_writes(made, elasticsearch_url, elasticsearch_index):
    alias(made, f"{elasticsearch_index}-000001", elasticsearch_index, is_write_index=False)
    store = ElasticStore(Connection(elasticsearch_url), elasticsearch_index)
    with store, pytest.raises(InvalidData, match="is_write_index is false"):
        store.prepare(Layout())


@pytest.mark.parametrize("name", ["papers", "papers-000001"])
def test_a_data_stream_is_neither_written_to_nor_removed(stub, name):
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
def test_a_name_that_means_several_is_refused(name):
    ran = ccheck("index", "delete", "--store", f"http://127.0.0.1:9/{name}", "--yes")
    said = " ".join(ran.err.split())
    assert ran.code == UsageError.exit_code and ("name one index" in said or "does not name an index" in said)


# -- privileges and life cycle policies, answered by a stub: the test node has neither


ASKS = ("POST", "/_security/user/_has_privileges")
POLICY = {"hot": {"actions": {"rollover": {"max_age": "30d"}}}, "delete": {"actions": {"delete": {}}}}


def found(stub: Stub, part: str, index: str = "articles") -> list[tuple[bool, str]]:
    stub.answers.setdefault(("GET", "/"), [(200, {"version": {"number": "9.5.3"}})])
    return [(ok, said) for name, ok, said in diagnose(Connection(stub.url), index) if name == part]


def test_a_server_without_security(stub):
    reason = "no handler found for uri [/_security/user/_has_privileges] and method [POST]"
    stub.answers[ASKS] = [(400, {"error": reason, "status": 400})]
    assert found(stub, "privileges") == [(True, "unknown: the server has no security, or does not say")]


@pytest.mark.parametrize(
    ("policy", "lifecycle", "said"),
    [
        ((200, {"hot-warm": {"policy": {"phases": POLICY}}}), {}, "with delete and rollover"),
        ((200, {"hot-warm": {"policy": {"phases": POLICY}}}), {"indexing_complete": "true"}, "with delete, which"),
        ((200, {"hot-warm": {"policy": {"phases": {"warm": {"actions": {"forcemerge": {}}}}}}}), {}, None),
        ((403, {"error": {"type": "security_exception"}, "status": 403}), {}, "grant the cluster privilege read_ilm"),
    ],
)
def test_a_policy_that_takes_the_store_apart_is_refused(stub, policy, lifecycle, said):
    settings = {"index": {"uuid": "u-1", "lifecycle": {"name": "hot-warm", **lifecycle}}}
    described = {"papers-000001": MAPPING["papers-000001"] | {"settings": settings}}
    stub.answers["GET", "/papers"] = [(200, described)]
    stub.answers["GET", "/_ilm/policy/hot-warm"] = [policy]
    with ElasticStore(Connection(stub.url), "papers") as store:
        if said is None:
            store.prepare(Layout())
            return
        with pytest.raises(InvalidData, match=said):
            store.prepare(Layout())
    assert not [one for one in stub.seen if one.method == "PUT"]
    ((ok, problem),) = found(stub, "life cycle", "papers")
    assert not ok and "POST papers-000001/_ilm/remove" in problem
