"""What every store must do: the same tests for the folder and for Elasticsearch."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import ccheck, jsonl
from searching import answer_all, fill, info_of, write
from store_documents import (
    BM25,
    BOTH,
    CHUNKING,
    DENSE,
    DIMENSIONS,
    DOCUMENTS,
    LAYOUT,
    VECTORS,
    entry,
    ids,
    search,
    unit,
)

from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.core.layout import Analysis, Chunking, Embedding, Layout
from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Document, Query, Ranking
from ccheck.search import Store, parse_filter


@pytest.fixture
def store(make_store: Callable[[], Store]) -> Store:
    """A store with the five documents."""
    store = make_store()
    fill(store, LAYOUT, [entry(document, VECTORS[document.id]) for document in DOCUMENTS])
    return store


def test_a_store_that_does_not_exist(make_store: Callable[[], Store]) -> None:
    store = make_store()
    assert store.info() is None
    for ask in (lambda: answer_all(store, [Query("sea")], BM25, k=1), store.count, lambda: store.get(["sea"])):
        with pytest.raises(NotFound, match="ccheck ingest"):
            ask()


def test_documents_come_back_as_they_were(store: Store) -> None:
    assert store.count() == 5
    assert store.get(["sea", "flu", "tea", "old", "ice", "nothing"]) == {d.id: d for d in DOCUMENTS}
    assert store.digests(["sea", "nothing"]) == {"sea": "1"}


def test_where_pages_begin_is_kept(make_store: Callable[[], Store]) -> None:
    store, pages = make_store(), (0, 0, 11)
    document = replace(DOCUMENTS[0], text="Seas rise. Ice melts.", pages=pages)
    fill(store, LAYOUT, [entry(document, VECTORS[document.id])])
    assert store.get([document.id])[document.id] == document and [one.pages for one in store.scan()] == [pages]


def test_an_ingest_that_did_not_end_is_told(store: Store, make_store: Callable[[], Store]) -> None:
    store.prepare(LAYOUT, ["my papers.jsonl"])
    store.close()  # as if it had been killed
    again = make_store()
    (notice,) = info_of(again).notices
    assert "an ingest of 'my papers.jsonl' into" in notice and "with all options that it had" in notice
    again.prepare(replace(LAYOUT, analyses=(Analysis(),)), ["other.jsonl"])
    again.mark_ingested(["other.jsonl"])
    assert "of 'my papers.jsonl' into" in info_of(again).notices[0]
    again.mark_ingested(["my papers.jsonl"])
    assert info_of(again).notices == ()
    again.prepare(replace(LAYOUT, analyses=(Analysis(),)), list("abcd"))
    assert info_of(again).notices[0].startswith("an ingest into")


def test_a_scan_has_every_document_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccheck.search.elastic import reading
    from ccheck.search.local import store as local

    monkeypatch.setattr(reading, "SCANNED_AT_ONCE", 2)  # several pages
    monkeypatch.setattr(local, "SCANNED_AT_ONCE", 2)
    assert sorted(store.scan(), key=lambda one: one.id) == sorted(DOCUMENTS, key=lambda one: one.id)
    assert {one.id for one in store.scan([parse_filter("year>=2015")])} == {"ice", "flu"}
    assert list(store.scan([parse_filter("year>3000")])) == []
    assert next(iter(store.scan())).id in {one.id for one in DOCUMENTS}  # and left in the middle


def test_commands_over_the_documents_of_a_store(store: Store, make_store: Callable[[], Store], tmp_path: Path) -> None:
    """index fields, show, export and remove: the same for every store."""
    known, name = set(store.fields()), store.name
    store.close()  # a local store has one writer at a time
    at = ("--store", name)
    assert {row["field"] for row in ccheck("index", "fields", *at, "--json").objects} == known
    (shown,) = ccheck("index", "show", "tea", *at, "--json").objects
    assert (shown["title"], shown["metadata"]["journal"]) == ("Green tea", "Nature Food")
    some = ccheck("index", "export", "--filter", "year>=2015", *at).objects
    assert {one["_id"] for one in some} == {"ice", "flu"}
    ran = ccheck("index", "export", tmp_path / "all.jsonl", *at)
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert ran.code == 0 and {line["_id"]: line["text"] for line in lines} == {d.id: d.text for d in DOCUMENTS}
    assert ccheck("index", "remove", "--filter", "year<1900", "--yes", *at).code == 0
    ran = ccheck("index", "remove", "flu", "nobody", "--yes", *at)
    assert ran.code == 4 and "1 document removed" in ran.err and "no document with the id nobody." in ran.err
    assert {one.id for one in make_store().scan()} == {"sea", "ice", "tea"}
    assert ccheck("index", "remove", "tea", "--yes", *at).code == 0 and make_store().count() == 2


def test_a_paper_that_is_there_is_found_by_its_doi(make_store: Callable[[], Store], tmp_path: Path) -> None:
    store = make_store()
    name = store.name
    first = jsonl(tmp_path / "a.jsonl", {"_id": "a", "text": "Seas rise.", "doi": "10.5555/1"})
    second = jsonl(
        tmp_path / "b.jsonl",
        {"_id": "b", "text": "Seas rise.", "DOI": "https://doi.org/10.5555/1"},
        {"_id": "c", "text": "Ice melts.", "doi": "10.5555/2"},
    )
    asked = ("--store", name, "--no-dense", "--dedupe", "doi")
    assert ccheck("ingest", first, *asked).code == 0
    ran = ccheck("ingest", second, *asked)
    assert ran.code == 0 and "1 paper" in ran.err + ran.out, ran
    assert {one.id for one in make_store().scan()} == {"a", "c"}


def test_an_update_replaces_text_metadata_and_vectors(store: Store) -> None:
    changed = Document("tea", "Glaciers", "Mountain glaciers shrink.", {"year": 2020})
    write(store, [entry(changed, unit(0, 0, 0, 0, 1), digest="2")])
    assert store.count() == 5
    assert store.get(["tea"]) == {"tea": changed}
    assert store.digests(["tea"]) == {"tea": "2"}
    assert ids(search(store, Query("tea"), BM25)) == []
    assert ids(search(store, Query("glacier"), BM25)) == ["tea"]
    (best, *_) = search(store, Query("", unit(0, 0, 0, 0, 1)), DENSE)
    assert (best.document.id, best.scores["dense"]) == ("tea", pytest.approx(1, abs=1e-5))


def test_a_deleted_document_is_gone_everywhere(store: Store) -> None:
    assert store.delete(["sea", "nothing"]) == 1
    store.publish()
    assert store.count() == 4
    assert store.get(["sea"]) == {}
    assert "sea" not in ids(search(store, Query("sea level", VECTORS["sea"]), BOTH))
    assert store.delete(["sea"]) == 0


def test_another_model_is_refused_with_both_names(store: Store) -> None:
    for other, said in (
        (Layout.with_vectors(Embedding("other-model", DIMENSIONS, "0" * 64, 128), CHUNKING), "test-.*other-.*--store"),
        (Layout(), "no embeddings"),
        (Layout.with_vectors(LAYOUT.embedding, Chunking(64, 64, 16)), "passages of 64"),
    ):
        with pytest.raises(InvalidData, match=said):
            store.prepare(other)
    store.prepare(LAYOUT)


def test_bm25_over_chosen_fields(store: Store) -> None:
    title = {"bm25": Bm25(fields={"title": 1.0})}
    assert ids(search(store, Query("weight"), title)) == []
    assert ids(search(store, Query("green"), title)) == ["tea"]
    both = {"bm25": Bm25(fields={"title": 2.0, "text": 1.0})}
    assert ids(search(store, Query("sea"), both))[0] == "sea"
    with pytest.raises(UsageError, match="titel"):
        answer_all(store, [Query("sea")], {"bm25": Bm25(fields={"titel": 1.0})}, k=1)


def test_a_documents_score_is_its_best_passages(store: Store) -> None:
    book = Document("book", "A long one", "First part. Second part.")
    write(store, [entry(book, unit(0, 0, 0, 0, 1), unit(0, 0, 0, 0, 0, 1), unit(0, 0, 0, 0, 0.9, 0.1))])
    (best, *others) = search(store, Query("", unit(0, 0, 0, 0, 0, 1)), DENSE)
    assert (best.document.id, best.score) == ("book", pytest.approx(1, abs=1e-5))
    assert "book" not in [hit.document.id for hit in others]
    assert info_of(store).passages == 8


def test_without_details_the_ranking_is_the_same(store: Store) -> None:
    query = Query("sea ice", VECTORS["ice"])
    assert ids(search(store, query, BOTH, details=False)) == ids(search(store, query, BOTH))


def test_k_and_depth(store: Store) -> None:
    assert len(search(store, Query("", VECTORS["ice"]), DENSE, k=2)) == 2
    shallow: dict[str, Retriever] = {"bm25": Bm25(depth=1), "dense": Dense(depth=2)}
    assert len(search(store, Query("influenza", VECTORS["ice"]), shallow)) == 3


def test_many_queries_at_once_are_answered_in_order(store: Store) -> None:
    queries = [Query("influenza", VECTORS["flu"]), Query("the of and"), Query("tea", VECTORS["tea"]), Query("")]
    rankings = answer_all(store, queries, BOTH, k=1)
    found = [ids(ranking.hits) for ranking in rankings if isinstance(ranking, Ranking)]
    assert found == [["flu"], [], ["tea"], []]


# What passes which filter is tests/search/test_store_filters.py's.
@pytest.mark.parametrize(
    ("condition", "expected"),
    [("year>=2015", {"ice", "flu"}), ("tags!=rct", {"sea", "ice", "tea", "old"}), ("nothing=1", set())],
)
def test_filters(store: Store, condition: str, expected: set[str]) -> None:
    filters = [parse_filter(condition)]
    query = Query("sea ice influenza tea carbonic", VECTORS["sea"])
    for retrievers in (BM25, DENSE, BOTH):
        assert set(ids(search(store, query, retrievers, filters=filters))) == expected


HOSTILE = [
    'a "quoted" "sea" claim',
    "brackets ([{ and }]) (sea)",
    "sea AND ice OR NOT influenza",
    "text:sea title:* _exists_:year id:sea sea",
    "sea\0level",
    "sea \ud800 level",
    "sea 🌊 level 😀",
    "sea~2 ice^3 +sea -ice /sea/ *sea?",
    "\\ sea \\\\",
    "' OR 1=1; DROP TABLE documents; -- sea",
    "<b>sea</b> & level",
    " ".join(f"word{i}" for i in range(9_999)) + " sea",
    "sea " * 10_000,
    "海 sea ความ море",
    "x" * 40_000 + " sea",
    "\n\t sea \r\n",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_claims_are_words(store: Store, text: str) -> None:
    for retrievers in (BM25, BOTH):
        found = ids(search(store, Query(text, VECTORS["flu"]), retrievers))
        assert ("sea" in found) or text.startswith("word0")


@pytest.mark.parametrize("text", ["", " ", "the of and", "?!.,", "\0", "\ud800", "😀"])
def test_a_claim_without_words_finds_nothing(store: Store, text: str) -> None:
    assert search(store, Query(text), BM25) == ()
    assert search(store, Query(text), BOTH) == ()
    assert ids(search(store, Query(text, VECTORS["flu"]), BOTH))[0] == "flu"


@pytest.mark.parametrize("id_", ['a "b"', "a/b?c=d#e", "ü 海 😀", "..", "_all", "a" * 512, "%20", "{}", "a\nb"])
def test_hostile_ids(store: Store, id_: str) -> None:
    document = Document(id_, "Strange", "A zebra with a strange name.")
    write(store, [entry(document, unit(0, 0, 0, 0, 0, 0, 1))])
    assert store.get([id_]) == {id_: document}
    assert ids(search(store, Query("zebra"), BM25)) == [id_]
    assert store.delete([id_]) == 1


def test_hostile_documents_and_metadata(store: Store) -> None:
    metadata = {
        "a.b": "dotted",
        "a": 1,
        'quo"te': "x",
        "long": "y" * 40_000,
        "mixed": ["1", 2.5, None],
        "année": "été",
        "year": "unknown",
        "empty": [],
        "_id": "inner",
    }
    document = Document("hostile", "{{template}} <script>", "zebra " * 20_000 + "\u2028 end", metadata)
    write(store, [entry(document, unit(0, 0, 0, 0, 0, 0, 1))])
    assert store.get(["hostile"]) == {"hostile": document}
    query = Query("zebra")
    for condition in ("a.b=dotted", "a=1", "année=été", "mixed=1"):
        assert ids(search(store, query, BM25, filters=[parse_filter(condition)])) == ["hostile"], condition
    assert ids(search(store, query, BM25, filters=[parse_filter("year>2000")])) == []
