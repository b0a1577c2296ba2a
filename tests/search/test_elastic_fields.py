"""What recipes search for in Elasticsearch, on real servers, beside what test_store_fields.py asks of all stores."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import elastic_indices as indices
import httpx
import numpy as np
import orjson
import pytest
from elastic_indices import assert_equal_but_for_ties, filled, ids, node_store, vector_of  # noqa: F401 (a fixture)
from searching import answer_all, answer_one, fill, info_of, rank_all
from store_documents import FULL, PLAIN, SECOND, VOCABULARY
from store_units import ranked
from stores import SERVERS

from ccheck import es_mappings
from ccheck.core.analysis import terms
from ccheck.core.errors import CcheckError
from ccheck.core.layout import Layout
from ccheck.core.recipe import load_recipe
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever, Sparse
from ccheck.core.types import Document, Entry, Filter, Passage, Query, Ranking, SparseVector
from ccheck.demo import CLAIMS, CORPUS
from ccheck.search import Search, answer
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.fields import Field, Index
from ccheck.search.elastic.queries import FUSINGS, fusing
from ccheck.search.local import LocalStore

QUANTISED = 2**-8
"""The share by which the index can keep a weight too small: 9 significant bits of it, the others cut off."""


def sparse_of(text: str) -> SparseVector:
    """Its terms; a weight depends on the term, and on how often it is there."""
    weights: Counter[int] = Counter()
    for term in terms(text):
        digest = hashlib.sha256(term.encode()).digest()
        weights[int.from_bytes(digest[:4], "big") % VOCABULARY] += 30 + digest[31]
    tokens = sorted(weights)
    logs = np.log1p(np.array([weights[token] / 100 for token in tokens])).astype(np.float32)
    return SparseVector(np.array(tokens, np.int32), logs)


def entry(id_: str, title: str = "", text: str = "A text.", **metadata: Any) -> Entry:
    plain = indices.entry(id_, title, text, **metadata)
    passages = {**plain.passages, SECOND: (Passage(0, len(text), vector_of(id_, 4)),)}
    return replace(plain, passages=passages, sparse=sparse_of(f"{title} {text}"), additional=(f"In short: {title}",))


def query_of(text: str) -> Query:
    return Query(text, vector_of(text), {"sparse": sparse_of(text)})


@pytest.fixture(params=SERVERS.values())
def any_store(request: pytest.FixtureRequest, elasticsearch_index: str) -> Iterator[ElasticStore]:
    with ElasticStore(Connection(request.getfixturevalue(request.param)), elasticsearch_index) as store:
        yield store


DEPTH = 12
"""Fewer than there are documents, so that the retrievers disagree about which they find."""


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


SAMPLE = [entry(row["_id"], row["title"], row["text"]) for row in rows(CORPUS)]


# A basic licence has no fusion of its own.
@pytest.fixture(scope="module", params=["elasticsearch_url", "elasticsearch_8_url"])
def sample(request: pytest.FixtureRequest) -> Iterator[ElasticStore]:
    with filled(request.getfixturevalue(request.param), FULL, SAMPLE) as store:
        yield store


@pytest.fixture
def claims() -> list[Query]:
    return [query_of(claim["text"]) for claim in rows(CLAIMS)]


def fused_by(
    store: ElasticStore, monkeypatch: pytest.MonkeyPatch, native: bool, *asked: Any, **options: Any
) -> tuple[list[Ranking], bool]:
    """The rankings where the server may fuse, or may not, and whether it was asked to."""
    sent: list[bytes] = []
    send = store.client.send

    def record(method: str, path: str, body: Any = None, params: Any = None) -> dict[str, Any]:
        sent.append(body if isinstance(body, bytes) else orjson.dumps(body))
        return send(method, path, body, params)

    with monkeypatch.context() as patched:
        patched.setattr(store.client, "send", record)
        patched.setattr(store.client, "unfused", set() if native else set(FUSINGS))
        rankings = answer_all(store, *asked, **options)
        assert all(isinstance(one, Ranking) for one in rankings)
    last = [body.replace(b" ", b"") for body in sent if b'"retriever"' in body][-1]
    return rankings, any(way in last for way in (b'"rrf":{', b'"linear":{'))  # type: ignore[return-value]


TWO: dict[str, Retriever] = {"bm25": Bm25(depth=DEPTH), "dense": Dense(depth=DEPTH)}
THREE: dict[str, Retriever] = {**TWO, "dense": Dense(depth=8, candidates=300), "sparse": Sparse(depth=DEPTH)}
RECIPE = load_recipe("checkthat-4b-elasticsearch")
"""Its kNN hands on 50 of 200 candidates in a window of 100."""


@pytest.mark.parametrize(
    ("retrievers", "fusion", "k", "since"),
    [
        (TWO, Fusion(), DEPTH, 8),
        (RECIPE.retrievers, RECIPE.fusion, 30, 8),
        (THREE, Fusion(k=20), DEPTH, 8),
        ({**THREE, "bm25": Bm25(depth=DEPTH, weight=1.5)}, Fusion(), DEPTH, 9),  # weights came with 9.2
        (RECIPE.retrievers, Fusion(method="minmax"), 30, 8),
    ],
    ids=["two", "recipe", "three", "weighted", "minmax"],
)
def test_the_servers_fusion_and_our_own_rank_alike(sample, claims, retrievers, fusion, k, since, monkeypatch):
    details = fusion.method == "rrf"
    (own, asked), (native, natively) = (
        fused_by(sample, monkeypatch, one, claims, retrievers, fusion, k=k, details=details) for one in (False, True)
    )
    version = sample.client.request("GET", "/")["version"]["number"]
    assert natively == (int(version.split(".")[0]) >= since) and not asked
    assert {ranking.fused_by for ranking in own} == {"ccheck"}
    assert {ranking.fused_by for ranking in native} == {"server" if natively else "ccheck"}
    for mine, theirs in zip(own, native, strict=True):
        assert len(mine.hits) == k
        assert_equal_but_for_ties(mine, theirs)
        there = {hit.document.id: hit for hit in theirs.hits}
        for hit in mine.hits if details else ():
            # Of equal scores at the end, either side may show either.
            other = there.get(hit.document.id)
            assert other or hit.score == mine.hits[-1].score
            if other:
                assert (hit.document, hit.ranks) == (other.document, other.ranks)
                assert hit.scores == pytest.approx(other.scores, rel=1e-6)


@pytest.mark.parametrize(
    ("retrievers", "k", "way"),
    [
        ({"a": Bm25(depth=100), "b": Dense(depth=50, candidates=200)}, 100, "rrf"),
        ({"a": Bm25(depth=100), "b": Dense(depth=50)}, 101, None),
        ({"a": Bm25(depth=30), "b": Dense(depth=100)}, 10, None),  # the window would give BM25 100, too
        ({"a": Bm25(), "b": Dense(depth=10), "c": Sparse()}, 10, "rrf"),
        ({"a": Dense(depth=10), "b": Dense(depth=50)}, 50, "rrf"),
        ({"a": Bm25()}, 10, None),
        ({"a": Bm25(weight=2.0), "b": Sparse()}, 10, "weighted rrf"),
    ],
)
def test_when_the_server_fuses(retrievers, k, way):
    """`linear` does not say ranks, and scales the server's scores, which for some vectors are no multiples of ours."""
    index = Index("a", {"v": Field("dense_vector")}, None, (), {}, "v", None)
    assert fusing(index, Search([], retrievers, k=k)) == way
    assert fusing(index, Search([], retrievers, k=k, whole=True)) is None
    scaled = Search([], retrievers, Fusion(method="minmax"), k, details=False)
    assert fusing(index, scaled) == (way and "linear") and fusing(index, replace(scaled, details=True)) is None
    others = replace(index, fields={"v": Field("dense_vector", similarity="l2_norm")})
    dense = any(isinstance(one, Dense) for one in retrievers.values())
    assert fusing(others, scaled) == (None if dense else way and "linear")


