"""The Elasticsearch store on real servers: what is its own, beside what search/test_store.py asks of every store."""

import gzip
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from elastic_indices import assert_equal_but_for_ties, entry, filled, make, node_store, put, vector_of  # noqa: F401 (a fixture)
from elasticsearch_nodes import start_node
from searching import answer_all, fill, info_of, rank_one, write
from store_documents import BOTH, DIMENSIONS, LAYOUT, ids, search
from stores import SERVERS

from ccheck.core.analysis import clean, terms
from ccheck.core.errors import InvalidData, NotFound, ServerError, UsageError
from ccheck.core.layout import (
    MAIN_VECTORS,
    AdditionalTexts,
    Chunking,
    DenseField,
    Embedding,
    Layout,
    SparseField,
    UnitField,
    analysis_key,
    named_fields,
)
from ccheck.core.recipe import load_recipe
from ccheck.core.stages import Analysis, Bm25, Dense, Retriever, Sparse
from ccheck.core.types import Document, Entry, Passage, Query, Ranking, SparseVector, Unit, UnitEntry, Vector
from ccheck.search import parse_filter
from ccheck.search.elastic import Connection, ElasticStore, mappings
from ccheck.search.filters import PUBLISHED, refuse_unfit


def test_fields_are_strict_and_metadata_bounded(store, client):
    store.prepare(LAYOUT)
    assert client.put(f"/{store.index}/_doc/x", json={"unknown": 1}).status_code == 400
    many = entry("many", "Sea", **{f"key{number}": number for number in range(1_500)})
    write(store, [many, entry("next", "Sea", other="x")])
    assert store.get(["many"]) == {"many": many.document}
    assert ids(search(store, Query("sea"), {"bm25": Bm25()}, filters=[parse_filter("key0=0")])) == ["many"]
    refused = store.upsert([entry("good"), entry("bad", **{" ": "x"})])
    assert list(refused) == ["bad"] and "whitespace" in refused["bad"]


def test_an_index_that_goes_away_is_not_made_by_writing(store, client):
    store.prepare(LAYOUT)
    client.delete(f"/{store.index}-000001").raise_for_status()
    with pytest.raises(InvalidData, match=r"not there any more\. 0 in .* Run the same command again"):
        store.upsert([entry("a")])
    assert client.get(f"/{store.index}").status_code == 404


# -- vectors: nested in passages, flat where every document is one


def test_flat_and_nested_vectors_rank_alike(elasticsearch_url, elasticsearch_8_url):
    texts = [f"Paper {number} on sea level" for number in range(300)]
    entries = [
        Entry(Document(str(n), "", text, {"odd": n % 2}), "1", {MAIN_VECTORS: (Passage(0, 5, vector_of(text)),)})
        for n, text in enumerate(texts)
    ]
    queries = [Query(f"level {number}", vector_of(str(number))) for number in range(20)]
    dense: dict[str, Retriever] = {"dense": Dense(depth=50, candidates=300)}
    whole = Layout.with_vectors(LAYOUT.dense[MAIN_VECTORS].embedding, Chunking.whole(128))
    for url in (elasticsearch_url, elasticsearch_8_url):
        with filled(url, whole, entries) as flat, filled(url, LAYOUT, entries) as nested:
            assert [one._index().fields["passages.vector"].nested for one in (flat, nested)] == [False, True]
            assert info_of(flat).passages == info_of(nested).passages == 300
            for filters in ([], [parse_filter("odd=1")]):
                found = (answer_all(store, queries, dense, k=50, filters=filters) for store in (flat, nested))
                for one, other in zip(*found, strict=True):
                    assert isinstance(one, Ranking) and isinstance(other, Ranking) and len(one.hits) == 50
                    assert_equal_but_for_ties(one, other)
            # What Kibana and ES|QL see, a search without `nested` finds.
            counted = {"size": 0, "query": {"exists": {"field": "passages.vector"}}, "track_total_hits": True}
            seen = [one.client.search(one.index, counted)["hits"]["total"]["value"] for one in (flat, nested)]
            assert seen == [300, 0]


