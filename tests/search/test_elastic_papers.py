"""Indices of chunks: every hit is another paper, by every retriever and fusion, with and without the server's rrf."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import httpx
import numpy as np
import pytest
from elastic_indices import ids, make, node_client, node_store, put  # noqa: F401 (fixtures)
from elasticsearch_nodes import delete_indices
from packaged_indices import PACKAGES
from searching import answer_all, rank_all

from ccheck.core.errors import InvalidData
from ccheck.core.profiles import StoreProfile
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever
from ccheck.core.types import Query, Ranking
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.found import by_paper

WORDS: dict[str, Retriever] = {"bm25": Bm25(depth=10)}
BOTH: dict[str, Retriever] = {"bm25": Bm25(depth=10), "dense": Dense(depth=10)}
PAPERS, EACH = 12, 15
"""More chunks of the best paper than are asked for at first."""
ICE = Query("glaciers lose ice", np.array([1.0, 0.0, 0.0], np.float32))


def test_a_paper_is_in_the_place_of_its_best_chunk() -> None:
    papers = dict(zip("abcdef", "112233", strict=True))
    first = [("a", 9.0), ("b", 8.0), ("c", 7.0), ("x", 6.0)]
    second = [("d", 0.9), ("f", 0.8), ("b", 0.7), ("e", 0.6)]
    grouped = by_paper({"one": first, "two": second}, papers, {"one": 9, "two": 2})
    # d was ranked first by one retriever, c third by the other; x belongs to nothing.
    assert grouped == {"one": [("a", 9.0), ("d", 7.0), ("x", 6.0)], "two": [("d", 0.9), ("f", 0.8)]}


@pytest.fixture(scope="module")
def chunked(elasticsearch_url: str, elasticsearch_basic_url: str) -> Iterator[list[ElasticStore]]:
    """The same chunks on a server with its own rrf and on one without, in LlamaIndex's shape."""
    name = "ccheck-test-papers"
    stores = []
    for url in (elasticsearch_url, elasticsearch_basic_url):
        delete_indices(url, f"{name}*")
        with httpx.Client(base_url=url, timeout=60) as client:
            ref = {"properties": {"ref_doc_id": {"type": "keyword"}}}
            vector = {"type": "dense_vector", "dims": 3, "similarity": "cosine", "index_options": {"type": "flat"}}
            make(client, name, {"content": {"type": "text"}, "embedding": vector, "metadata": ref})
            lines = []
            for paper, chunk in product(range(PAPERS), range(EACH)):
                text = "Glaciers lose ice. " * (1 + chunk % 3) + f"Chunk {chunk} of paper {paper}. " + "More. " * paper
                source = {"content": text, "embedding": [1, 0.1 * paper, 0.01 * (chunk + 1)]}
                source |= {"metadata": {"ref_doc_id": f"paper {paper}"}} if paper else {"metadata": {}}
                lines += [{"index": {"_id": f"{paper}-{chunk}"}}, source]
            body = "".join(f"{httpx.Request('POST', url, json=line).content.decode()}\n" for line in lines)
            headers = {"Content-Type": "application/x-ndjson"}
            made = client.post(f"/{name}/_bulk", params={"refresh": "true"}, content=body, headers=headers)
            assert not made.raise_for_status().json()["errors"]
        stores.append(ElasticStore(Connection(url), name))
    yield stores
    for store, url in zip(stores, (elasticsearch_url, elasticsearch_basic_url), strict=True):
        store.close()
        delete_indices(url, f"{name}*")


@pytest.mark.parametrize(
    ("retrievers", "fusion", "details"),
    [
        (WORDS, Fusion(), True),
        ({"dense": Dense(depth=10)}, Fusion(), True),
        (BOTH, Fusion(), True),
        (BOTH, Fusion(), False),
        (BOTH, Fusion(method="minmax"), True),
    ],
)
def test_ten_hits_are_ten_papers(
    chunked: list[ElasticStore], retrievers: dict[str, Retriever], fusion: Fusion, details: bool
) -> None:
    rankings = []
    for store in chunked:
        (ranking,) = answer_all(store, [ICE], retrievers, fusion, k=10, details=details)
        assert isinstance(ranking, Ranking)
        # The chunks of paper 0 do not say what they belong to: each is one of its own.
        papers = [hit.document.metadata.get("metadata.ref_doc_id", hit.document.id) for hit in ranking.hits]
        assert len(set(papers)) == len(papers) == 10
        rankings.append(ids(ranking))
        (found,) = rank_all(store, [ICE], retrievers)
        assert isinstance(found, dict) and {len(one) for one in found.values()} == {10}
        assert {one for ranked in found.values() for one, _ in ranked} >= set(ids(ranking))
    assert rankings[0] == rankings[1]


def test_the_best_chunk_is_shown(chunked: list[ElasticStore]) -> None:
    query = Query("chunk 7 of paper 3")
    (ranking,) = answer_all(chunked[0], [query], WORDS, k=3)
    assert isinstance(ranking, Ranking) and ids(ranking)[0] == "3-7"
    document = ranking.hits[0].document
    assert "Chunk 7 of paper 3." in document.text and document == chunked[0].get(["3-7"])["3-7"]
    info = chunked[0].info()
    assert info is not None and info.details["papers"] == "chunks grouped by metadata.ref_doc_id, 15.0 each on average"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_papers_of_packages_are_found(client: httpx.Client, store: ElasticStore, package: str) -> None:
    PACKAGES[package](
        client,
        store.index,
        [("a", "Ice", "Glaciers melt."), ("a", "Ice", "Glaciers."), ("b", "Sea", "Glaciers. More.")],
    )
    (ranking,) = answer_all(store, [Query("glaciers")], WORDS, k=10)
    assert ids(ranking) == ["1", "2"]


def test_what_is_no_paper_groups_nothing(client: httpx.Client, store: ElasticStore) -> None:
    """A source can be a publisher. The settings can name any field, or none."""
    keyword = {"type": "keyword"}
    make(client, store.index, {"text": {"type": "text"}, "source": keyword, "doi": keyword, "year": {"type": "date"}})
    for number, source in enumerate(("PubMed", "PubMed", "arXiv")):
        put(client, store.index, str(number), {"text": "Glaciers.", "source": source, "doi": f"10.1/{number // 2}"})
    for group, count in ((None, 3), ("doi", 2), ("source", 2), ("", 3)):
        with ElasticStore(store._connection, store.index, StoreProfile(group=group)) as named:
            (ranking,) = answer_all(named, [Query("glaciers")], WORDS, k=10)
            assert len(ids(ranking)) == count, group
    for group, said in (("year", "not a keyword or number"), ("none", "does not exist"), ("text", "not a keyword")):
        with (
            ElasticStore(store._connection, store.index, StoreProfile(group=group)) as named,
            pytest.raises(InvalidData, match=f"the field {group} of .* can't group chunks: it {said}|{said}"),
        ):
            named.info()
