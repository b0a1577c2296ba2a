"""Looking at the documents of a store, taking them out, and citing them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from cli_runs import ccheck

from ccheck.ingest import ingest
from ccheck.search.local import LocalStore

FORMATS = Path(__file__).parents[1] / "ingest" / "formats"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with LocalStore(tmp_path / "store") as opened:
        ingest([str(FORMATS / name) for name in ("zotero.csv", "scopus.csv", "pubmed.nbib")], opened)
    return tmp_path / "store"


def test_fields_with_examples(store: Path) -> None:
    ran = ccheck("index", "fields", "--store", store, "--json")
    rows = {row["field"]: row for row in map(json.loads, ran.out.splitlines())}
    assert "Annals of Marine Science" in rows["journal"]["examples"]
    assert rows["retracted"]["examples"] == ["true"] and rows["year"]["kind"] == "numbers"


def test_a_document_that_is_not_there_is_named(store: Path) -> None:
    ran = ccheck("index", "show", "AB12CD34", "nobody", "--store", store)
    assert ran.code == 4 and "nobody" in ran.err and "Temperature-driven" in ran.out


def test_everything_comes_out_and_goes_in_again(store: Path, tmp_path: Path) -> None:
    ran = ccheck("index", "export", tmp_path / "all.jsonl", "--store", store)
    assert ran.code == 0 and "6 documents written" in ran.err
    with LocalStore(tmp_path / "again") as again, LocalStore(store) as first:
        ingest([str(tmp_path / "all.jsonl")], again)
        assert {one.id: one for one in again.scan()} == {one.id: one for one in first.scan()}


def test_removal_is_by_ids_or_by_a_filter(store: Path) -> None:
    for named in ((), ("EF56GH78", "--filter", "year>1")):
        assert ccheck("index", "remove", *named, "--store", store, "--yes").code == 2
    with LocalStore(store) as opened:
        assert opened.count() == 6


def test_evidence_to_cite(store: Path) -> None:
    asked = ("query", "measles vaccination and autism", "--store", store, "--recipe", "bm25", "-q")
    rows = list(csv.DictReader(io.StringIO(ccheck(*asked, "--format", "csv").out)))
    assert rows[0]["doi"] == "10.5555/m18-2101" and rows[0]["authors"] == "Hviid, Anders; Hansen, Jorgen Vinslov"
    markdown = ccheck(*asked, "--format", "md").out
    assert "1. Hviid and Hansen (2019). Measles, mumps" in markdown and "<https://doi.org/10.5555/m18-2101>" in markdown
    assert ccheck(*asked, "--format", "md", "--json").code == 2


def test_a_retracted_paper_is_shown_as_one(store: Path, tmp_path: Path) -> None:
    asked = ("query", "lymphoid nodular hyperplasia in children", "--store", store, "--recipe", "bm25")
    ran = ccheck(*asked, "-k", "1", "--report", tmp_path / "page.html")
    assert "This paper was retracted." in ran.out and "Wakefield" in ran.out
    assert "This paper was retracted." in (tmp_path / "page.html").read_text()
    left = ccheck(*asked, "--filter", "retracted!=true", "--json")
    assert "9500320" not in [piece["doc_id"] for piece in json.loads(left.out)["evidence"]]
