"""Adding vectors to an index that others use: beside it and in place, on a real server."""

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import elastic_transport
import httpx
import pytest
from elastic_indices import ids, make, put, put_all
from elasticsearch_nodes import delete_indices
from searching import answer_all, info_of, rank_all
from tiny_embedder import TinyEmbedder, TinySparse, encoders_of

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.settings import Settings
from ccheck.core.stages import Analysis, Bm25, Dense, Sparse
from ccheck.core.types import Query
from ccheck.ingest.encoders import Encoders
from ccheck.pipeline import enrich as enriching
from ccheck.pipeline.enrich import Enricher
from ccheck.search import parse_filter
from ccheck.search.elastic import Connection, JoinedStore
from ccheck.search.elastic.companion import PREFIX, Companion
from ccheck.search.elastic.enrich import Beside, InPlace, open_source, refuse_in_place
from ccheck.search.elastic.errors import Denied

TEXTS = {
    "a": "Sea level has risen since 1900.",
    "b": "Glaciers are melting in the Alps.",
    "c": "Methane stays in the air for a decade.",
    "d": "Corals bleach when the sea is warm.",
}
PROPERTIES = {"headline": {"type": "text"}, "body": {"type": "text"}, "year": {"type": "integer"}}


@pytest.fixture(name="client", scope="module", params=["elasticsearch_url"])
def module_client(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=request.getfixturevalue(request.param), timeout=60) as client:
        yield client


on_both_versions = pytest.mark.parametrize("client", ["elasticsearch_url", "elasticsearch_8_url"], indirect=True)


def joined(client: httpx.Client, index: str) -> JoinedStore:
    return JoinedStore(Connection(str(client.base_url).rstrip("/")), index)


@pytest.fixture
def theirs(client: httpx.Client, elasticsearch_index: str) -> Iterator[JoinedStore]:
    """Somebody else's index of four documents in two shards."""
    make(client, elasticsearch_index, PROPERTIES, settings={"number_of_shards": 2, "number_of_replicas": 0})
    more = {"tags": ["x", ["y"]], "one": [1.50], "deep": {"er": None, "kept": "ä"}}
    papers = {
        id_: {"headline": f"Title {id_}", "body": text, "year": 2000 + number, **more}
        for number, (id_, text) in enumerate(TEXTS.items())
    }
    put_all(client, elasticsearch_index, papers)
    with joined(client, elasticsearch_index) as store:
        yield store
    delete_indices(store.client.connection.url, f"{PREFIX}{elasticsearch_index}*")


def beside(store: JoinedStore, embedder: TinyEmbedder | None = None, rate: float | None = None) -> Enricher:
    source = open_source(store)
    target = Beside(source, Companion(store))
    return Enricher(target, encoders_of(embedder or TinyEmbedder()), Settings(cache_bytes=0), rate)


def in_place(store: JoinedStore, embedder: TinyEmbedder | None = None) -> Enricher:
    source = open_source(store)
    encoders = encoders_of(embedder or TinyEmbedder(), whole=True)
    return Enricher(InPlace(source), encoders, Settings(cache_bytes=0))


def whole(client: httpx.Client, index: str) -> dict[str, Any]:
    """All that there is of an index: documents with their numbers, mapping, settings and aliases."""
    body = {"size": 1000, "seq_no_primary_term": True, "version": True}
    hits = client.post(f"/{index}/_search", json=body).json()["hits"]["hits"]
    for hit in hits:
        hit.pop("_score")
    return {"described": client.get(f"/{index}").json(), "hits": sorted(hits, key=lambda hit: str(hit["_id"]))}