def test_a_store_whose_vectors_are_nested_gains_fields_and_keeps_them(store, monkeypatch):
    """It was made when vectors of whole documents were nested, too."""
    whole = Layout.with_vectors(LAYOUT.dense[MAIN_VECTORS].embedding, Chunking.whole(128))
    nested = mappings.layout_mappings(LAYOUT)["properties"][MAIN_VECTORS]
    with monkeypatch.context() as before:
        before.setattr(mappings, "_passages", lambda *_, **__: nested)
        fill(store, whole, [entry("a", "Sea")])
    fill(store, replace(whole, analyses=(Analysis(stopwords="nltk"),)), [entry("b", "Sea")])
    assert store._index(fresh=True).fields["passages.vector"].nested and info_of(store).passages > 2


def test_a_store_of_one_vector_each_takes_no_additional_texts(store):
    whole = Layout.with_vectors(LAYOUT.dense[MAIN_VECTORS].embedding, Chunking.whole(128))
    written = replace(whole, additional=AdditionalTexts("a", True, 1, "p"))
    assert mappings.layout_mappings(written)["properties"][MAIN_VECTORS]["type"] == "nested"
    store.prepare(whole)
    with pytest.raises(InvalidData, match="one vector for each document"):
        store.prepare(written)


def test_a_server_killed_while_it_is_written_to_loses_and_doubles_nothing():
    node = start_node("basic")
    batches = [[entry(f"{batch}-{number}", "Sea", "word " * 50) for number in range(400)] for batch in range(12)]
    connection = Connection(node.url, retry_seconds=120)
    with ElasticStore(connection, "ccheck-test-crash") as store, ThreadPoolExecutor(1) as pool:
        store.prepare(LAYOUT)
        acknowledged: list[dict[str, str]] = []

        def write_all() -> None:
            for batch in batches:
                acknowledged.append(store.upsert(batch))

        writing = pool.submit(write_all)
        while len(acknowledged) < 4 and not writing.done():
            time.sleep(0.005)
        node.kill()
        time.sleep(0.5)
        node.start()
        writing.result()
        assert acknowledged == [{}] * len(batches)
        store.publish()
        assert store.count() == 12 * 400
        wanted = [one.document.id for batch in batches for one in batch]
        assert store.digests(wanted) == dict.fromkeys(wanted, "1")
        assert store.info().passages == sum(len(one.passages[MAIN_VECTORS]) for some in batches for one in some)
        node.kill()
        gone = ElasticStore(Connection(node.url, retry_seconds=0), "ccheck-test-crash")
        with gone, pytest.raises(ServerError, match="can't be reached"):
            gone.count()


@pytest.fixture
def foreign(client: httpx.Client, store: ElasticStore) -> None:
    """An index as others make them: two shards, behind an alias with a second one."""
    keyword = {"type": "text", "fields": {"raw": {"type": "keyword"}}}
    properties = {
        "headline": {"type": "text"},
        "abstract": {"type": "text", "analyzer": "english"},
        "body": {"type": "text"},
        "journal": keyword,
        "year": {"type": "integer"},
        "open": {"type": "boolean"},
        "date": {"type": "date"},
        "authors": {"properties": {"name": {"type": "text"}}},
        "embedding": {"type": "dense_vector", "dims": DIMENSIONS, "similarity": "dot_product"},
        "other": {"type": "dense_vector", "dims": 8, "similarity": "cosine"},
        "parts": {"type": "nested", "properties": {"vector": {"type": "dense_vector", "dims": 4}}},
        "place": {"type": "geo_point"},
        "flags": {"type": "flattened"},
        "host": {"type": "ip"},
        "unused": {"type": "long"},
    }
    papers = [
        {"headline": "Sea level", "abstract": "It rises.", "body": "By 20 cm.", "journal": "Nature Food", "year": 2011,
         "open": True, "date": "2011-05-01", "authors": [{"name": "A"}, {"name": "B"}], "embedding": "sea"},
        {"headline": "Ice sheets", "abstract": "They melt into the sea.", "year": 2019, "date": "2019-12-31T10:00:00Z",
         "authors": {"name": "C"}, "embedding": "ice", "place": [1, 2], "flags": {"a": {"b": "c"}}, "host": "::1"},
        {"headline": "Tea", "abstract": "A sea of tea.", "journal": "Science"},
    ]  # fmt: skip
    for number in (1, 2):
        shards = {"number_of_shards": number}
        make(client, f"{store.index}-{number}", properties, settings=shards, aliases={store.index: {}})
    for number, paper in enumerate(papers):
        if text := paper.get("embedding"):
            paper["embedding"], paper["other"] = vector_of(str(text)).tolist(), vector_of(str(text), 8).tolist()
            paper["parts"] = [{"vector": vector_of(f"{text} {part}", 4).tolist()} for part in range(2)]
        put(client, f"{store.index}-{1 + number % 2}", f"p{number}", paper)


