"""`ccheck index migrate` and `revert`: while a store is searched and written to, when it is interrupted, and back."""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import httpx
import pytest
from cli_runs import ccheck, jsonl, works
from elastic_indices import entry, ids, vector_of
from elastic_indices import filled as indexed
from elastic_stub import mapping
from searching import answer_all, answer_one, fill
from store_documents import DIMENSIONS, LAYOUT

from ccheck.cli.index_servers import INDEX_TYPES, _compared
from ccheck.core.errors import InvalidData, StoreChanged
from ccheck.core.layout import MAIN_VECTORS, Embedding, Layout
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import Bm25, Dense
from ccheck.core.types import Claim, Entry, Query
from ccheck.pipeline.migrate import Changes, Rankings, go_back, migrate, overlap
from ccheck.search.elastic import Connection, ElasticStore, mappings, moving, reading
from ccheck.search.elastic.errors import WriteBlocked
from ccheck.search.elastic.mappings import IndexOptions

DOCUMENTS, PAUSE = 60, 0.05
RETRIEVERS = {"bm25": Bm25(depth=10), "dense": Dense(depth=10)}
OTHER = Layout.with_vectors(Embedding("other-model", DIMENSIONS, "e" * 64, 128), LAYOUT.dense["passages"].chunking)


def numbered(number: int, digest: str = "1") -> Entry:
    return entry(f"d{number}", f"Sea level {number}", f"The sea rose, version {digest}.", digest)


def answered(before: Rankings, after: Rankings, remade: bool) -> str:
    """While others write, rankings of texts that are nearly equal are not the same twice."""
    assert before.keys() == after.keys() and all(before.values()) and all(after.values())
    return "checked"


@pytest.fixture
def filled(elasticsearch_url: str, elasticsearch_index: str) -> Iterator[ElasticStore]:
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        fill(store, LAYOUT, [numbered(number) for number in range(DOCUMENTS)])
        yield store


@pytest.fixture
def settings(filled: ElasticStore) -> Settings:
    return Settings(store=filled.name, recipe="bm25")


def agreeing(before: Rankings, after: Rankings, remade: bool) -> str:
    assert overlap(before, after) > 0.9
    return "checked"


def behind(store: ElasticStore) -> dict[str, bool]:
    return {one.name: one.in_use for one in moving.numbered(store.client, store.index)}


def until_set(stop: threading.Event, failures: list[str], act: Callable[[int], None]) -> threading.Thread:
    """A thread that acts again and again; what fails is kept, and the work goes on."""

    def run() -> None:
        number = 0
        while not stop.wait(PAUSE):
            try:
                act(number)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
                failures.append(repr(error)[:300])
            number += 1

    return threading.Thread(target=run)


def test_searches_and_writes_go_on(filled, settings, monkeypatch):
    """One thread searches for 5 hits; another changes a document, adds one and removes one at a time."""
    monkeypatch.setattr(reading, "AT_ONCE", 20)
    entries = [numbered(number) for number in range(DOCUMENTS)]
    digests = {one.document.id: one.digest for one in entries}
    done, failures, stop = Counter[str](), [], threading.Event()

    def search(number: int) -> None:
        asked = entries[number * 37 % DOCUMENTS]
        query = Query(asked.document.title, asked.passages[MAIN_VECTORS][0].vector)
        assert len(answer_one(reader, query, RETRIEVERS, k=5).hits) == 5
        done["answered"] += 1

    def write(number: int) -> None:
        changed, added = numbered(number % DOCUMENTS, f"changed {number}"), numbered(DOCUMENTS + number)
        removed = f"d{number * 7 % DOCUMENTS}"
        assert writer.upsert([changed, added]) == {}
        digests.update({one.document.id: one.digest for one in (changed, added)})
        writer.delete([removed])
        digests.pop(removed, None)
        done["written"] += 1

    connection = filled.client.connection
    with ElasticStore(connection, filled.index) as reader, ElasticStore(connection, filled.index) as writer:
        writer.prepare(LAYOUT)
        threads = [until_set(stop, failures, search), until_set(stop, failures, write)]
        for thread in threads:
            thread.start()
        try:
            wanted = Changes(IndexOptions("hnsw", shards=2))
            moved = migrate(Runtime(settings), wanted, answered, claims=[Claim("sea level")])
            at_switch = done.copy()
            while min(done[one] - at_switch[one] for one in ("answered", "written")) < 3 and not failures:
                time.sleep(PAUSE)
            back = go_back(Runtime(settings))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert failures == [] and done["answered"] > 3
    first, second = f"{filled.index}-000001", f"{filled.index}-000002"
    assert (moved.source, moved.target, moved.checked) == (first, second, "checked")
    assert (back.source, back.target) == (second, first)
    assert behind(filled) == {first: True, second: False}
    filled.publish()
    ids = [f"d{number}" for number in range(DOCUMENTS + done["written"])]
    assert filled.digests(ids) == digests and filled.count() == len(digests)
    settings_of = httpx.get(f"{filled.name}-000002").json()[second]
    assert settings_of["settings"]["index"]["number_of_shards"] == "2"
    vector = settings_of["mappings"]["properties"]["passages"]["properties"]["vector"]
    assert vector["index_options"]["type"] == "hnsw"


