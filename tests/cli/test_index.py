"""`ccheck index`: the documents of a store, looked at, taken out and cited; vectors for an index of others."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cli_runs import ccheck
from elasticsearch_nodes import delete_indices
from paths import TESTS
from tiny_embedder import TinyEmbedder

from ccheck.encode import dense
from ccheck.ingest import ingest
from ccheck.search.elastic.companion import PREFIX
from ccheck.search.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with LocalStore(tmp_path / "store") as opened:
        files = ("zotero.csv", "scopus.csv", "pubmed.nbib")
        ingest([str(TESTS / "ingest" / "formats" / name) for name in files], opened)
    return tmp_path / "store"


def test_fields_with_examples_a_document_that_is_not_there_and_removal_of_what_is_not_clear(store: Path) -> None:
    ran = ccheck("index", "fields", "--store", store, "--json")
    rows = {row["field"]: row for row in ran.objects}
    assert "Annals of Marine Science" in rows["journal"]["examples"]
    assert rows["retracted"]["examples"] == ["true"] and rows["year"]["kind"] == "numbers"
    ran = ccheck("index", "show", "AB12CD34", "nobody", "--store", store)
    assert ran.code == 4 and "nobody" in ran.err and "Temperature-driven" in ran.out
    for named in ((), ("EF56GH78", "--filter", "year>1")):
        assert ccheck("index", "remove", *named, "--store", store, "--yes").code == 2
    with LocalStore(store) as opened:
        assert opened.count() == 6


def test_everything_comes_out_and_goes_in_again(store: Path, tmp_path: Path) -> None:
    ran = ccheck("index", "export", tmp_path / "all.jsonl", "--store", store)
    assert ran.code == 0 and "6 documents written" in ran.err
    ran = ccheck("index", "export", tmp_path / "all.jsonl", "--filter", "year=1900", "--store", store)
    assert ran.code == 2 and "use --overwrite" in ran.err
    assert ccheck("index", "export", tmp_path / "all.jsonl", "--overwrite", "--store", store).code == 0
    with LocalStore(tmp_path / "again") as again, LocalStore(store) as first:
        ingest([str(tmp_path / "all.jsonl")], again)
        assert {one.id: one for one in again.scan()} == {one.id: one for one in first.scan()}


def test_evidence_to_cite_and_a_retracted_paper_is_shown_as_one(store: Path, tmp_path: Path) -> None:
    asked = ("query", "measles vaccination and autism", "--store", store, "--recipe", "bm25", "-q")
    rows = list(csv.DictReader(io.StringIO(ccheck(*asked, "--format", "csv").out)))
    assert rows[0]["doi"] == "10.5555/m18-2101" and rows[0]["authors"] == "Hviid, Anders; Hansen, Jorgen Vinslov"
    markdown = ccheck(*asked, "--format", "md").out
    assert "1. Hviid and Hansen (2019). Measles, mumps" in markdown and "<https://doi.org/10.5555/m18-2101>" in markdown
    assert ccheck(*asked, "--format", "md", "--json").code == 2
    asked = ("query", "lymphoid nodular hyperplasia in children", "--store", store, "--recipe", "bm25")
    ran = ccheck(*asked, "-k", "1", "--report", tmp_path / "page.html")
    assert "This paper was retracted." in ran.out and "Wakefield" in ran.out
    assert "This paper was retracted." in (tmp_path / "page.html").read_text()
    left = ccheck(*asked, "--filter", "retracted!=true", "--json")
    assert "9500320" not in [piece["doc_id"] for piece in json.loads(left.out)["evidence"]]


@pytest.fixture
def papers_of_others(
    elasticsearch_url: str, elasticsearch_index: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The name of an index that ccheck did not make, on the settings' server, and an embedder without weights."""
    monkeypatch.setenv("ELASTICSEARCH_URL", elasticsearch_url)
    monkeypatch.setattr(dense, "load_embedder", lambda *_: TinyEmbedder())
    for id_, text in {"a": "Sea level has risen.", "b": "Glaciers are melting."}.items():
        path = f"{elasticsearch_url}/{elasticsearch_index}/_doc/{id_}"
        httpx.put(path, params={"refresh": "true"}, json={"abstract": text}, timeout=60).raise_for_status()
    yield elasticsearch_index
    delete_indices(elasticsearch_url, f"{PREFIX}{elasticsearch_index}*")