def test_scores_that_the_server_leaves_as_they_are_are_fused_here(sample, claims):
    """Its `minmax` makes no 1 of equal scores, such as those of the only document that passes a filter."""
    only = [Filter("_id", "=", answer_one(sample, claims[0], THREE, k=1).hits[0].document.id)]
    found = answer_one(sample, claims[0], THREE, Fusion(method="minmax"), k=5, filters=only, details=False)
    assert [(hit.document.id, hit.score) for hit in found.hits] == [(only[0].value, 3.0)]


def test_both_kinds_of_store_rank_alike(sample, claims, tmp_path):
    retrievers: dict[str, Retriever] = {
        "words": Bm25(depth=30),
        "fuzzy": Bm25(depth=30, fuzziness="auto", fields={"content": 1.0, "additional": 2.0}),
        "plain": Bm25(depth=30, analysis=PLAIN, fuzziness=1),
        "dense": Dense(depth=30, candidates=1_000),
        "sparse": Sparse(depth=30),
    }
    # Two words of these are near to one term, which Lucene then counts once, with the weight of one of them.
    claims = [one for one in claims if not one.text.startswith(("Someone", "Pensioners", "The computer models"))]
    with LocalStore(tmp_path / "local") as local:
        fill(local, FULL, SAMPLE)
        here, there = rank_all(local, claims, retrievers), rank_all(sample, claims, retrievers)
    for name in retrievers:
        same = every = 0
        for mine, theirs in zip(here, there, strict=True):
            assert not isinstance(mine, CcheckError) and not isinstance(theirs, CcheckError)
            scores = dict(theirs[name])
            same += len(scores.keys() & dict(mine[name]).keys())
            every += len(mine[name])
            if name != "dense":  # of several passages the best is told by quantised vectors
                near = QUANTISED if name == "sparse" else 1e-4
                expected = {id_: score for id_, score in mine[name] if id_ in scores}
                assert {id_: scores[id_] for id_ in expected} == pytest.approx(expected, rel=near)
        assert every and same / every > 0.97, name