KILLED = """
import os, signal, sys
from ccheck.pipeline.migrate import Changes, migrate
from ccheck.core import pump
from ccheck.search.elastic import reading, moving
from ccheck.search.elastic.mappings import IndexOptions
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings

block = moving._block

def halfway(done, total):
    if sys.argv[2] == "halfway" and done >= total // 2:
        os.kill(os.getpid(), signal.SIGKILL)

def last_step(client, one, blocked):
    block(client, one, blocked)
    if blocked:
        os.kill(os.getpid(), signal.SIGKILL)

reading.AT_ONCE, pump.REMEMBERED_AFTER, moving._block = 20, 0, last_step
migrate(Runtime(Settings(store=sys.argv[1])), Changes(IndexOptions("hnsw")), lambda *_: "", on_documents=halfway)
"""


def test_a_killed_migration_goes_on(filled, settings):
    def kill(when: str) -> None:
        killed = subprocess.run([sys.executable, "-c", KILLED, filled.name, when], check=False)
        assert killed.returncode == -signal.SIGKILL

    kill("halfway")
    wanted = Changes(IndexOptions("hnsw"))
    first, second = f"{filled.index}-000001", f"{filled.index}-000002"
    assert behind(filled) == {first: True, second: False} and filled.count() == DOCUMENTS
    with pytest.raises(InvalidData, match="unfinished copy of a migration with other settings"):
        migrate(Runtime(settings), Changes(IndexOptions("flat")), agreeing)
    kill("at the last step")
    hasty = ElasticStore(Connection(filled.name.rpartition("/")[0], retry_seconds=0), filled.index)
    with hasty, pytest.raises(WriteBlocked, match="index migrate blocked them"):
        hasty.upsert([numbered(1, "2")])
    done = migrate(Runtime(settings), wanted, agreeing)
    assert done.copied < DOCUMENTS and done.documents == DOCUMENTS
    assert behind(filled) == {first: False, second: True}
    assert filled.upsert([numbered(1, "2")]) == {}


@pytest.mark.parametrize("server", ["elasticsearch_url", "elasticsearch_8_url"])
def test_vectors_are_copied(request, server):
    """One server keeps them beside `_source`, the other within, and refuses a request that asks for them."""
    with indexed(request.getfixturevalue(server), LAYOUT, [numbered(number) for number in range(9)]) as store:
        done = migrate(Runtime(Settings(store=store.name, recipe="bm25")), Changes(IndexOptions("hnsw")), agreeing)
        assert (done.documents, done.target) == (9, f"{store.index}-000002")
        (found,) = answer_all(store, [Query("x", vector_of("d5 0"))], {"dense": Dense(depth=1)}, k=1)
        assert ids(found) == ["d5"] and getattr(found, "hits", ())[0].score == pytest.approx(1, abs=1e-4)
        assert go_back(Runtime(Settings(store=store.name))).target == f"{store.index}-000001"
        assert f"; the index {store.index}-000002 with 9 documents" in store.removal()
        assert store.drop() == [] == moving.numbered(store.client, store.index)