def test_an_index_of_others_is_searched_as_it_is(store, foreign):
    ranking = search(store, Query("rising sea", vector_of("sea")), BOTH)
    assert set(ids(ranking)) == {"p0", "p1", "p2"} and ids(ranking)[0] == "p0"
    first = ranking[0]
    assert first.scores["dense"] == pytest.approx(1, abs=1e-3)
    assert first.document == Document(
        "p0",
        "Sea level",
        "It rises.\n\nBy 20 cm.",
        {"journal": "Nature Food", "year": 2011, "open": True, "date": "2011-05-01", "authors.name": ["A", "B"]},
        "2011-05-01",
    )
    assert store.get(["p0", "p1", "none"]).keys() == {"p0", "p1"}
    assert store.count() == 3
    info = info_of(store)
    assert (info.documents, info.passages, info.dimensions) == (3, 2, DIMENSIONS)
    assert info.details["made by"] == "not ccheck" and info.details["text fields"] == "abstract, body"
    assert ids(search(store, Query("sea"), {"bm25": Bm25(fields={"headline": 1.0})})) == ["p0"]
    assert set(ids(search(store, Query("sea"), {"bm25": Bm25(fields={"text": 1.0})}))) == {"p1", "p2"}
    assert ids(search(store, Query("by"), {"bm25": Bm25()})) == ["p0"]  # here a stopword may count


def test_filters_on_an_index_of_others(store, foreign):
    passing: dict[str, set[str]] = {
        "year>=2011": {"p0", "p1"},
        "year=2011": {"p0"},
        "year>2010.5": {"p0", "p1"},
        "year>=abc": set(),
        "year!=2011": {"p1", "p2"},
        "journal=Nature Food": {"p0"},
        "journal=Food": set(),
        "journal>Nature": {"p0", "p2"},
        "authors.name=b": {"p0"},
        "abstract=Sea of tea": {"p2"},  # a phrase, and not its words
        "abstract=Tea sea": set(),
        "open=true": {"p0"},
        "open!=true": {"p1", "p2"},
        "flags.a.b=c": {"p1"},
        "host=::/64": {"p1"},
        "nothing=1": set(),
        "nothing!=1": {"p0", "p1", "p2"},
        "published<2012-01-01": {"p0"},
    }
    for (condition, expected), retrievers in product(passing.items(), ({"bm25": Bm25()}, BOTH)):
        ranking = search(store, Query("sea", vector_of("sea")), retrievers, filters=[parse_filter(condition)])
        assert set(ids(ranking)) == expected, condition
        assert store.count([parse_filter(condition)]) == len(expected), condition
    for condition, said in (("year>=99999999999999999999", "from -2147483648 to"), ("host=abc", "holds IP addresses")):
        with pytest.raises(UsageError, match=said):
            store.count([parse_filter(condition)])
    with pytest.raises(UsageError, match="full text"):
        refuse_unfit([parse_filter("authors.name>A")], store.fields(), store.name)
    kinds = dict.fromkeys(("headline", "abstract", "body", "authors.name"), "words")
    kinds |= {"journal": "text", "host": "text", "year": "numbers", "open": "booleans", "flags": "keys"}
    kinds |= dict.fromkeys(("date", PUBLISHED), "dates")
    kinds |= dict.fromkeys(("embedding", "other", "place"), "other") | {"parts.vector": "nested"}
    assert dict(store.fields()) == kinds
    with pytest.raises(UsageError, match="'unused'"):
        refuse_unfit([parse_filter("unused=1")], store.fields(), store.name)