@on_both_versions
def test_a_companion_adds_vectors_and_nothing_of_theirs_changes(client, theirs):
    before, embedder = whole(client, theirs.index), TinyEmbedder()
    report = beside(theirs, embedder).run()
    assert (report.read, report.made, report.failed) == (4, 4, 0)
    assert whole(client, theirs.index) == before

    info = info_of(theirs)
    assert not info.made_here and info.documents == 4
    assert info.layout.embedding == embedder.spec and info.dimensions == 8 and info.notices == ()
    assert info.details["companion"].startswith(f"{info.name.rpartition('/')[0]}/{PREFIX}{theirs.index}: 4 documents")

    # The vectors find what the words don't, and its text comes from theirs.
    query = Query("sea level", embedder.vector(f"Title c\n{TEXTS['c']}"))
    retrievers = {"bm25": Bm25(depth=10), "dense": Dense(depth=2)}
    (ranking,) = answer_all(theirs, [query], retrievers, k=10)
    found = {hit.document.id: hit for hit in getattr(ranking, "hits", ())}
    assert {"a", "c", "d"} <= set(found) and found["c"].document.text == TEXTS["c"]
    assert set(found["a"].scores) >= {"bm25", "rrf"} and found["a"].document.metadata["year"] == 2000
    # The same reciprocal ranks as anywhere else.
    (each,) = rank_all(theirs, [query], retrievers)
    places = {name: [id_ for id_, _ in one] for name, one in dict(each).items()}
    for id_, hit in found.items():
        expected = sum(1 / (60 + ranked.index(id_) + 1) for ranked in places.values() if id_ in ranked)
        assert hit.scores["rrf"] == pytest.approx(expected) and hit.score == hit.scores["rrf"]

    # The companion goes like any store, and the index is what it was.
    companion = Companion(theirs)
    assert companion.removal().startswith(f"the index {PREFIX}{theirs.index}-000001 with 4 documents")
    companion.drop()
    info = info_of(theirs)
    assert info.dimensions is None and "companion" not in info.details
    assert whole(client, theirs.index) == before


def test_terms_and_sparse_vectors_are_found_in_the_companion(theirs):
    sparse, stemmed = TinySparse(), Analysis(stemming=True)
    encoders = Encoders(sparse=sparse, analyses=(stemmed,))  # type: ignore[arg-type]  # it has what is used
    target = Beside(open_source(theirs), Companion(theirs))
    assert Enricher(target, encoders, Settings(cache_bytes=0)).run().made == 4
    retrievers = {"terms": Bm25(analysis=stemmed), "sparse": Sparse(), "bm25": Bm25()}
    query = Query("glacier", own={"sparse": sparse.vector("Sea")})
    (ranked,) = rank_all(theirs, [query], retrievers)
    # Only the companion's terms are stemmed.
    assert [[id_ for id_, _ in one] for one in dict(ranked).values()] == [["b"], ["a"], []]
    (joined,) = answer_all(theirs, [query], retrievers, k=4)
    assert sorted(ids(joined)) == ["a", "b"]


def test_filters_are_theirs(theirs, monkeypatch):
    embedder = TinyEmbedder()
    beside(theirs, embedder).run()
    queries = [Query("sea", embedder.vector("x"), filters=scope) for scope in ((), (parse_filter("year=2002"),))]

    def found() -> list[list[str]]:
        late = [parse_filter("year>=2001")]
        return [sorted(ids(one)) for one in answer_all(theirs, queries, {"dense": Dense(depth=4)}, k=4, filters=late)]

    assert found() == [["b", "c", "d"], ["c"]]
    # As if so many documents passed that their ids fit no request.
    monkeypatch.setattr("ccheck.search.elastic.companion.MOST_SCOPED", 0)
    assert found() == [["b", "c", "d"], ["c"]]


def test_chunks_are_grouped_by_paper(client, theirs):
    name = f"{theirs.index}-chunks"
    make(client, name, PROPERTIES | {"paper_id": {"type": "keyword"}})
    for number, text in enumerate([*TEXTS.values(), "Sea ice.", "Sea salt."]):
        put(client, name, str(number), {"headline": "T", "body": text, "paper_id": f"paper {number % 3}"})
    embedder = TinyEmbedder()
    with joined(client, name) as chunks:
        beside(chunks, embedder).run()
        query = Query("sea", embedder.vector(embedder.embedded[1]))
        (ranking,) = answer_all(chunks, [query], {"bm25": Bm25(depth=3), "dense": Dense(depth=3)}, k=10)
        papers = [hit.document.metadata["paper_id"] for hit in getattr(ranking, "hits", ())]
        assert sorted(papers) == ["paper 0", "paper 1", "paper 2"]


