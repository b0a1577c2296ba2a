"""What a stranger's mapping can hold, on a real server: each kind is searched and shown, or refused in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest
from cli_runs import BM25, ccheck
from elastic_indices import ids, make, node_client, node_store, put  # noqa: F401 (fixtures)
from packaged_indices import PACKAGES
from searching import answer_all

from ccheck.core.errors import CcheckError, UsageError
from ccheck.core.layout import Layout
from ccheck.core.profiles import StoreProfile
from ccheck.core.stages import Bm25, Retriever
from ccheck.core.types import Document, Hit, Query, Ranking
from ccheck.search.elastic import ElasticStore

TEXT = {"type": "text"}
ENGLISH = {"fields": {"en": {"type": "text", "analyzer": "english"}}}
PROSE = "Mountain glaciers lose more ice each year than snow brings."


def found(store: ElasticStore, words: str, bm25: Bm25 | None = None) -> list[Document]:
    retrievers: dict[str, Retriever] = {"bm25": bm25 or Bm25()}
    (ranking,) = answer_all(store, [Query(words)], retrievers, k=10)
    assert isinstance(ranking, Ranking), ranking
    return [hit.document for hit in ranking.hits]


def test_a_keyword_is_searched_in_its_text_multi_field(client: httpx.Client, store: ElasticStore) -> None:
    make(client, store.index, {"title": {"type": "keyword", **ENGLISH}, "abstract": {"type": "text", **ENGLISH}})
    put(client, store.index, "p", {"title": "Shrinking oceans", "abstract": PROSE})
    (one,) = found(store, "ocean")
    assert (one.title, one.text) == ("Shrinking oceans", PROSE)
    assert found(store, "glacier") == []  # the text itself is not stemmed
    with ElasticStore(store._connection, store.index, StoreProfile(text=("abstract.en",))) as named:
        (one,) = found(named, "glacier")
        assert (one.text, one.title) == (PROSE, "Shrinking oceans")


def test_a_field_of_the_type_alias_is_the_one_that_it_stands_for(client: httpx.Client, store: ElasticStore) -> None:
    properties = {"t": TEXT, "b": TEXT}
    properties |= {"title": {"type": "alias", "path": "t"}, "abstract": {"type": "alias", "path": "b"}}
    make(client, store.index, properties)
    put(client, store.index, "p", {"t": "Ice sheets", "b": PROSE})
    for words in ("sheets", "glaciers"):
        (one,) = found(store, words)
        assert (one.title, one.text, one.metadata) == ("Ice sheets", PROSE, {})


def test_text_in_nested_passages(client: httpx.Client, store: ElasticStore) -> None:
    """A document scores as its best passage; all of them are its text."""
    passages = {"type": "nested", "properties": {"text": TEXT, "page": {"type": "integer"}}}
    make(client, store.index, {"title": TEXT, "passages": passages})
    for id_, texts in (("p", ["Nothing of it.", PROSE]), ("q", ["Snow.", "Ice.", "Rivers of the plain."])):
        source = {"title": "Ice", "passages": [{"text": text, "page": 1} for text in texts]}
        put(client, store.index, id_, source)
    best, other = found(store, "snow on mountain glaciers")
    assert (best.id, best.title, best.text) == ("p", "Ice", f"Nothing of it.\n\n{PROSE}")
    assert other.id == "q"
    (one,) = found(store, "rivers", Bm25(fields={"passages.text": 1.0}, fuzziness="auto"))
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


def test_the_passage_that_matches_is_what_is_read(
    client: httpx.Client, store: ElasticStore, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_lists_and_patterns_of_indices_are_searched_and_not_written(client: httpx.Client, store: ElasticStore) -> None:
    for number in range(2):
        make(client, f"{store.index}-{number}", {"title": TEXT, "text": TEXT})
        put(client, f"{store.index}-{number}", "p", {"title": f"Ice {number}", "text": PROSE})
    expected = [f"{store.index}-0/p", f"{store.index}-1/p"]
    for name in (f"{store.index}-0,{store.index}-1", f"{store.index}-*"):
        with ElasticStore(store._connection, name) as several:
            (ranking,) = answer_all(several, [Query("glaciers")], {"bm25": Bm25()}, k=5)
            assert sorted(ids(ranking)) == expected and sorted(several.get(expected)) == expected
            assert several.count() == 2 and len(list(several.scan())) == 2
            for refused in (lambda several=several: several.prepare(Layout()), several.removal, several.drop):
                with pytest.raises(UsageError, match="several indices, which ccheck only searches"):
                    refused()
    with ElasticStore(store._connection, f"{store.index}-none*") as nothing:
        assert nothing.info() is None


def test_synthetic_source_and_a_thousand_fields(client: httpx.Client, store: ElasticStore) -> None:
    properties: dict[str, Any] = {"title": TEXT, "text": TEXT, **{f"f{number}": TEXT for number in range(600)}}
    properties |= {f"k{number}": {"type": "keyword"} for number in range(390)}
    make(client, store.index, properties, settings={"index.mapping.source.mode": "synthetic"})
    put(client, store.index, "p", {"title": "Ice", "text": PROSE, "k1": "x"})
    (one,) = found(store, "glaciers")
    assert (one.title, one.text, one.metadata) == ("Ice", PROSE, {"k1": "x"})
    info = store.info()
    assert info is not None and "and 580 more" in info.details["left out"]


@pytest.mark.parametrize("package", PACKAGES)
def test_indices_of_packages_are_shown_whole(client: httpx.Client, store: ElasticStore, package: str) -> None:
    chunks = [("a", "Ice", PROSE), ("b", "Seas", "Oceans rise as they warm.")]
    PACKAGES[package](client, store.index, chunks)
    (one,) = found(store, "glaciers")
    assert (one.title, one.text) == ("Ice", PROSE)
    info = store.info()
    assert info is not None and info.dimensions == 3 and info.documents == 2
    assert not any(isinstance(value, CcheckError) or "embedding" in key for key, value in one.metadata.items())