def test_any_vectors_of_an_index_of_others_can_be_named(store, foreign):
    def ranked(dense: Dense, vector: Vector) -> list[tuple[str, float]]:
        return list(rank_one(store, Query("", vector), {"dense": dense})["dense"])

    assert ranked(Dense(), vector_of("ice"))[0] == ("p1", pytest.approx(1, abs=1e-3))
    assert ranked(Dense(field="other"), vector_of("ice", 8))[0][0] == "p1"
    best = ranked(Dense(field="parts.vector"), vector_of("ice 1", 4))
    assert (best[0][0], len(best)) == ("p1", 2)
    for dense, kind, said in (
        (Dense(field="vecs"), NotFound, r"no field of vectors 'vecs'.*embedding, other, parts\.vector"),
        (Dense(field="other"), InvalidData, r"16 dimensions.*have 8"),
    ):
        with pytest.raises(kind, match=said):
            ranked(dense, vector_of("ice"))
    sparse = SparseVector(np.array([7], np.int32), np.ones(1, np.float32))
    terms_of = Bm25(analysis=Analysis(stopwords="nltk"))
    for retriever, said in ((Sparse(), "no sparse vectors"), (terms_of, "no terms of this analysis")):
        with pytest.raises(NotFound, match=said):
            rank_one(store, Query("sea", own={"one": sparse}), {"one": retriever})


def test_an_index_of_others_is_not_written_to(store, foreign):
    writes = lambda: store.prepare(LAYOUT), lambda: store.upsert([entry("a")]), lambda: store.delete(["p0"])
    for change in (*writes, store.drop):
        with pytest.raises(InvalidData, match=r"ccheck did not make|was not made by ccheck"):
            change()
    assert store.count() == 3
    assert store.digests(["p0"]) == {}


# -- the queries that docs/elasticsearch.md shows for Kibana's console


