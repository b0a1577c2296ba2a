"""What is asked of Elasticsearch and how its scores are read, to the letter; a few of them on a real server."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np
import pytest
from elastic_indices import make, put
from elastic_stub import WORDS, WRITES, Stub, mapping, searched
from searching import rank_all

from ccheck.core.errors import CcheckError, InvalidData, ServerError, UsageError
from ccheck.core.layout import Chunking, Embedding, Layout, SparseField
from ccheck.core.profiles import StoreProfile
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever, Sparse
from ccheck.core.types import Document, Entry, Query, SparseVector
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.client import Client
from ccheck.search.elastic.fields import Index
from ccheck.search.elastic.found import Sample, read_index
from ccheck.search.elastic.queries import retriever_body, rrf
from ccheck.search.elastic.reading import figures
from ccheck.search.elastic.search import BYTES_AT_ONCE, HITS_AT_ONCE, SEARCHES_AT_ONCE, Searches, _size
from ccheck.search.store import Search

OURS = {"ccheck": {"format": 1, "layout": {}}}
PROSE = "Mountain glaciers lose more ice each year than snow brings."


def index(properties: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> Index:
    def sampling(names: Any) -> dict[str, Sample]:
        return {name: Sample(1, (f"{name}: {PROSE}",)) for name in names}

    words = WORDS if meta else {}
    found = {"papers-1": {"mappings": {"properties": words | dict(properties), "_meta": meta or {}}}}
    return read_index("papers", found, StoreProfile(), "here", sampling)


def vector(similarity: str, dims: int = 2) -> dict[str, Any]:
    return {"type": "dense_vector", "dims": dims, "similarity": similarity}


MINE = index({"title": {"type": "text"}}, OURS)
THEIRS = index({"title": {"type": "text"}, "body": {"type": "text"}, "vector": vector("cosine")})


def body(index: Index, retriever: Retriever, query: Query, **options: Any) -> Any:
    return retriever_body(index, "one", query, retriever, options.pop("filters", []), **options)


# -- words


def test_equal_scores_keep_the_order_of_writing_in_our_own_index() -> None:
    match = {"match": {"content": {"query": "sea"}}}
    order = [{"_score": "desc"}, {"_seq_no": "asc"}]
    assert body(MINE, Bm25(), Query("sea")) == {"standard": {"query": match, "sort": order}}
    assert "sort" not in body(THEIRS, Bm25(), Query("sea"))["standard"]


def test_several_fields_are_one_query() -> None:
    assert body(THEIRS, Bm25(), Query("sea"))["standard"]["query"] == {
        "dis_max": {
            "queries": [{"match": {"title": {"query": "sea"}}}, {"match": {"body": {"query": "sea"}}}],
            "tie_breaker": 0.3,
        }
    }
    boosted = body(THEIRS, Bm25(fields={"content": 1.0, "title": 2.0}), Query("sea"))["standard"]["query"]["dis_max"]
    assert boosted["queries"][0] == {"match": {"title": {"query": "sea", "boost": 2.0}}}
    assert boosted["queries"][1] == {"match": {"body": {"query": "sea"}}}
    with pytest.raises(UsageError, match=r"no text field 'none'\. The fields are body, content, text, title"):
        body(THEIRS, Bm25(fields={"none": 1.0}), Query("sea"))


def test_stopwords_are_nothing_to_search_for_in_our_own_index() -> None:
    assert body(MINE, Bm25(), Query("the of")) is None
    assert body(THEIRS, Bm25(), Query("the of")) is not None and body(THEIRS, Bm25(), Query(" ")) is None


@pytest.mark.parametrize(("words", "expansions"), [(2, 50), (163, 50), (200, 40)])
def test_fuzzy_words_share_the_clauses(words: int, expansions: int) -> None:
    claim = " ".join(f"word{number}" for number in range(words))
    match = body(MINE, Bm25(fuzziness="auto"), Query(claim))["standard"]["query"]["match"]["content"]
    assert (match.get("fuzziness"), match.get("max_expansions")) == ("AUTO", expansions)


# -- vectors


@pytest.mark.parametrize(
    ("dense", "k", "candidates"),
    [
        (Dense(depth=10), 10, 100),
        (Dense(depth=60), 60, 120),
        (Dense(depth=60, candidates=300), 60, 300),
        (Dense(depth=60, candidates=20), 60, 60),
        (Dense(depth=9_000), 9_000, 10_000),
    ],
)
def test_how_far_a_knn_search_looks(dense: Dense, k: int, candidates: int) -> None:
    asked = body(THEIRS, dense, Query("", np.array([1, 0], np.float32)), filters=[{"term": {"a": 1}}])
    assert asked == {
        "knn": {
            "field": "vector",
            "query_vector": [1.0, 0.0],
            "k": k,
            "num_candidates": candidates,
            "filter": [{"term": {"a": 1}}],
        }
    }
    with pytest.raises(InvalidData, match="3 dimensions"):
        body(THEIRS, dense, Query("", np.zeros(3, np.float32)))
    assert body(THEIRS, dense, Query("no vector")) is None


@pytest.mark.parametrize("similarity", ["cosine", "dot_product", "l2_norm", "max_inner_product"])
def test_a_servers_scores_become_cosines(elasticsearch_url: str, elasticsearch_index: str, similarity: str) -> None:
    angles = {"near": 0.1, "right": math.pi / 2, "far": 2.5}
    flat = vector(similarity) | {"index_options": {"type": "flat"}}
    with httpx.Client(base_url=elasticsearch_url, timeout=60) as client:
        make(client, elasticsearch_index, {"body": {"type": "text"}, "vector": flat})
        for id_, angle in angles.items():
            source = {"body": PROSE, "vector": [math.cos(angle), math.sin(angle)]}
            put(client, elasticsearch_index, id_, source)
    with ElasticStore(Connection(elasticsearch_url), elasticsearch_index) as store:
        (found,) = rank_all(store, [Query("", np.array([1, 0], np.float32))], {"dense": Dense()})
    assert not isinstance(found, CcheckError)
    assert [id_ for id_, _ in found["dense"]] == ["near", "right", "far"]
    assert dict(found["dense"]) == pytest.approx({id_: math.cos(angle) for id_, angle in angles.items()}, abs=1e-5)


def test_sparse_vectors_are_not_pruned_and_the_greatest_weights_count() -> None:
    layout = Layout(sparse=SparseField("m", 5_000, "f", 8)).to_dict()
    mine = index({"sparse": {"type": "sparse_vector"}}, {"ccheck": {"format": 1, "layout": layout}})
    many = SparseVector(np.arange(1_100, dtype=np.int32), np.linspace(1, 2, 1_100, dtype=np.float32))
    asked = body(mine, Sparse(), Query("x", own={"one": many}))["standard"]["query"]["sparse_vector"]
    assert asked["prune"] is False and len(asked["query_vector"]) == 1_024
    assert min(map(int, asked["query_vector"])) == 1_100 - 1_024


@pytest.mark.parametrize(
    ("searches", "lines", "hits"), [(SEARCHES_AT_ONCE, 1, 1), (1, BYTES_AT_ONCE, 1), (1, 1, HITS_AT_ONCE)]
)
def test_a_request_has_so_many_searches_bytes_and_hits(searches: int, lines: int, hits: int) -> None:
    full = _size(Searches(Query(""), {str(place): {} for place in range(searches)}, b"x" * lines, hits))
    assert 0.99 * BYTES_AT_ONCE < full <= BYTES_AT_ONCE


# -- the server's fusion


def test_the_servers_fusion_is_asked_for_with_its_window() -> None:
    one, two = {"standard": {"_name": "a"}}, {"knn": {"_name": "b"}}
    search = Search([], {"a": Bm25(depth=40), "b": Dense(depth=30)}, Fusion(k=20))
    found = rrf({"a": {"standard": {}}, "b": {"knn": {}}}, search)
    assert found == {"rrf": {"retrievers": [one, two], "rank_constant": 20, "rank_window_size": 40}}


# -- requests


def test_the_searches_of_a_query_go_to_the_same_copies(stub: Stub) -> None:
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [{"status": 200}] * 4})]
    two: dict[str, Retriever] = {"a": Bm25(), "b": Bm25()}
    with ElasticStore(Connection(stub.url), "papers") as store:
        for _ in range(2):
            rank_all(store, [Query("sea"), Query("ice")], two)
    first, second = [searched(sent)[::2] for sent in stub.bodies("/papers/_msearch")]
    assert first == second
    said = [header["preference"] for header in first]
    assert said[0] == said[1] != said[2] == said[3] and said[0].startswith("ccheck-")
    assert all(header["allow_partial_search_results"] is False for header in first)


def test_a_mapping_is_read_once_and_again_after_an_error(stub: Stub) -> None:
    failed = {"error": {"type": "x", "reason": "y"}}
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [{"status": 200}]})] * 2 + [(500, failed)]
    with ElasticStore(Connection(stub.url), "papers") as store:

        def ask() -> int:
            with contextlib.suppress(ServerError):
                rank_all(store, [Query("sea")], {"a": Bm25()})
            return sum(one.path == "/papers" for one in stub.seen)

        assert [ask() for _ in range(4)] == [1, 1, 1, 2]


def test_writing_never_makes_an_index(stub: Stub) -> None:
    stub.answers["POST", f"/{WRITES}/_bulk"] = [(200, {"items": [{"index": {"status": 201, "result": "created"}}]})]
    for name in ("papers", "papers-000001"):
        stub.answers["GET", f"/{name}"] = [(200, mapping(OURS))]
        with ElasticStore(Connection(stub.url), name) as store:
            store.upsert([Entry(Document("a", "", "x"), "1")])
        assert stub.seen[-1].path == f"/{WRITES}/_bulk" and "require_alias=true" in stub.seen[-1].query


# -- an index's figures


def stats(*copies: tuple[bool, int, int, int]) -> dict[str, Any]:
    shards = [
        {"routing": {"primary": primary}, "seq_no": {"max_seq_no": last}, "docs": {"count": count, "deleted": gone}}
        for primary, last, count, gone in copies
    ]
    indices = {"papers-000001": {"uuid": "u", "shards": {str(n): [one] for n, one in enumerate(shards)}}}
    return {"indices": indices, "_all": {"total": {"store": {"size_in_bytes": 77}}}}


def test_the_state_follows_the_writes_of_primaries(stub: Stub) -> None:
    path = "/papers-000001/_stats/docs,store"
    seen = []
    with_replica = stats((True, 4, 5, 0), (False, 9, 9, 9), (True, -1, 0, 0))
    for answer in (with_replica, stats((True, 4, 5, 0), (True, 0, 1, 0)), stats((True, 4, 5, 1), (True, 0, 1, 0)), {}):
        stub.answers["GET", path] = [(200, answer)]
        seen.append(figures(Client(Connection(stub.url)), MINE_BY_NAME))
    first, second, third, none = seen
    assert first is not None and second is not None and third is not None and none is None
    assert first.bytes == 77
    assert len({first.state, second.state, third.state}) == 3


MINE_BY_NAME = read_index("papers", mapping(OURS), StoreProfile(), "here", lambda names: {})


def test_indices_of_later_versions_and_broken_layouts_are_refused() -> None:
    for meta in ({"format": 2, "version": "9"}, {"format": "x"}, {"format": 1, "layout": {"embedding": {"x": 1}}}):
        with pytest.raises(InvalidData, match="can't read"):
            index({}, {"ccheck": meta})
    layout = Layout.with_vectors(Embedding("m", 2, "f", 8), Chunking(8, 8, 0)).to_dict()
    passages = {"passages": {"type": "nested", "properties": {"vector": vector("cosine")}}}
    mine = index(passages, {"ccheck": {"format": 1, "layout": layout}})
    assert (mine.vector, mine.dimensions) == ("passages.vector", 2)
    with pytest.raises(InvalidData, match=r"mapping of here has no passages\.vector"):
        index({}, {"ccheck": {"format": 1, "layout": layout}})