def test_a_sparse_query_of_more_tokens_than_a_server_takes(any_store):
    seven = SparseVector(np.array([7], np.int32), np.array([2], np.float32))
    fill(any_store, FULL, [replace(entry("a"), sparse=seven)])
    weights = np.linspace(0.1, 1, 20_000, dtype=np.float32)
    heavy = replace(query_of("x"), own={"sparse": SparseVector(np.arange(20_000, dtype=np.int32), weights)})
    assert ranked(any_store, heavy, Sparse()) == {}  # token 7 has one of the small weights
    weights[7] = 3.0
    assert ranked(any_store, heavy, Sparse()) == {"a": pytest.approx(6.0)}


def test_ten_thousand_candidates(store):
    entries = (Entry(Document(f"d{n}", "", f"zebra {'sea ' * (1 + n % 2)}"), "1") for n in range(10_050))
    fill(store, Layout(), list(entries))
    deep: dict[str, Retriever] = {"zebra": Bm25(depth=10_000), "sea": Bm25(depth=10_000)}
    for found in rank_all(store, [Query("zebra", own={"sea": "sea"}), Query("zebra")], deep):
        assert not isinstance(found, CcheckError)
        assert [len(dict(ranking)) for ranking in found.values()] == [10_000, 10_000]
    assert len(set(ids(answer_one(store, Query("zebra", own={"sea": "sea"}), deep, k=1_500)))) == 1_500
    alone = answer_one(store, Query("sea"), {"sea": Bm25(depth=10_000)}, k=1_500)
    assert len(set(ids(alone))) == 1_500
    assert all(hit.document.text.count("sea") == 2 for hit in alone.hits)


