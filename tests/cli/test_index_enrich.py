"""`ccheck index enrich` as a user runs it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from cli_runs import ccheck
from elasticsearch_nodes import delete_indices
from tiny_embedder import TinyEmbedder

from ccheck.encode import dense
from ccheck.search.elastic.companion import PREFIX


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
    ran = ccheck("doctor", "--store", store)
    assert f"{companion}: 2 documents" in ran.out
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


def test_one_vector_per_document_is_flat_and_chosen_if_no_document_needs_several(
    papers_of_others: str, elasticsearch_url: str
) -> None:
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
