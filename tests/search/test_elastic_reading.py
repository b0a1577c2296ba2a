"""What a search found is read whole or said to be missing: on real servers, and from answers that they rarely give."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from cli_runs import ccheck
from elastic_indices import FOREIGN, WORDS, ids, make, node_store, put  # noqa: F401 (a fixture)
from elastic_stub import WRITES, Answer, Stub, searched
from http_stub import HttpStub, proxy
from searching import answer_all, answer_one, fill, info_of, rank_all, rank_one, write

from ccheck.core.errors import InvalidData, ServerError, UsageError
from ccheck.core.layout import Layout
from ccheck.core.stages import Bm25, Fusion, Retriever
from ccheck.core.types import Document, Entry, Filter, Query, Ranking
from ccheck.demo import CLAIMS, CORPUS
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.reading import shards

TWICE: dict[str, Retriever] = {"bm25": Bm25(), "again": Bm25(fields={"title": 1.0})}
OWN = Fusion(method="minmax")
"""No server does it, so that the documents of two retrievers are read after the search."""


@pytest.fixture
def asked(stub: Stub) -> Iterator[ElasticStore]:
    with ElasticStore(Connection(stub.url, retry_seconds=0.1, request_timeout=5), "papers") as store:
        yield store


# -- documents that getting by id does not reach


def test_documents_with_a_routing_of_their_own_are_read(client, store):
    make(client, store.index, mappings={"_routing": {"required": True}}, settings={"number_of_shards": 4})
    for number in range(6):
        source = {"headline": "Sea level", "body": f"It rises. {number}"}
        put(client, store.index, f"p{number}", source, routing=f"r{number}")
    (ranking,) = answer_all(store, [Query("sea level rises")], TWICE, OWN, k=10)
    assert sorted(ids(ranking)) == [f"p{number}" for number in range(6)]
    assert store.get(["p3"])["p3"].text == "It rises. 3"


def test_a_shard_that_is_not_there_is_not_one_without_writes(client, store, monkeypatch):
    nowhere = {"settings": {"index.routing.allocation.require._name": "nobody"}}
    client.put(f"/{store.index}?wait_for_active_shards=0", json=nowhere).raise_for_status()
    with ElasticStore(Connection(str(client.base_url), retry_seconds=0.1), store.index) as impatient:
        with pytest.raises(ServerError, match=r"not ready \(503, .*why a shard is gone"):
            shards(impatient.client, [store.index])
        monkeypatch.setattr(impatient.client, "search", lambda *_: {"_shards": {"total": 1}})  # it went after that
        with pytest.raises(ServerError, match="0 of the 1 shards"):
            shards(impatient.client, [store.index])


def test_one_id_in_two_shards_is_one_document(client, store):
    make(client, store.index, settings={"number_of_shards": 2})
    for routing in map(str, range(6)):
        put(client, store.index, "same", {"headline": "Sea", "body": "The sea " * (1 + int(routing))}, routing=routing)
    assert client.get(f"/{store.index}/_count").json()["count"] > 1
    body = {"query": {"match": {"body": "sea"}}}
    best, *others = client.post(f"/{store.index}/_search", json=body).json()["hits"]["hits"]
    assert others and all(other["_score"] < best["_score"] for other in others)
    retrievers: dict[str, Retriever] = {"bm25": Bm25(fields={"body": 1.0})}
    (found,) = rank_all(store, [Query("sea")], retrievers)
    assert found == {"bm25": [("same", pytest.approx(best["_score"]))]}
    (ranking,) = answer_all(store, [Query("sea")], retrievers, k=5)
    assert ids(ranking) == ["same"] and isinstance(ranking, Ranking)
    assert ranking.hits[0].score == pytest.approx(best["_score"])
    assert ranking.hits[0].document.text == best["_source"]["body"]


def test_an_alias_with_a_filter_shows_its_part(client, store):
    year = {"year": {"type": "integer"}}
    make(client, f"{store.index}-1", FOREIGN | year, aliases={store.index: {"filter": {"term": {"year": 2020}}}})
    for number, year_ in enumerate((2019, 2020, 2020)):
        put(client, f"{store.index}-1", f"p{number}", {"headline": "Sea", "body": "Sea.", "year": year_})
    assert store.count() == 2 and store.get(["p0", "p1"]).keys() == {"p1"}
    (ranking,) = answer_all(store, [Query("sea")], TWICE, OWN, k=10)
    assert sorted(ids(ranking)) == ["p1", "p2"]


@pytest.fixture
def both(client: httpx.Client, store: ElasticStore) -> ElasticStore:
    """Two indices of others behind an alias; both have a document p0, not the same."""
    for number in (1, 2):
        make(client, f"{store.index}-{number}", aliases={store.index: {}})
        put(client, f"{store.index}-{number}", "p0", {"headline": "Sea level", "body": f"It rises. {number}"})
        put(client, f"{store.index}-{number}", f"own%2F{number}", {"headline": "Sea ice", "body": "It melts."})
    return store


@pytest.mark.parametrize("retrievers", [WORDS, TWICE])
def test_documents_that_share_an_id_are_told_apart(both, retrievers):
    one, two = f"{both.index}-1/p0", f"{both.index}-2/p0"
    ranking = answer_one(both, Query("sea"), retrievers, OWN, k=10)
    assert sorted(ids(ranking)) == sorted([one, two, "own/1", "own/2"])
    texts = {hit.document.id: hit.document.text for hit in ranking.hits}
    assert (texts[one], texts[two]) == ("It rises. 1", "It rises. 2")
    found = rank_one(both, Query("sea"), retrievers)
    assert sorted(id_ for id_, _ in found["bm25"]) == sorted([one, two, "own/1", "own/2"])


def test_documents_that_share_an_id_are_read_by_the_index_before_it(both):
    one, two = f"{both.index}-1/p0", f"{both.index}-2/p0"
    got = both.get([one, two, "own/1", "p0", "none", f"{both.index}-1/none", f"{both.index}-1/own/2"])
    assert {id_: document.id for id_, document in got.items()} == {one: one, two: two, "own/1": "own/1"}
    assert (got[one].text, got[two].text) == ("It rises. 1", "It rises. 2")


def test_a_scope_of_one_document_by_its_public_id(both):
    one, two = f"{both.index}-1/p0", f"{both.index}-2/p0"
    expected = {
        Filter("_id", "=", one): [one],
        Filter("_id", "=", "own/1"): ["own/1"],
        Filter("_id", "=", "p0"): [one, two],
        Filter("_id", "!=", two): [one, "own/1", "own/2"],
        Filter("_id", "=", f"{both.index}-1/own/2"): [],
    }
    answers = answer_all(both, [Query("sea", filters=(scope,)) for scope in expected], TWICE, OWN, k=10)
    assert [sorted(ids(answer)) for answer in answers] == [sorted(wanted) for wanted in expected.values()]
    with pytest.raises(UsageError, match="= and !="):
        both.count([Filter("_id", "<", "p1")])


def test_a_rollover_is_noticed(client, store):
    fill(store, Layout(), [Entry(Document("a", "Sea", "The sea rises."), "1")])
    client.post(f"/{store.index}/_rollover").raise_for_status()
    for known in (store, ElasticStore(store.client.connection, store.index)):
        known._known = None
        asked = partial(answer_all, known, [Query("sea")], WORDS, k=1), partial(known.prepare, Layout())
        for asks in (*asked, known.info, known.removal, known.drop):
            with pytest.raises(InvalidData, match=rf"2 indices .*ccheck made {store.index}-000001.*rollover"):
                asks()
    assert client.get(f"/{store.index}-000001/_count").json()["count"] == 1


def test_an_ingest_goes_on_where_somebody_else_wrote(client, store):
    store.prepare(Layout())
    store.upsert([Entry(Document("a", "Sea", "The sea rises."), "1")])
    put(client, store.index, "b", {"title": ["Sea", "ice"], "text": "By hand.", "metadata": {"year": 2001}})
    put(client, store.index, "c", {"metadata": {"a": {"b": [1, 2]}}, "published": "2001-01-02"})
    put(client, store.index, "d", {"title": None, "text": None, "metadata": None, "digest": ["2"]})
    assert store.digests(["a", "b", "c", "d", "e"]) == {"a": "1"}
    got = store.get(["b", "c", "d"])
    assert got["b"] == Document("b", "Sea ice", "By hand.", {"year": 2001})
    assert got["c"] == Document("c", "", "", {"a.b": [1, 2]}, "2001-01-02")
    assert got["d"] == Document("d", "", "")
    assert info_of(store).details["not written by ccheck"] == "3 documents"
    write(store, [Entry(Document("b", "Sea", "Ours."), "9")])
    assert store.digests(["b"]) == {"b": "9"}
    assert info_of(store).details["not written by ccheck"] == "2 documents"


def hit(id_: str, index: str = "papers-000001", **more: Any) -> dict[str, Any]:
    return {"_index": index, "_id": id_, "_score": 1.0, **more}


def searches(*responses: dict[str, Any]) -> Any:
    """What the server answers to searches with as many queries each."""

    def answer(body: bytes) -> Answer:
        return 200, {"responses": [response for _, response in zip(searched(body)[::2], responses, strict=False)]}

    return answer


FAILED = {"total": 3, "failed": 1, "failures": [{"reason": {"type": "x", "reason": "no such shard"}}]}


@pytest.mark.parametrize(
    ("flaw", "said"),
    [({"_shards": FAILED}, "1 of 3 shards failed .no such shard"), ({"timed_out": True}, "stopped the search early")],
)
def test_a_search_that_was_answered_in_part_is_an_error(stub, asked, flaw, said):
    whole = {"status": 200, "hits": {"hits": []}, "_shards": {"total": 3, "failed": 0}, "timed_out": False}
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [whole, whole | flaw]})]
    queries = [Query("sea"), Query("ice")]
    good, bad = answer_all(asked, queries, WORDS, k=3)
    assert ids(good) == [] and isinstance(bad, ServerError)
    with pytest.raises(ServerError, match=said):
        raise bad
    good, bad = rank_all(asked, queries, WORDS)
    assert good == {"bm25": []} and isinstance(bad, ServerError)
    stub.answers["GET", "/papers/_count"] = [(200, {"count": 7, **flaw})]
    with pytest.raises(ServerError, match=said):
        asked.count()
    stub.answers["POST", f"/{WRITES}/_refresh"] = [(200, flaw)]
    with pytest.raises(ServerError, match=said):
        asked.publish()


def test_rankings_ask_whether_they_are_whole(stub, asked):
    """An answer that is filtered by name has only what is named."""
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [{"status": 200}]})]
    assert rank_all(asked, [Query("sea")], WORDS) == [{"bm25": []}]
    wanted = stub.seen[-1].query
    assert "responses.timed_out" in wanted and "responses._shards.failed" in wanted


def test_documents_that_can_not_be_read_are_their_claims_errors(stub, asked):
    found, nothing = ({"status": 200, "hits": {"hits": some}} for some in ([hit("a")], []))
    stub.answers["POST", "/papers/_msearch"] = [searches(found, nothing, nothing, nothing)]
    unavailable = {"type": "search_phase_execution_exception", "reason": "shard 2 is unavailable"}
    stub.answers["POST", "/papers/_search"] = [(503, {"error": unavailable})]
    bad, good = answer_all(asked, [Query("sea"), Query("ice")], TWICE, OWN, k=3)
    assert isinstance(bad, ServerError) and "shard 2 is unavailable" in str(bad)
    assert ids(good) == []
    stub.answers["POST", "/papers/_search"] = [(200, {"hits": {"hits": []}, "_shards": FAILED})]
    bad, good = answer_all(asked, [Query("sea"), Query("ice")], TWICE, OWN, k=3)
    assert isinstance(bad, ServerError) and "no such shard" in str(bad)


def test_a_document_that_is_found_and_not_given_is_an_error(stub, asked):
    """As without `_source`; what was removed meanwhile is not found again."""
    found, nothing = ({"status": 200, "hits": {"hits": some}} for some in ([hit("a")], []))
    stub.answers["POST", "/papers/_msearch"] = [searches(found, found)]
    stub.answers["POST", "/papers/_search"] = [(200, {"hits": {"hits": [hit("a")]}})]
    (bad,) = answer_all(asked, [Query("sea")], TWICE, OWN, k=3)
    assert isinstance(bad, ServerError) and "such as a" in str(bad)
    twice = [searches(found, found)] * 2  # while others write, the next one can be removed too
    stub.answers["POST", "/papers/_msearch"] = [*twice, searches(nothing, nothing)]
    stub.answers["POST", "/papers/_search"] = [(200, {"hits": {"hits": []}})]
    (good,) = answer_all(asked, [Query("sea")], TWICE, OWN, k=3)
    assert ids(good) == []


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ({"type": "security_exception", "reason": "action is unauthorized"}, ServerError, "privileges are missing"),
        ({"type": "routing_missing_exception", "reason": "routing is required"}, InvalidData, "routing is required"),
        ({"type": "no_shard_available_action_exception", "reason": "No shard"}, ServerError, "too busy or not ready"),
        ({"type": "illegal_state_exception", "reason": "broken"}, ServerError, r"failed \(500 illegal"),
    ],
)
def test_an_error_of_one_document_is_an_error(stub, asked, error, kind, said):
    there = {"_index": "papers-000001", "_id": "a", "found": True, "_source": {"digest": "1", "text": "x"}}
    docs = [there, {"_index": "papers-000001", "_id": "b", "error": error}]
    stub.answers["POST", "/papers/_mget"] = [(200, {"docs": docs})]
    for read in (asked.get, asked.digests):
        with pytest.raises(kind, match=said):
            read(["a", "b"])
    stub.answers["POST", "/papers/_mget"] = [(200, {"docs": [there, {"_id": "b", "found": False}]})]
    assert asked.digests(["a", "b"]) == {"a": "1"} and asked.get(["a", "b"]).keys() == {"a"}


# -- what `ccheck query` sends to a real server, as a proxy between them sees it, with and without a licence for
# `rrf`


HOW = ("--json", "--no-record", "--verdict", "none", "-k", "5")


def said(stub: HttpStub) -> list[str]:
    """The requests, in a word each."""
    return [f"{one.method} {one.path.rpartition('/')[2]}" + " rrf" * (b'"rrf"' in one.body) for one in stub.asked]


def test_the_licence_decides_on_the_requests_and_not_on_the_answer(
    elasticsearch_url, elasticsearch_8_url, elasticsearch_basic_url, elasticsearch_index
):
    index, answers = elasticsearch_index, []
    for url in (elasticsearch_url, elasticsearch_8_url, elasticsearch_basic_url):
        assert ccheck("ingest", CORPUS, "--store", f"{url}/{index}").code == 0
        fuses = url != elasticsearch_basic_url
        with proxy(url) as stub:
            ran = ccheck("query", "sea level has risen", "--store", f"{stub.url}/{index}", *HOW)
            asked = ["POST _msearch rrf", *([] if fuses else ["POST _msearch", "POST _search"])]
            assert said(stub) == [f"GET {index}", *asked]
            # A record needs the index's state, and looks at its own index before it writes.
            recorded = ("query", "sea level has risen", "--store", f"{stub.url}/{index}", "--verdict", "none")
            assert ccheck(*recorded).code == 0  # which makes the record
            stub.asked.clear()
            assert ccheck(*recorded).code == 0
            written = [f"GET ccheck-checks-{index}", f"POST {stub.asked[-1].path.rpartition('/')[2]}"]
            assert said(stub) == [f"GET {index}", "GET docs,store", *asked, *written]
        with proxy(url) as stub:
            many = ccheck("query", "--claims", "-", "--store", f"{stub.url}/{index}", *HOW, stdin=claims(80))
            searches = [word.endswith("rrf") for word in said(stub) if "_msearch" in word]
            # What the first batch was refused, the others do not ask for.
            assert len(searches) > 1 and searches == ([True] * len(searches) if fuses else [True] + [False] * 3)
        answers.append([ranked(each["evidence"]) for each in (*ran.objects, *many.objects)])
    assert len(answers[0]) == 81 and answers[0] == answers[1] == answers[2]


def claims(count: int) -> bytes:
    """The sample claims over and over, each time under other ids."""
    lines = CLAIMS.read_text(encoding="utf-8").splitlines()
    rows = (lines[number % len(lines)] for number in range(count))
    return "\n".join(row.replace('"_id": "', f'"_id": "{number}-', 1) for number, row in enumerate(rows)).encode()


def ranked(evidence: list[dict[str, object]]) -> list[tuple[object, ...]]:
    """The places and scores of the evidence; the server's scores are of single precision."""
    return [(one["doc_id"], one["ranks"], pytest.approx(one["score"], rel=1e-4)) for one in evidence]
