"""The server's fusion and ccheck's rank alike, on the sample corpus: also where no evaluation data are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from elastic_indices import LAYOUT, entry, filled, vector_of
from searching import answer_all

from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Query, Ranking
from ccheck.demo import CLAIMS, CORPUS
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
        rankings = answer_all(store, queries, retrievers, k=DEPTH, details=not native)
        assert any(b'"rrf"' in body for body in sent) is native
        assert store._native is native
        assert all(isinstance(ranking, Ranking) for ranking in rankings)
        return rankings  # type: ignore[return-value]

    own, native = rank(native=False), rank(native=True)
    assert len(own) == 20 and all(ranking.hits for ranking in own)
    for mine, theirs in zip(own, native, strict=True):
        scores = {hit.document.id: hit.score for hit in mine.hits}
        lowest = min(scores.values())
        assert [hit.score for hit in theirs.hits] == pytest.approx([hit.score for hit in mine.hits], rel=1e-5)
        for hit in theirs.hits:
            # Of equal scores at the end, either side may show either.
            assert hit.document.id in scores or hit.score == pytest.approx(lowest)
            assert hit.score == pytest.approx(scores.get(hit.document.id, lowest), rel=1e-5)
        for hit in mine.hits:
            assert hit.score == pytest.approx(sum(1 / (60 + rank) for rank in hit.ranks.values()))