def test_a_check_that_fails_leaves_the_alias(filled, settings):
    def different(before: Rankings, after: Rankings, remade: bool) -> str:
        raise InvalidData("too different")

    with pytest.raises(InvalidData, match="too different"):
        migrate(Runtime(settings), Changes(IndexOptions("flat")), different)
    assert behind(filled)[f"{filled.index}-000001"]
    assert filled.upsert([numbered(1, "2")]) == {}


def test_who_knows_another_model_neither_searches_nor_writes(filled, monkeypatch):
    """Vectors of both models have as many dimensions: only ccheck can tell them apart."""
    monkeypatch.setattr(moving, "LEASE_SECONDS", 0.01)
    monkeypatch.setattr("ccheck.search.elastic.bulk.LEASE_SECONDS", 0.01)
    filled.info()
    client, alias = filled.client, filled.index
    with ElasticStore(client.connection, alias) as writing:
        writing.prepare(LAYOUT)
        source = moving.in_use(client, alias)
        target = moving.begin(client, alias, source, OTHER, IndexOptions())
        move = moving.Move(client, alias, source, target)
        move.catch_up(moving.as_stored, lambda documents: None)
        move.switch(moving.as_stored, lambda documents: None)
        with pytest.raises(StoreChanged, match="other-model"):
            answer_all(filled, [Query("sea", vector_of("x"))], RETRIEVERS, k=5)
        with pytest.raises(InvalidData, match=r"other-model.*This ingest would use test-model"):
            writing.upsert([numbered(1, "2")])
    filled.info()
    answer_one(filled, Query("sea", vector_of("x")), RETRIEVERS, k=5)


def test_the_commands(filled, tmp_path):
    """Over the command line, with what the store of others puts beside it."""
    httpx.put(f"{filled.name}-archive").raise_for_status()
    ran = ccheck("index", "migrate", "--store", filled.name)
    assert ran.code == 2 and "nothing would change" in ran.err
    ran = ccheck("index", "migrate", "--store", filled.name, "--index-type", "flat", "--no-switch", "--json", "-q")
    assert ran.code == 0 and ran.objects[0]["switched"] is False, ran.err
    listed = ccheck("index", "list", "--store", filled.name, "--json").objects
    assert [one["in_use"] for one in listed] == [True, False] and "unfinished copy" in listed[1]["role"]
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": "1", "text": "sea level"})
    ran = ccheck("index", "migrate", "--store", filled.name, "--index-type", "flat", "--claims", claims)
    assert ran.code == 0 and "100% in common" in ran.err and f"{filled.index}-000002, with {DOCUMENTS}" in ran.err
    works("index", "delete", "--store", f"{filled.name}-000001", "--yes")
    ran = ccheck("index", "revert", "--store", filled.name)
    assert ran.code == 4 and "no index is left" in ran.err


def test_rankings_that_differ_leave_the_alias():
    assert "50% in common" in _compared({"1": ["a", "b"]}, {"1": ["b", "c"]}, 0.5)
    with pytest.raises(InvalidData, match=r"0% in common, less than 50%.*the alias stays where it is"):
        _compared({"1": ["a"]}, {"1": ["b"]}, 0.5)


def test_options_that_only_another_version_has_are_ignored(stub):
    wanted = {"index_type": "flat", "shards": None, "replicas": None}
    move = {"alias": "papers", "from": "papers-000000", "copied": {}, "wanted": wanted}
    meta = {"ccheck": {"format": 1, "layout": {}}, moving.MOVE: move}
    stub.answers["GET", "/papers-*,papers"] = [(200, mapping(meta))]
    with ElasticStore(Connection(stub.url), "papers") as store:
        (one,) = moving.numbered(store.client, "papers")
    assert one.wanted == IndexOptions("flat")


def test_creating_with_options(elasticsearch_url, elasticsearch_index):
    store = f"{elasticsearch_url}/{elasticsearch_index}"
    given = ("--no-dense", "--shards", 3)
    assert ccheck("index", "create", "--store", store, *given).code == 0
    assert "exists" in ccheck("index", "create", "--store", store).err
    made = httpx.get(f"{store}-000001").json()[f"{elasticsearch_index}-000001"]
    assert made["settings"]["index"]["number_of_shards"] == "3" and made["aliases"][elasticsearch_index]


def test_the_index_types_are_those_of_the_store():
    assert INDEX_TYPES == mappings.INDEX_TYPES
