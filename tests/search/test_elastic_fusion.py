"""The server's fusion and ccheck's rank alike, on the sample corpus: also where no evaluation data are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from elastic_indices import LAYOUT, entry, filled, vector_of
from searching import answer_all

from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Query, Ranking
from ccheck.demo import CLAIMS, CORPUS
from ccheck.search import Search, answer
from ccheck.search.elastic import ElasticStore

DEPTH = 12
"""Fewer than there are documents, so that the retrievers disagree about which they find."""


def rows(file: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


# A basic licence has no fusion of its own.
@pytest.fixture(scope="module", params=["elasticsearch_url", "elasticsearch_8_url"])
def store(request: pytest.FixtureRequest) -> Iterator[ElasticStore]:
    entries = [entry(row["_id"], row["title"], row["text"]) for row in rows(CORPUS)]
    with filled(request.getfixturevalue(request.param), LAYOUT, entries) as store:
        yield store


def test_the_servers_fusion_and_our_own_rank_alike(store: ElasticStore, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [Query(claim["text"], vector_of(claim["text"])) for claim in rows(CLAIMS)]
    retrievers: dict[str, Retriever] = {"bm25": Bm25(depth=DEPTH), "dense": Dense(depth=DEPTH)}
    sent: list[bytes] = []
    send = store.client.send

    def record(method: str, path: str, body: Any = None, params: Any = None) -> dict[str, Any]:
        sent.append(body if isinstance(body, bytes) else json.dumps(body).encode())
        return send(method, path, body, params)

    monkeypatch.setattr(store.client, "send", record)

    def rank(native: bool) -> list[Ranking]:
        monkeypatch.setattr(store, "_native", native)
        sent.clear()
        rankings = answer_all(store, queries, retrievers, k=DEPTH)
        assert any(b'"rrf"' in body for body in sent) is native
        assert store._native is native
        assert all(isinstance(ranking, Ranking) for ranking in rankings)
        return rankings  # type: ignore[return-value]

    own, native = rank(native=False), rank(native=True)
    assert len(own) == 20 and all(ranking.hits for ranking in own)
    for mine, theirs in zip(own, native, strict=True):
        assert (mine.fused_by, theirs.fused_by) == ("ccheck", "server")
        lowest = mine.hits[-1].score
        assert [hit.score for hit in theirs.hits] == [hit.score for hit in mine.hits]
        for one, other in zip(mine.hits, theirs.hits, strict=True):
            # Of equal scores at the end, either side may show either.
            assert one.document == other.document or one.score == other.score == lowest
            if one.document == other.document:
                assert one.ranks == other.ranks
                assert one.scores == pytest.approx(other.scores, rel=1e-6)
        for hit in theirs.hits:
            assert hit.score == pytest.approx(sum(1 / (60 + rank) for rank in hit.ranks.values()))


def test_a_server_that_does_not_say_its_ranks_is_not_asked_again(
    store: ElasticStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its explanation says is in no contract: in other words, ccheck fuses by itself."""
    send = store.client.send

    def in_other_words(*request: Any) -> dict[str, Any]:
        return json.loads(json.dumps(send(*request)).replace("initial ranks", "ranks"))  # type: ignore[no-any-return]

    monkeypatch.setattr(store.client, "send", in_other_words)
    monkeypatch.setattr(store, "_native", True)
    text = "sea level has risen"
    (ranking,) = answer_all(store, [Query(text, vector_of(text))], {"bm25": Bm25(), "dense": Dense()}, k=5)
    assert isinstance(ranking, Ranking) and ranking.fused_by == "ccheck" and len(ranking.hits) == 5
    assert store._native is False


def test_the_request_for_kibanas_console_finds_the_same(store: ElasticStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_native", True)
    text = "sea level has risen"
    search = Search([Query(text, vector_of(text))], {"bm25": Bm25(), "dense": Dense()}, k=5)
    (ranking,) = answer(store, search)
    asked, _, body = store.console(search).partition("\n")
    method, path = asked.split()
    found = httpx.request(method, f"{store.name.rpartition('/')[0]}/{path}", json=json.loads(body)).raise_for_status()
    hits = found.json()["hits"]["hits"]
    assert isinstance(ranking, Ranking)
    assert {hit["_id"] for hit in hits} == {hit.document.id for hit in ranking.hits}
    assert all(hit["matched_queries"] for hit in hits) and len(body.splitlines()) < 60