@on_both_versions
def test_keeping_up_reads_only_what_was_written(client, theirs):
    embedder = TinyEmbedder()
    beside(theirs, embedder).run()
    again = beside(theirs, embedder).run()
    assert (again.read, again.made, again.removed) == (0, 0, 0) and len(embedder.embedded) == 4

    put(client, theirs.index, "b", {"headline": "Title b", "body": "Glaciers grew."})  # another text
    put(client, theirs.index, "c", {"headline": "Title c", "body": TEXTS["c"], "year": 1999})  # the same text
    put(client, theirs.index, "e", {"headline": "New", "body": "Permafrost thaws."})
    client.delete(f"/{theirs.index}/_doc/a", params={"refresh": "true"}).raise_for_status()
    assert "has not seen 3 documents" in info_of(theirs).degraded[-1]

    # What they removed is not found, even before the companion knows.
    (early,) = answer_all(theirs, [Query("x", embedder.vector("x"))], {"dense": Dense(depth=9)}, k=9)
    assert sorted(ids(early)) == ["b", "c", "d"]

    report = beside(theirs, embedder).run()
    assert (report.read, report.made, report.unchanged, report.removed) == (3, 2, 1, 1)
    assert sorted(embedder.embedded[4:]) == ["New\nPermafrost thaws.", "Title b\nGlaciers grew."]
    (late,) = answer_all(theirs, [Query("x", embedder.vector("x"))], {"dense": Dense(depth=9)}, k=9)
    assert sorted(ids(late)) == ["b", "c", "d", "e"]
    client.delete(f"/{theirs.index}/_doc/d", params={"refresh": "true"}).raise_for_status()
    assert beside(theirs, embedder).run().removed == 1


def test_a_new_index_of_the_same_name_is_read_anew(client, theirs):
    embedder = TinyEmbedder()
    beside(theirs, embedder).run()
    client.delete(f"/{theirs.index}").raise_for_status()
    make(client, theirs.index, PROPERTIES)
    put(client, theirs.index, "b", {"headline": "Title b", "body": TEXTS["b"]})
    put(client, theirs.index, "z", {"headline": "Title z", "body": "Other."})
    report = beside(theirs, embedder).run()
    assert (report.read, report.made, report.unchanged, report.removed) == (2, 1, 1, 3)


def test_a_run_that_was_cut_off_goes_on(client, theirs, monkeypatch):
    monkeypatch.setattr(enriching, "BATCH", 1)
    monkeypatch.setattr("ccheck.core.pump.REMEMBERED_AFTER", 0.0)
    monkeypatch.setattr("ccheck.search.elastic.reading.AT_ONCE", 1)
    calls = iter(range(1, 9))

    def power_cut() -> None:
        if next(calls) == 4:
            raise KeyboardInterrupt

    first = TinyEmbedder(on_encode=power_cut)
    with pytest.raises(KeyboardInterrupt):
        beside(theirs, first).run()
    there = Companion(theirs)
    there.publish()
    assert 1 <= there.count() < 4
    assert "lacks" in info_of(theirs).degraded[-1]  # every answer says so

    second = TinyEmbedder()
    report = beside(theirs, second).run()
    assert report.made == len(second.embedded) == 4 - there.count() + report.made and theirs.count() == 4
    assert len({*first.embedded, *second.embedded}) == 4
    assert info_of(theirs).notices == ()


def test_what_a_companion_lost_is_made_again_and_it_loses_much_only_if_agreed(client, theirs, monkeypatch):
    def remove(index: str, *lost: str) -> None:
        for id_ in lost:
            client.delete(f"/{index}/_doc/{id_}", params={"refresh": "true"}).raise_for_status()

    beside(theirs).run()
    remove(f"{PREFIX}{theirs.index}", "a")
    report = beside(theirs).run()
    assert (report.made, report.unchanged, beside(theirs).run().read) == (1, 3, 0)
    monkeypatch.setattr("ccheck.search.elastic.enrich.FEW_REMOVED", 1)
    remove(theirs.index, "a", "b")
    for _ in range(2):
        with pytest.raises(InvalidData, match="find 2 of the 4 documents"):
            beside(theirs).run()
    target = Beside(open_source(theirs), Companion(theirs), agreed=True)
    assert Enricher(target, encoders_of(TinyEmbedder()), Settings(cache_bytes=0)).run().removed == 2


def test_without_the_privilege_to_ask_for_numbers_digests_tell(client, theirs, monkeypatch):
    monkeypatch.setattr("ccheck.search.elastic.reading.shards", Mock(side_effect=Denied("no monitor")))
    embedder = TinyEmbedder()
    assert beside(theirs, embedder).run().made == 4
    client.delete(f"/{theirs.index}/_doc/a", params={"refresh": "true"}).raise_for_status()
    report = beside(theirs, embedder).run()
    assert (report.read, report.made, report.unchanged, report.removed) == (3, 0, 3, 1)


