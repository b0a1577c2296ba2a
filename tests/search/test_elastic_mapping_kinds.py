"""What a stranger's mapping can hold, on a real server: each kind is searched and shown, or refused in words."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import httpx
import numpy as np
import pytest
from cli_runs import BM25, ccheck, works
from elastic_indices import PROSE, ids, make, node_store, put, put_all  # noqa: F401 (a fixture)
from elastic_indices import documents_of as found
from elasticsearch_nodes import delete_indices
from runtimes import on_cpu
from searching import answer_all, answer_one, info_of, rank_one
from tiny_embedder import TinyEmbedder

from ccheck.core.errors import CcheckError, InvalidData, UsageError
from ccheck.core.layout import Layout
from ccheck.core.profiles import StoreProfile
from ccheck.core.settings import Settings, config_files, resolve
from ccheck.core.stages import Bm25, Dense, Fusion, Retriever
from ccheck.core.types import Hit, Query
from ccheck.pipeline.agreement import agreement
from ccheck.pipeline.checker import Checker
from ccheck.search import open_store, parse_filter
from ccheck.search.elastic import Connection, ElasticStore

TEXT = {"type": "text"}
ENGLISH = {"fields": {"en": {"type": "text", "analyzer": "english"}}}
UNSIZED = {"type": "dense_vector", "index": True, "similarity": "cosine"}
VECTOR = UNSIZED | {"dims": 3}
IDS = {name: {"type": "keyword"} for name in ("document_id", "doc_id", "ref_doc_id")}
STRINGS = {"path_match": "*", "match_mapping_type": "string", "mapping": {"type": "keyword"}}


def langchain(number: int, paper: str, title: str, text: str) -> dict[str, Any]:
    about = {"source": f"papers/{paper}.pdf", "title": title, "page": number}
    return {"text": text, "metadata": about, "vector": [1, number, 0]}


def llama_index(number: int, paper: str, title: str, text: str) -> dict[str, Any]:
    node = {"title": title, "_node_content": '{"text": ""}', "_node_type": "TextNode"}
    return {"content": text, "embedding": [1, number, 0], "metadata": node | dict.fromkeys(IDS, paper)}


def haystack(number: int, paper: str, title: str, text: str) -> dict[str, Any]:
    split = {"source_id": paper, "split_id": number, "split_idx_start": 0, "page_number": 1}
    return {"content": text, "embedding": [1, number, 0], "title": title, **split}


PACKAGES: dict[Callable[..., dict[str, Any]], dict[str, Any]] = {
    # `ElasticsearchStore.from_documents`: only the vector is mapped, all else is found by the server.
    langchain: {"properties": {"vector": VECTOR}},
    # `ElasticsearchStore.add`: the ids of a node's document are keywords.
    llama_index: {"properties": {"content": TEXT, "embedding": VECTOR, "metadata": {"properties": IDS}}},
    # `ElasticsearchDocumentStore.write_documents`: each string but the content is a keyword, metadata lie flat.
    haystack: {"properties": {"content": TEXT, "embedding": UNSIZED}, "dynamic_templates": [{"strings": STRINGS}]},
}
"""What is stored of each chunk, and the mappings of its index."""


def test_a_keyword_is_searched_in_its_text_multi_field(client, store):
    make(client, store.index, {"title": {"type": "keyword", **ENGLISH}, "abstract": {"type": "text", **ENGLISH}})
    put(client, store.index, "p", {"title": "Shrinking oceans", "abstract": PROSE})
    (one,) = found(store, "ocean")
    assert (one.title, one.text) == ("Shrinking oceans", PROSE)
    assert found(store, "glacier") == []  # the text itself is not stemmed
    with ElasticStore(store.client.connection, store.index, StoreProfile(text=("abstract.en",))) as named:
        (one,) = found(named, "glacier")
        assert (one.text, one.title) == (PROSE, "Shrinking oceans")


ALIASES = {name: {"type": "alias", "path": path} for name, path in (("title", "t"), ("abstract", "b"))}
SHORT = {"type": "keyword", "ignore_above": 20, "fields": {"words": TEXT}}
PUBMED = {"article_title": TEXT, "abstract": TEXT, "abstract_semantic": {"properties": {"text": TEXT}}}
PAPER = {"article_title": "Ice", "abstract": [PROSE, "Lost."], "abstract_semantic": {"text": f"{PROSE} Lost."}}


@pytest.mark.parametrize(
    ("properties", "source", "words", "shown"),
    [
        ({"t": TEXT, "b": TEXT, **ALIASES}, {"t": "Ice", "b": PROSE}, "ice glaciers", ("Ice", PROSE, {})),
        ({"summary": SHORT}, {"summary": PROSE}, "glaciers", ("", PROSE, {})),
        (PUBMED, PAPER, "lost", ("Ice", f"{PROSE} Lost.", {})),
    ],
    ids=["alias", "a keyword that is too long", "PubMed"],
)
def test_what_stands_for_a_text(client, store, properties, source, words, shown):
    make(client, store.index, properties)
    put(client, store.index, "p", source)
    for word in words.split():
        (one,) = found(store, word)
        assert (one.title, one.text, one.metadata) == shown


def test_html_is_read_as_text_at_the_same_offsets(client, store):
    make(client, store.index, {"content_html": TEXT})
    html = f'<h2>Ice</h2><p class="x">{PROSE}</p><p>If a<b and b>c, tea grows.<br/>It is <em>warm</em>.</p>'
    put(client, store.index, "p", {"content_html": html})
    (one,) = found(store, "glaciers")
    assert one.text.split() == f"Ice {PROSE} If a<b and b>c, tea grows. It is warm .".split()
    start = one.text.index(PROSE)
    assert html[start : start + len(PROSE)] == PROSE and len(one.text) == len(html)


@pytest.mark.parametrize("format_", ["dd.MM.yyyy", "epoch_second", "yyyy/MM/dd", "strict_date_optional_time"])
def test_dates_are_compared_whatever_their_format(client, store, format_):
    make(client, store.index, {"text": TEXT, "when": {"type": "date", "format": format_}, "date": {"type": "date"}})
    written = {"dd.MM.yyyy": "05.03.2011", "epoch_second": 1299283200, "yyyy/MM/dd": "2011/03/05"}
    put(client, store.index, "p", {"text": PROSE, "when": written.get(format_, "2011-03-05")})
    passing = ("when=2011", "when=2011-03", "when=2011-03-05", "when>=2011-03-05", "when<2012", "when!=2011-04")
    passing += ("when<now-10d", "when<1399283200000", "when<2011-03-05T10:00")
    for asked in (*passing, "when>=now-10d", "when=2011-04", "when>2011-03-05", "when<2011"):
        assert len(found(store, "glaciers", filters=[parse_filter(asked)])) == (asked in passing), asked
    assert dict(store.fields()) == {"text": "words", "when": "dates"}  # no document has the other date


def test_text_in_nested_passages(client, store):
    """A document scores as its best passage; all of them are its text."""
    passages = {"type": "nested", "properties": {"text": TEXT, "page": {"type": "integer"}}}
    make(client, store.index, {"title": TEXT, "passages": passages})
    for id_, texts in (("p", ["Nothing of it.", PROSE]), ("q", ["Snow.", "Ice.", "Rivers of the plain."])):
        source = {"title": "Ice", "passages": [{"text": text, "page": 1} for text in texts]}
        put(client, store.index, id_, source)
    best, other = found(store, "snow on mountain glaciers")
    assert (best.id, best.title, best.text) == ("p", "Ice", f"Nothing of it.\n\n{PROSE}")
    assert other.id == "q"
    (one,) = found(store, "rivers", {"bm25": Bm25(fields={"passages.text": 1.0}, fuzziness="auto")})
    assert one.id == "q" and store.get(["q"])["q"] == one
    query = Query("snow on mountain glaciers")
    hits = [Hit(1, best, 1.0), Hit(2, other, 0.5), Hit(3, replace(other, id="gone"), 0.1)]
    (narrowed, none) = store.narrowed([query, query], [hits, []])
    assert [hit.unit and (hit.unit.granularity, hit.unit.number, hit.unit.text) for hit in narrowed] == [
        ("passages", 1, PROSE),
        ("passages", 0, "Snow."),
        None,
    ]
    unit = narrowed[0].unit
    assert none == () and unit is not None and best.text[unit.start : unit.end] == PROSE


def test_the_passage_that_matches_is_what_is_read(client, store, monkeypatch):
    """As `ccheck query` shows it: sentences stand where they are in the whole text."""
    passages = {"type": "nested", "properties": {"text": TEXT}}
    make(client, store.index, {"title": TEXT, "passages": passages})
    texts = ["Glaciers are mentioned here in passing.", "Tea grows on hills.", PROSE]
    put(client, store.index, "p", {"title": "Ice", "passages": [{"text": text} for text in texts]})
    monkeypatch.setenv("ELASTICSEARCH_URL", str(client.base_url))
    ran = ccheck("query", "glaciers lose ice to less snow", "--store", f"elasticsearch:{store.index}", *BM25, "--json")
    (result,) = ran.objects
    (piece,) = result["evidence"]
    (sentence,) = piece["sentences"]
    assert sentence["text"] == PROSE and sentence["start"] == len("\n\n".join(texts)) - len(PROSE)


def test_lists_and_patterns_of_indices_are_searched_and_not_written(client, store):
    for number in range(2):
        make(client, f"{store.index}-{number}", {"title": TEXT, "text": TEXT})
        put(client, f"{store.index}-{number}", "p", {"title": f"Ice {number}", "text": PROSE})
    expected = [f"{store.index}-0/p", f"{store.index}-1/p"]
    for name in (f"{store.index}-0,{store.index}-1", f"{store.index}-*"):
        with ElasticStore(store.client.connection, name) as several:
            (ranking,) = answer_all(several, [Query("glaciers")], {"bm25": Bm25()}, k=5)
            assert sorted(ids(ranking)) == expected and sorted(several.get(expected)) == expected
            assert several.count() == 2 and len(list(several.scan())) == 2
            for refused in (lambda several=several: several.prepare(Layout()), several.removal, several.drop):
                with pytest.raises(UsageError, match="several indices, which ccheck only searches"):
                    refused()
    with ElasticStore(store.client.connection, f"{store.index}-none*") as nothing:
        assert nothing.info() is None


def test_synthetic_source_and_a_thousand_fields(client, store):
    properties: dict[str, Any] = {"title": TEXT, "text": TEXT, **{f"f{number}": TEXT for number in range(600)}}
    properties |= {f"k{number}": {"type": "keyword"} for number in range(390)}
    make(client, store.index, properties, settings={"index.mapping.source.mode": "synthetic"})
    put(client, store.index, "p", {"title": "Ice", "text": PROSE, "k1": "x"})
    (one,) = found(store, "glaciers")
    assert (one.title, one.text, one.metadata) == ("Ice", PROSE, {"k1": "x"})
    assert "and 580 more" in info_of(store).details["left out"]


@pytest.mark.parametrize("source", PACKAGES)
def test_indices_of_packages_are_shown_whole_and_grouped_by_paper(client, store, source):
    chunks = [("a", "Ice", PROSE), ("a", "Ice", "Glaciers. Snow."), ("b", "Seas", "Oceans, far from glaciers.")]
    client.put(f"/{store.index}", json={"mappings": PACKAGES[source]}).raise_for_status()
    put_all(client, store.index, {str(number): source(number, *chunk) for number, chunk in enumerate(chunks)})
    one, other = found(store, "glaciers lose ice")
    assert (one.title, one.text, other.title) == ("Ice", PROSE, "Seas")
    info = info_of(store)
    assert info.dimensions == 3 and info.documents == 3
    assert not any(isinstance(value, CcheckError) or "embedding" in key for key, value in one.metadata.items())


WORDS: dict[str, Retriever] = {"bm25": Bm25(depth=10)}
BOTH: dict[str, Retriever] = {"bm25": Bm25(depth=10), "dense": Dense(depth=10)}
PAPERS, EACH = 12, 15
"""More chunks of the best paper than are asked for at first."""
ICE = Query("glaciers lose ice", np.array([1.0, 0.0, 0.0], np.float32))


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
            sources = {}
            for paper, chunk in product(range(PAPERS), range(EACH)):
                text = "Glaciers lose ice. " * (1 + chunk % 3) + f"Chunk {chunk} of paper {paper}. " + "More. " * paper
                source = {"content": text, "embedding": [1, 0.1 * paper, 0.01 * (chunk + 1)]}
                sources[f"{paper}-{chunk}"] = source | {"metadata": {"ref_doc_id": f"paper {paper}"} if paper else {}}
            put_all(client, name, sources)
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
def test_ten_hits_are_ten_papers(chunked, retrievers, fusion, details):
    rankings = []
    for store in chunked:
        ranking = answer_one(store, ICE, retrievers, fusion, k=10, details=details)
        # The chunks of paper 0 do not say what they belong to: each is one of its own.
        papers = [hit.document.metadata.get("metadata.ref_doc_id", hit.document.id) for hit in ranking.hits]
        assert len(set(papers)) == len(papers) == 10
        rankings.append(ids(ranking))
        found = rank_one(store, ICE, retrievers)
        assert {len(one) for one in found.values()} == {10}
        assert {one for ranked in found.values() for one, _ in ranked} >= set(ids(ranking))
    assert rankings[0] == rankings[1]


def test_the_best_chunk_is_shown(chunked):
    query = Query("chunk 7 of paper 3")
    ranking = answer_one(chunked[0], query, WORDS, k=3)
    assert ids(ranking)[0] == "3-7"
    document = ranking.hits[0].document
    assert "Chunk 7 of paper 3." in document.text and document == chunked[0].get(["3-7"])["3-7"]
    assert info_of(chunked[0]).details["papers"] == "chunks grouped by metadata.ref_doc_id, 15.0 each on average"


def test_what_is_no_paper_groups_nothing(client, store):
    """A source can be a publisher. The settings can name any field, or none."""
    keyword = {"type": "keyword"}
    make(client, store.index, {"text": {"type": "text"}, "source": keyword, "doi": keyword, "year": {"type": "date"}})
    for number, source in enumerate(("PubMed", "PubMed", "arXiv")):
        put(client, store.index, str(number), {"text": "Glaciers.", "source": source, "doi": f"10.1/{number // 2}"})
    for group, count in ((None, 3), ("doi", 2), ("source", 2), ("", 3)):
        with ElasticStore(store.client.connection, store.index, StoreProfile(group=group)) as named:
            (ranking,) = answer_all(named, [Query("glaciers")], WORDS, k=10)
            assert len(ids(ranking)) == count, group
    for group, said in (("year", "not a keyword or number"), ("none", "does not exist"), ("text", "not a keyword")):
        named = ElasticStore(store.client.connection, store.index, StoreProfile(group=group))
        with named, pytest.raises(InvalidData, match=f"the field {group} of .* can't group chunks: it {said}|{said}"):
            named.info()


# -- fields named in the settings, and what the doctor says of them


MODEL = "all-MiniLM-L6-v2"
TEXTS = ("Mountain glaciers lose more ice each year.", "Oceans rise as they warm.")


@pytest.fixture
def spec(client: httpx.Client, elasticsearch_url: str, elasticsearch_index: str) -> str:
    """An index whose vectors were made by a model that it does not name, with two fields called like texts."""
    from ccheck.encode.dense import load_embedder

    vector = {"type": "dense_vector", "dims": 384, "similarity": "cosine"}
    fields = {"heading": TEXT, "body": {**TEXT, **ENGLISH}, "text": TEXT}
    make(client, elasticsearch_index, fields | {"embedding": vector, "year": {"type": "integer"}})
    vectors = load_embedder(MODEL, on_cpu()).encode_documents([f"Heading {text}" for text in TEXTS])
    for number, text in enumerate(TEXTS):
        source = {"heading": "Heading", "body": text, "text": "Notes.", "year": 2000 + number, "secret": "x"}
        put(client, elasticsearch_index, str(number), source | {"embedding": vectors[number].tolist()})
    return f"{elasticsearch_url}/{elasticsearch_index}"


def details(*arguments: str) -> dict[str, tuple[str, str]]:
    ran = ccheck("doctor", "--json", *arguments)
    return {one["part"]: (one["status"], one["detail"]) for one in ran.objects}


def test_a_profile_names_the_fields_of_one_store(spec):
    file = config_files()[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    index = spec.rpartition("/")[2]
    file.write_text(f'[stores.{index}]\ntitle = "heading"\ntext = "body.en"\nmetadata = ["year"]\n')
    with open_store(resolve({"store": spec}, {}).settings) as store:
        ranking = answer_one(store, Query("ocean heading"), {"bm25": Bm25()}, k=2)
        first = ranking.hits[0].document
        assert (first.id, first.title, first.text, first.metadata) == ("1", "Heading", TEXTS[1], {"year": 2001})
    file.write_text(f'[stores.{index}]\ntext = "none"\n')
    store = open_store(resolve({"store": spec}, {}).settings)
    with store, pytest.raises(InvalidData, match="no field 'none'"):
        store.info()
    assert "no field 'none'" in details("--store", spec)["store"][1]


def test_the_doctor_shows_the_profile_and_writes_it_on_request(spec):
    found = details("--store", spec)
    fields = "text = text, body; vector = embedding; 384 dimensions"
    assert found["profile"] == ("ok", f"{fields}; model unknown: the vectors are searched once you name it")
    assert "agreement" not in found and "--model" in found["search"][1]
    assert "vectors of 384 dimensions by a model that the index does not name" in found["store"][1]
    found = details("--store", spec, "--model", "nobody/has-this", "--write-profile")
    assert found["store"][0] == "absent" and "2 documents" in found["store"][1]
    assert "not searched: " in found["store"][1] and str(config_files()[0]) in found["profile"][1]
    profiles = resolve({}, {}).settings.stores
    assert [one.text for one in profiles.values()] == [("text", "body")]
    assert details("--store", spec, "--write-profile")["store"][1].endswith("remove it first")


def test_the_doctor_writes_down_the_model_that_it_tested(spec, monkeypatch):
    found = details("--store", spec, "--model", MODEL, "--write-profile")
    assert found["agreement"][0] == "failed" and "with the model" not in found["profile"][1]
    config_files()[0].unlink()
    index = spec.rpartition("/")[2]
    monkeypatch.setenv("CCHECK_STORES", f'{{"{index}": {{"title": "heading", "text": "body"}}}}')
    details("--store", spec, "--write-profile")  # the model can be added later
    assert details("--store", spec, "--model", MODEL, "--write-profile")["profile"][1].endswith(f"the model {MODEL}")
    monkeypatch.delenv("CCHECK_STORES")  # the file has it all now
    (answer,) = ccheck("query", "oceans", "--store", spec, "--json").objects
    assert "dense" in answer["evidence"][0]["ranks"]
    found = details("--store", spec)
    assert found["profile"][1].startswith("title = heading; text = body; vector = embedding; model = all-MiniLM")
    assert found["agreement"][0] == "ok" and "with a mean cosine of 1.000" in found["agreement"][1]
    assert f"vectors of 384 dimensions by {MODEL}" in found["store"][1]


def test_the_doctor_tests_a_model_of_nested_passages(client, store):
    embedder = TinyEmbedder()
    vector = {"type": "dense_vector", "dims": embedder.spec.dimensions, "similarity": "cosine"}
    inner = {"type": "nested", "properties": {"words": {"type": "text"}, "vector": vector}}
    make(client, store.index, {"title": {"type": "text"}, "abstract": {"type": "text"}, "parts": inner})
    made = embedder.encode_documents(list(TEXTS))
    parts = [{"words": text, "vector": one.tolist()} for text, one in zip(TEXTS, made, strict=True)]
    for number in range(2):
        source = {"title": "Title", "abstract": "Another text.", "parts": [{"words": "No vector."}, parts[number]]}
        put(client, store.index, str(number), source)
    put(client, store.index, "none", {"title": "Title", "abstract": "Another text."})
    pairs = store.with_vectors(5)
    assert [one.text for one, _ in pairs] == list(TEXTS)
    found = agreement(pairs, embedder.encode_documents)
    assert found.documents == 2 and found.cosine > 0.99 and found.of == "its text"


def test_a_query_with_another_model_of_the_same_size_is_refused(spec, client, tmp_path):
    index = spec.rpartition("/")[2]
    profile = StoreProfile(title="heading", text=("body",), vector="embedding", model=MODEL)
    settings = Settings(store=spec, recipe="dense", stores={index: profile}, cache_dir=tmp_path)
    with Checker(settings) as checker:
        assert checker.check("oceans").evidence
    remembered = list((settings.cache_dir / "agreement").iterdir())
    with Checker(settings) as checker:
        checker.store.with_vectors = None  # type: ignore[method-assign, attr-defined]  # nothing is compared twice
        checker.check("oceans")
    assert len(remembered) == 1
    rng = np.random.default_rng(0)
    for number in range(len(TEXTS)):
        changed = {"doc": {"embedding": rng.normal(size=384).tolist()}}
        client.post(f"/{index}/_update/{number}?refresh=true", json=changed).raise_for_status()
    remembered[0].unlink()
    with Checker(settings) as checker, pytest.raises(InvalidData, match="another model made them"):
        checker.check("oceans")


def test_what_in_place_added_names_its_model_and_is_not_metadata(client, elasticsearch_url, elasticsearch_index):
    properties = {"title": {"type": "text"}, "abstract": {"type": "text"}}
    make(client, elasticsearch_index, properties)
    put(client, elasticsearch_index, "1", {"title": "Sea", "abstract": TEXTS[1]})
    works("index", "enrich", f"{elasticsearch_url}/{elasticsearch_index}", "--in-place", "--yes")
    ran = ccheck("query", "oceans", "--store", f"{elasticsearch_url}/{elasticsearch_index}", "--json")
    (answer,) = ran.objects
    assert "dense" in answer["evidence"][0]["ranks"] and answer["evidence"][0]["metadata"] == {}, ran.err
