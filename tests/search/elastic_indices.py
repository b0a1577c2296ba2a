"""Indices on real servers that tests of the Elasticsearch store search: its own, and those of others."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
from elasticsearch_nodes import delete_indices
from searching import answer_one, fill
from store_documents import DIMENSIONS

from ccheck.core.errors import CcheckError
from ccheck.core.layout import MAIN_VECTORS, Layout
from ccheck.core.stages import Bm25, Retriever
from ccheck.core.types import Document, Entry, Passage, Query, Ranking, Vector
from ccheck.search.elastic import Connection, ElasticStore

PATIENCE_S = 120.0
"""A machine that runs tests beside a node stands still now and then for longer than a user would wait."""
WORDS: dict[str, Retriever] = {"bm25": Bm25()}
PROSE = "Mountain glaciers lose more ice each year than snow brings."
FOREIGN = {"headline": {"type": "text"}, "body": {"type": "text"}}


@pytest.fixture(name="client")
def node_client(elasticsearch_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=elasticsearch_url, timeout=60) as client:
        yield client


@pytest.fixture(name="store")
def node_store(elasticsearch_url: str, elasticsearch_index: str) -> Iterator[ElasticStore]:
    with ElasticStore(Connection(elasticsearch_url, request_timeout=PATIENCE_S), elasticsearch_index) as store:
        yield store


def vector_of(text: str, dimensions: int = DIMENSIONS) -> Vector:
    """A unit vector that is always the same for a text."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).normal(size=dimensions).astype(np.float32)
    return vector / np.linalg.norm(vector)


def entry(id_: str, title: str = "", text: str = "A text.", digest: str = "1", **metadata: Any) -> Entry:
    passages = tuple(Passage(0, len(text), vector_of(f"{id_} {part}")) for part in range(1 + len(text) % 3))
    return Entry(Document(id_, title, text, metadata), digest, {MAIN_VECTORS: passages})


@contextmanager
def filled(url: str, layout: Layout, entries: Sequence[Entry]) -> Iterator[ElasticStore]:
    """A store with these documents, in one segment: a merge between two searches can change what kNN finds."""
    index = f"ccheck-test-{uuid4().hex[:12]}"
    with ElasticStore(Connection(url, request_timeout=PATIENCE_S), index) as store:
        fill(store, layout, entries)
        httpx.post(f"{url}/{index}/_forcemerge", params={"max_num_segments": 1}, timeout=120).raise_for_status()
        yield store
    delete_indices(url, f"{index}*")


def make(client: httpx.Client, index: str, properties: dict[str, Any] = FOREIGN, **more: Any) -> None:
    """An index of somebody else's."""
    routing = more.pop("mappings", {})
    client.put(f"/{index}", json={"mappings": {"properties": properties, **routing}, **more}).raise_for_status()


def put(client: httpx.Client, index: str, id_: str, source: dict[str, Any], **params: str) -> None:
    client.put(f"/{index}/_doc/{id_}", params={"refresh": "true", **params}, json=source).raise_for_status()


def put_all(client: httpx.Client, index: str, sources: Mapping[str, dict[str, Any]]) -> None:
    """The documents with these ids, in one request."""
    lines = [json.dumps(line) for id_, source in sources.items() for line in ({"index": {"_id": id_}}, source)]
    how: Any = {"params": {"refresh": "true"}, "headers": {"content-type": "application/x-ndjson"}}
    made = client.post(f"/{index}/_bulk", content="\n".join([*lines, ""]), **how).raise_for_status()
    assert not made.json()["errors"], made.text


def documents_of(store: ElasticStore, words: str, retrievers: Mapping[str, Retriever] = WORDS, **how: Any) -> list[Any]:
    """The documents that are found with these words, the best first."""
    return [hit.document for hit in answer_one(store, Query(words), retrievers, k=10, **how).hits]


def ids(ranking: Ranking | CcheckError) -> list[str]:
    assert isinstance(ranking, Ranking), ranking
    return [hit.document.id for hit in ranking.hits]


def assert_equal_but_for_ties(mine: Ranking, theirs: Ranking) -> None:
    """The same scores at each rank, and the same documents wherever a score is no tie; the last may be cut off."""
    scores = [hit.score for hit in mine.hits]
    assert [hit.score for hit in theirs.hits] == pytest.approx(scores, rel=1e-5)

    def groups(ranking: Ranking) -> list[set[str]]:
        found: list[set[str]] = []
        for rank, id_ in enumerate(ids(ranking)):
            if rank and scores[rank] == pytest.approx(scores[rank - 1], rel=1e-6):
                found[-1].add(id_)
            else:
                found.append({id_})
        return found

    assert groups(mine)[:-1] == groups(theirs)[:-1]