def test_fuzzy_words_that_are_too_many_for_the_server(store):
    """Each of the words is near to 50 others, so that of a long claim each stands for fewer of them."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcd"), 6)) for _ in range(2_700)]
    texts = [" ".join(words[n : n + 30]) for n in range(0, 2_700, 30)]
    fill(store, FULL, [entry(f"d{n}", "", text) for n, text in enumerate(texts)])
    long = query_of(" ".join(words[:400]))
    assert len(ranked(store, long, Bm25(fuzziness="auto"))) == 90
    longer = ranked(store, query_of(" ".join(words[:900])), Bm25(fuzziness=2, analysis=PLAIN))
    assert set(longer) >= {f"d{n}" for n in range(30)}
    both: dict[str, Retriever] = {"bm25": Bm25(fuzziness="auto"), "dense": Dense(), "sparse": Sparse()}
    for options in ({}, {"details": False}):
        assert len(answer_one(store, long, both, k=5, **options).hits) == 5
    short = ranked(store, query_of(" ".join(words[:3])), Bm25(fuzziness="auto"))
    assert next(iter(short)) == "d0" and len(short) > 30


def test_a_partial_update_keeps_what_the_document_is_found_by(any_store):
    glaciers = entry("a", "Glaciers", "Mountain glaciers shrink.", year=2001)
    fill(any_store, FULL, [glaciers, entry("b", "Tea", "Green tea.")])
    url = any_store.name.removesuffix(f"/{any_store.index}")
    body = {"doc": {"metadata": {"year": 2002}}}
    httpx.post(f"{url}/{any_store.index}/_update/a", params={"refresh": "true"}, json=body).raise_for_status()
    query = query_of("Glaciers")
    asked = replace(query, own={**query.own, "dense": vector_of("a", 4)})
    assert any_store.get(["a"])["a"].metadata == {"year": 2002}
    assert list(ranked(any_store, Query("shrink"), Bm25(analysis=PLAIN))) == ["a"]
    assert list(ranked(any_store, query, Sparse())) == ["a"]
    assert list(ranked(any_store, Query("glacier"), Bm25(fields={"additional": 1.0}))) == ["a"]
    assert ranked(any_store, asked, Dense(field=SECOND, depth=1)) == {"a": pytest.approx(1, abs=1e-5)}
    assert ranked(any_store, Query("", vector_of("a 0")), Dense(depth=1)) == {"a": pytest.approx(1, abs=1e-3)}


def test_documents_that_others_wrote_are_found_too(any_store):
    """They lack the field that repeats the id."""
    any_store.prepare(FULL)
    any_store.upsert([entry("a", "Sea level", "The sea rises.")])
    url = any_store.name.removesuffix(f"/{any_store.index}")
    httpx.put(f"{url}/{any_store.index}/_doc/b", json={"title": "Sea", "text": "By hand."}).raise_for_status()
    any_store.publish()
    assert set(ranked(any_store, Query("sea"), Bm25())) == {"a", "b"}
    both: dict[str, Retriever] = {"bm25": Bm25(), "dense": Dense(depth=50)}
    assert set(ids(answer_one(any_store, query_of("sea"), both, Fusion(method="minmax"), k=5))) == {"a", "b"}
    assert list(ranked(any_store, Query("rises"), Bm25())) == ["a"]


def test_the_templates_make_an_index_for_every_field(any_store):
    """Under other names, so that no other index is touched."""
    name, url = any_store.index, any_store.name.removesuffix(f"/{any_store.index}")
    with httpx.Client(base_url=url, timeout=60) as client:
        for component in ("ccheck-settings", "ccheck-fields", "ccheck-vectors", "ccheck-sparse"):
            body = es_mappings.read(component)
            client.put(f"/_component_template/{name}-{component}", json=body).raise_for_status()
        template = es_mappings.read("ccheck-template")
        template |= {"index_patterns": [f"{name}-*"], "priority": 400}
        template["composed_of"] = [f"{name}-{component}" for component in template["composed_of"]]
        client.put(f"/_index_template/{name}", json=template).raise_for_status()
        client.put(f"/{name}-000001", json={"aliases": {name: {"is_write_index": True}}}).raise_for_status()
        made = client.get(f"/{name}").json()[f"{name}-000001"]["mappings"]["properties"]
    assert made["sparse"]["type"] == "sparse_vector" and made["additional"]["type"] == "text"
    fill(any_store, FULL, [entry("a", "Sea level")])
    assert info_of(any_store).layout == FULL
    assert list(ranked(any_store, query_of("sea"), Sparse())) == ["a"]


# -- what the server says of its fusion


def test_a_server_that_does_not_say_its_ranks_is_not_asked_again(sample, monkeypatch):
    """What its explanation says is in no contract: in other words, ccheck fuses by itself."""
    send = sample.client.send

    def in_other_words(*request: Any) -> dict[str, Any]:
        return json.loads(json.dumps(send(*request)).replace("initial ranks", "ranks"))  # type: ignore[no-any-return]

    monkeypatch.setattr(sample.client, "send", in_other_words)
    monkeypatch.setattr(sample.client, "unfused", set())
    text = "sea level has risen"
    ranking = answer_one(sample, Query(text, vector_of(text)), {"bm25": Bm25(), "dense": Dense()}, k=5)
    assert ranking.fused_by == "ccheck" and len(ranking.hits) == 5
    assert sample.client.unfused == {"rrf"}


def test_the_request_for_kibanas_console_finds_the_same(sample, monkeypatch):
    monkeypatch.setattr(sample.client, "unfused", set())
    text = "sea level has risen"
    search = Search([Query(text, vector_of(text))], {"bm25": Bm25(), "dense": Dense()}, k=5)
    (ranking,) = answer(sample, search)
    asked, _, body = sample.console(search).partition("\n")
    method, path = asked.split()
    found = httpx.request(method, f"{sample.name.rpartition('/')[0]}/{path}", json=json.loads(body)).raise_for_status()
    hits = found.json()["hits"]["hits"]
    assert {hit["_id"] for hit in hits} == set(ids(ranking))
    assert all(hit["matched_queries"] for hit in hits) and len(body.splitlines()) < 60