def test_enriched_searched_and_undone(papers_of_others: str) -> None:
    store = f"elasticsearch:{papers_of_others}"
    ran = ccheck("index", "enrich", papers_of_others, "--json")
    assert ran.code == 0 and ran.objects[0]["made"] == 2, ran.err
    companion = f"{PREFIX}{papers_of_others}"
    assert f"{companion}: 2 made" in ran.err

    ran = ccheck("index", "info", "--store", store)
    assert f"{companion}: 2 documents" in ran.out and "tiny" in ran.out
    said = ccheck("doctor", "--store", store).out
    assert f"{companion}: 2 documents" in said and "model unknown" not in said
    ran = ccheck("index", "info", "--store", f"elasticsearch:{companion}")
    assert f"companion of {papers_of_others}" in ran.out

    ran = ccheck("index", "enrich", "--store", store, "--undo", "--yes")
    assert ran.code == 0 and "was deleted" in ran.err
    assert companion not in ccheck("index", "info", "--store", store).out
    ran = ccheck("index", "enrich", "--store", store, "--undo", "--yes")
    assert ran.code == 4 and "no companion" in ran.err


def flat_vectors(url: str, index: str) -> set[str]:
    """The ids of documents with a vector that is not in a nested passage."""
    flat = {"query": {"exists": {"field": "passages.vector"}}}
    found = httpx.post(f"{url}/{index}/_search", json=flat, timeout=60).json()
    return {hit["_id"] for hit in found["hits"]["hits"]}


def test_one_vector_per_document_is_flat_and_chosen_if_no_document_needs_several(papers_of_others, elasticsearch_url):
    index, companion = papers_of_others, f"{PREFIX}{papers_of_others}"
    ran = ccheck("index", "enrich", index, "--dry-run")
    assert f"{companion} gets one flat vector for each document: the longest of 2 documents" in ran.err, ran.err
    assert "4 tokens, and the model reads 30" in ran.err and not ran.out
    assert httpx.head(f"{elasticsearch_url}/{companion}", timeout=60).status_code == 404

    assert "2 made" in ccheck("index", "enrich", index).err
    assert flat_vectors(elasticsearch_url, companion) == {"a", "b"}
    # A longer one comes later: its beginning is found, and this is said. The companion stays as it was made.
    path, long = f"{elasticsearch_url}/{index}/_doc/c", {"abstract": "Methane stays. " * 30}
    httpx.put(path, params={"refresh": "true"}, json=long, timeout=60).raise_for_status()
    ran = ccheck("index", "enrich", index)
    assert ran.code == 0 and "1 made" in ran.err and "1 document longer than the model reads" in ran.err, ran.err
    assert flat_vectors(elasticsearch_url, companion) == {"a", "b", "c"}
    refused = ccheck("index", "enrich", index, "--passages")
    assert refused.code == 2 and "--undo" in refused.err
    refused = ccheck("index", "enrich", index, "--one-vector", "--recipe", "default")
    assert refused.code == 2 and "passages = false" in refused.err

    ccheck("index", "enrich", index, "--undo", "--yes")
    assert "a nested vector for each passage" in ccheck("index", "enrich", index, "--dry-run").err
    assert "beginning" not in ccheck("index", "enrich", index).err
    assert not flat_vectors(elasticsearch_url, companion)
    assert ccheck("index", "enrich", index, "--one-vector").code == 2
    ccheck("index", "enrich", index, "--undo", "--yes")
    ran = ccheck("index", "enrich", index, "--one-vector", "--json")
    assert "longer ones get the vector of their beginning" in ran.err
    assert ran.objects[0]["cut"] == 1 and len(flat_vectors(elasticsearch_url, companion)) == 3


def test_in_place_asks_first(papers_of_others: str) -> None:
    ran = ccheck("index", "enrich", papers_of_others, "--in-place", stdin="n\n")
    assert ran.code == 0 and "there is no undo" in ran.err and "nothing was changed" in ran.err
    ran = ccheck("index", "enrich", papers_of_others, "--in-place", "--yes", "--rate", "1000")
    assert ran.code == 0 and "2 made" in ran.err
    assert ccheck("index", "enrich", papers_of_others, "--in-place", "--passages").code == 2
    ran = ccheck("index", "enrich", papers_of_others, "--in-place", "--undo")
    assert ran.code == 2 and "reindexed" in ran.err


def test_what_can_not_be_enriched_says_so(papers_of_others: str, tmp_path: object) -> None:
    ran = ccheck("index", "enrich", f"{papers_of_others}-absent")
    assert ran.code == 4 and "there is no index" in ran.err
    ran = ccheck("index", "enrich", f"{tmp_path}/store")
    assert ran.code == 2 and "not an index in Elasticsearch" in ran.err
    several = f"elasticsearch:{papers_of_others},{papers_of_others}*"
    for command in (("index", "enrich"), ("query", "sea", "--recipe", "dense")):
        ran = ccheck(*command, "--store", several)
        assert ran.code in (2, 4) and "make an alias" in ran.err and f"enrich --store {several}" not in ran.err
    ran = ccheck("index", "enrich", papers_of_others, "--store", "elsewhere")
    assert ran.code == 2
    assert ccheck("index", "enrich", papers_of_others, "--in-place", "--recipe", "default").code == 2