PAGE = (Path(__file__).parents[2] / "docs" / "elasticsearch.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"<!-- tested on a server -->\n```console\nGET papers/_search\n(.*?)\n```", PAGE, re.DOTALL)


@pytest.mark.parametrize("server", SERVERS.values())
def test_what_is_shown_finds_the_document(server, elasticsearch_index, request):
    url: Any = request.getfixturevalue(server)
    bm25 = load_recipe("climatecheck-ensemble").retrievers["bm25"]
    assert isinstance(bm25, Bm25) and bm25.analysis is not None
    assert f"terms.{analysis_key(bm25.analysis)}" in PAGE
    layout = Layout(
        named_fields([DenseField(Embedding("m", 4, "f" * 64, 128), Chunking(128, 128, 16))]),
        SparseField("s", 30_522, "d" * 64, 512),
        (bm25.analysis,),
        AdditionalTexts("a", True, 1, "p"),
        {"sentence": UnitField("sentence")},
    )
    weights = SparseVector(np.array([2504, 2712], np.int32), np.array([0.5, 1.5], np.float32))
    passages = {MAIN_VECTORS: (Passage(0, 22, np.full(4, 0.5, np.float32)),)}
    inner = {"sentence": (UnitEntry(Unit("sentence", 0, 0, 20, "Sea level has risen.")),)}
    document = Document("sea", "Sea level", "Sea level has risen.")
    sea = Entry(document, "1", passages, weights, ("Oceans climb the coast.",), inner)
    mug = Entry(Document("mug", "Green mugs", "A hot drink."), "1")
    with ElasticStore(Connection(url), elasticsearch_index) as store:
        fill(store, layout, [sea, mug])
        assert len(SHOWN) == 6
        for body in SHOWN:
            headers = {"content-type": "application/json"}
            found = httpx.post(f"{url}/{elasticsearch_index}/_search", content=body, headers=headers, timeout=60)
            assert found.status_code == httpx.codes.OK, (body, found.text)
            assert [hit["_id"] for hit in found.json()["hits"]["hits"]] == ["sea"], body


# -- the same text has the same terms here and there


CHARS = 30_000  # an answer of _analyze holds at most 10,000 tokens

ODD = [
    "Don't; the dog's O’Reilly's l'été — naïve café, Ångström, straße, Æther, œuvre, ﬁne ﬂow",
    "3.2 1,000 1;000 3'4 a.b e.g. U.S.A. a:b 12:30 1.a a.1 a1.2b x_y _a_ __ a_1 1_2",
    "IL-6 TNF-α β-catenin µg 10⁻³ H₂O CO₂ ½ ² 5‰ №7 Ⅷ ㎏ ™ © °C",
    "海面上昇 ひらがな カタカナ ー 한국어 ไทยภาษา ភាសា 中文abc1 a中b ｶﾀｶﾅ 々〇",
    'море Ёж ЙОД Ελληνικά ΣΊΣΥΦΟΣ İstanbul ıI עברית ת"א العربية مُحَمَّد हिन्दी देवनागरी বাংলা தமிழ் ქართული ԱՐՄ',
    "😀 👩‍👩‍👧 🇫🇷 1️⃣ ❤️ ☃ a😀b",
    "zero\u200bwidth joi\u200dner soft\u00adhyphen no\u00a0break com\u0301bining A\u030a n\u0303 line\u2028sep",
    "bom\ufeff at \ufeffend",
    "running runs ran runner generously skies dying news innings sky's relational conditional triplicate",
    "the of and THE Of a an no not such their will with",
    "foo@bar.com http://x.org/a_b?c=d#e a/b c\\d {e} [f] <b>g</b> &amp; $5.00 50% +1 -1 ~x ^y *z",
    "a·b a‧b a．b a․b 1٫2 1٬000 ١٢٣ १२३ 1’000 1.2.3 ..1 1.. 'q' ’q’ a'' a.'b 1,a",
    "\t\n\r\x0b\x0c\x00\x1f\x7f \ud800 \udc00 \ufffd \ufffe",
    "x" * 255 + " ordinary",
]


@pytest.fixture(scope="module")
def analyze(elasticsearch_url: str) -> Iterator[httpx.Client]:
    """A client of the server, at an index with ccheck's analyzer."""
    with ElasticStore(Connection(elasticsearch_url), "ccheck-test-analysis") as store:
        store.prepare(Layout())
        with httpx.Client(base_url=f"{elasticsearch_url}/ccheck-test-analysis", timeout=60) as client:
            yield client
        store.drop()


def indexed(client: httpx.Client, text: str) -> list[str]:
    request = {"analyzer": "ccheck_english", "text": text}
    answer = client.post("/_analyze", params={"filter_path": "tokens.token"}, json=request).raise_for_status().json()
    return [token["token"] for token in answer.get("tokens", ())]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_odd_text(analyze, text):
    assert terms(text) == indexed(analyze, clean(text))


def test_scifact(analyze, scifact):
    with gzip.open(scifact / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    count = 0
    texts: list[str] = []
    for number, document in enumerate(documents, 1):
        texts.append(f"{document['title']}\n{document['text']}")
        if number == len(documents) or sum(map(len, texts)) > CHARS:
            text = "\n".join(texts)
            assert terms(text) == indexed(analyze, text)
            count += len(texts)
            texts = []
    assert count == len(documents) > 5_000