def test_equal_ids_and_texts_that_cannot_be_read_are_named(client, theirs):
    other = f"{theirs.index}-other"
    make(client, other, PROPERTIES)
    put(client, other, "a", {"headline": "Another a", "body": "Elsewhere."})
    broken = b'{"headline": "\\ud800", "body": "Broken."}'
    headers = {"content-type": "application/json"}
    client.put(f"/{other}/_doc/f", params={"refresh": "true"}, content=broken, headers=headers).raise_for_status()
    put(client, other, "g", {"year": 1})
    alias = f"{theirs.index}-all"
    actions = [{"add": {"index": index, "alias": alias}} for index in (theirs.index, other)]
    client.post("/_aliases", json={"actions": actions}).raise_for_status()
    with joined(client, alias) as both:
        report = beside(both).run()
        assert report.failed == 3 and report.made == 4 and report.without_text == 1
        assert "both have this id" in report.failures["a"] and "Unicode" in report.failures["f"]
        again = beside(both).run()
        assert again.failed == 3 and again.made == 0  # named each time, until it is mended


def test_what_cannot_have_a_companion_is_refused(client, theirs):
    filtered, silent = f"{theirs.index}-filtered", f"{theirs.index}-silent"
    action = {"add": {"index": theirs.index, "alias": filtered, "filter": {"term": {"year": 2000}}}}
    client.post("/_aliases", json={"actions": [action]}).raise_for_status()
    with joined(client, filtered) as store, pytest.raises(InvalidData, match="covers only part"):
        open_source(store)
    make(client, silent, mappings={"_source": {"enabled": False}})
    with joined(client, silent) as store, pytest.raises(InvalidData, match="_source"):
        open_source(store)
    beside(theirs).run()
    with joined(client, f"{PREFIX}{theirs.index}") as store, pytest.raises(UsageError, match="enriched"):
        open_source(store)


def test_the_rate_is_an_upper_limit(theirs):
    report = beside(theirs, rate=2).run()
    assert report.made == 4 and report.seconds >= 1  # the first two at once, the others a second later


@on_both_versions
def test_in_place_leaves_all_other_fields_as_they_are(client, theirs):
    before, embedder = whole(client, theirs.index), TinyEmbedder()
    report = in_place(theirs, embedder).run()
    assert (report.made, report.failed, report.changed) == (4, 0, 0)
    after = whole(client, theirs.index)
    for old, new in zip(before["hits"], after["hits"], strict=True):
        assert set(new["_source"]) - set(old["_source"]) == {"ccheck"}
        kept = {name: value for name, value in new["_source"].items() if name != "ccheck"}
        assert json.dumps(kept) == json.dumps(old["_source"])  # the order of the fields, too
    old, new = before["described"][theirs.index], after["described"][theirs.index]
    assert new["settings"] == old["settings"] and new["aliases"] == old["aliases"]
    properties = new["mappings"]["properties"]
    assert properties.pop("ccheck")["properties"]["vector"]["dims"] == 8
    assert new["mappings"] == old["mappings"]

    # Any search can use it, and ccheck finds it as any other field of vectors.
    assert (info := theirs.info()) is not None and info.dimensions == 8
    (found,) = answer_all(theirs, [Query("x", embedder.vector(embedder.embedded[1]))], {"dense": Dense(depth=1)}, k=1)
    assert getattr(found, "hits", ())[0].document.text in embedder.embedded[1]

    again = in_place(theirs, embedder).run()
    assert (again.made, again.unchanged) == (0, 4)
    client.post(f"/{theirs.index}/_update/b", params={"refresh": "true"}, json={"doc": {"body": "Changed."}})
    put(client, theirs.index, "c", {"headline": "Title c", "body": TEXTS["c"]})  # written anew: the vector is gone
    again = in_place(theirs, embedder).run()
    assert (again.made, again.unchanged) == (2, 2)


def test_only_what_others_wrote_between_reading_and_update_counts_as_changed(client, theirs, monkeypatch):
    sent, send = [], theirs.client.send

    def lossy(method: str, path: str, *how: Any) -> Any:
        answer = send(method, path, *how)
        if path.endswith("/_bulk") and not sent:
            sent.append(answer)
            raise elastic_transport.ConnectionError("the connection was reset before the answer came")
        return answer

    def meanwhile() -> None:
        put(client, theirs.index, "b", {"headline": "Title b", "body": "Written meanwhile."})
        client.delete(f"/{theirs.index}/_doc/c").raise_for_status()

    monkeypatch.setattr(theirs.client, "send", lossy)
    report = in_place(theirs, TinyEmbedder(on_encode=meanwhile)).run()
    assert sent and (report.made, report.changed, report.failed) == (2, 2, 0)
    assert client.get(f"/{theirs.index}/_source/b").json() == {"headline": "Title b", "body": "Written meanwhile."}
    assert in_place(theirs).run().made == 1


@pytest.mark.parametrize(
    ("body", "described", "said"),
    [
        ({"mappings": {"_source": {"excludes": ["secret"]}}}, {}, "keeps only a part"),
        ({"settings": {"index.mapping.source.mode": "synthetic"}}, {}, "synthetic"),
        ({"settings": {"index.blocks.write": True}}, {}, "index.blocks.write"),
        # As such indices are described; the test nodes have none of them.
        ({}, {"data_stream": "logs"}, "data stream logs"),
        ({}, {"settings": {"index": {"store": {"type": "snapshot"}}}}, "mounted from a snapshot"),
        ({}, {"settings": {"index": {"xpack": {"ccr": {"following_index": "true"}}}}}, "follows an index"),
    ],
)
def test_in_place_is_refused_where_documents_would_lose_something(client, theirs, body, described, said):
    name = f"{theirs.index}-other"
    blocked = body.get("settings", {}).pop("index.blocks.write", None)
    mappings = {"properties": PROPERTIES} | body.get("mappings", {})
    client.put(f"/{name}", json={"settings": body.get("settings", {}), "mappings": mappings}).raise_for_status()
    put(client, name, "a", {"headline": "A", "body": TEXTS["a"]})
    if blocked:
        client.put(f"/{name}/_settings", json={"index.blocks.write": True}).raise_for_status()
    with joined(client, name) as store:
        source = open_source(store)
        source.described[name].update(described)  # type: ignore[attr-defined]
        with pytest.raises(InvalidData, match=f"{said}.*companion"):
            refuse_in_place(source)


def test_what_in_place_means_is_said_beforehand(client, theirs):
    client.put(f"/_ingest/pipeline/{theirs.index}", json={"processors": [{"set": {"field": "by", "value": "x"}}]})
    try:
        client.put(f"/{theirs.index}/_settings", json={"index.default_pipeline": theirs.index}).raise_for_status()
        said = "\n".join(in_place(theirs).consequences())
        for words in ("there is no undo", "exclude ccheck", f"default_pipeline {theirs.index}", "4 documents"):
            assert words in said, words
        in_place(theirs).run()
        assert "by" not in client.get(f"/{theirs.index}/_source/a").json()  # as was said, it did not run
    finally:
        client.put(f"/{theirs.index}/_settings", json={"index.default_pipeline": None}).raise_for_status()
        client.delete(f"/_ingest/pipeline/{theirs.index}").raise_for_status()


def test_routing_is_kept(client, theirs):
    name = f"{theirs.index}-routed"
    make(client, name, PROPERTIES, mappings={"_routing": {"required": True}}, settings={"number_of_shards": 3})
    for id_, text in TEXTS.items():
        put(client, name, id_, {"headline": id_, "body": text}, routing=f"author-{id_}")
    with joined(client, name) as store:
        assert beside(store).run().made == in_place(store).run().made == store.count() == 4
        for number in range(9):  # some go to another shard than their twin
            put(client, name, "a", {"headline": "a", "body": "Twin."}, routing=f"other-{number}")
        assert "different routings" in beside(store).run().failures["a"]


def test_another_model_is_refused(theirs):
    beside(theirs).run()
    with pytest.raises(InvalidData, match="was made with"):
        beside(theirs, TinyEmbedder(fingerprint="e" * 64)).run()
    in_place(theirs).run()
    with pytest.raises(InvalidData, match="vectors of tiny"):
        in_place(theirs, TinyEmbedder(fingerprint="e" * 64)).run()
