"""One record never ends an ingest: whatever it does to its reader, it is a reject, and the others are stored."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from cli_runs import jsonl
from memory_store import MemoryStore
from read_files import parts

from ccheck.ingest import Fields, IngestOptions, Record, Reject, full_texts, ingest, read
from ccheck.ingest.documents import make_document
from ccheck.ingest.references import read_references
from ccheck.ingest.shapes import recognise
from ccheck.ingest.sources import Source

JATS = (
    "<article><front><article-meta><title-group><article-title>Seas</article-title></title-group>"
    "<pub-date><year>YEAR</year></pub-date></article-meta></front><body><p>Sea level rose.</p></body></article>"
)
PUBMED = (
    "<PubmedArticle><MedlineCitation><PMID>ID</PMID><Article><ArticleTitle>Seas</ArticleTitle><Journal><JournalIssue>"
    "<PubDate><Year>2019</Year><Month>MONTH</Month><Day>DAY</Day></PubDate></JournalIssue></Journal></Article>"
    "</MedlineCitation></PubmedArticle>"
)


@pytest.mark.parametrize("year", ["²", "1" * 5_000, "٢٠١٩²", ""])
def test_a_year_that_is_no_number_is_left_out(tmp_path: Path, year: str) -> None:
    (tmp_path / "a.xml").write_text(JATS.replace("YEAR", year))
    records, rejects = parts(tmp_path / "a.xml")
    assert not rejects and "year" not in records[0].data


@pytest.mark.parametrize("day", ["²", "1" * 5_000])
def test_a_day_that_is_no_number_costs_no_article_after_it(tmp_path: Path, day: str) -> None:
    articles = [PUBMED.replace("ID", str(n)).replace("MONTH", "3" if n != 2 else day) for n in (1, 2, 3)]
    file = tmp_path / "a.xml"
    file.write_text(f"<PubmedArticleSet>{''.join(articles).replace('DAY', day)}</PubmedArticleSet>")
    records, rejects = parts(file)
    assert [one.data["date"] for one in records] == ["2019-03", "2019", "2019-03"] and not rejects


@pytest.mark.parametrize("value", ["{" * 250 + "x" + "}" * 250, r"{\em " * 1_500 + "x" + "}" * 1_500])
def test_a_nested_bibtex_entry_costs_itself(tmp_path: Path, value: str) -> None:
    good = "@article{%s,\n title = {Seas rise},\n abstract = {Sea level rose.}\n}\n"
    file = tmp_path / "a.bib"
    file.write_text(good % "one" + "@article{bad,\n title = {" + value + "}\n}\n" + good % "two")
    records, rejects = parts(file)
    assert {"one", "two"} <= {one.data["_id"] for one in records}
    assert len(records) + len(rejects) == 3 and all(one.line == 5 for one in rejects)


def test_whatever_an_entry_raises_is_its_reject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bibtexparser.entrypoint

    parse = bibtexparser.entrypoint.parse_string
    for error in (RecursionError("deep"), MemoryError(), KeyError("x"), OverflowError("big")):

        def raising(text: str, error: Exception = error, **more: object) -> object:
            if "bad" in text:
                raise error
            return parse(text, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(bibtexparser.entrypoint, "parse_string", raising)
        file = tmp_path / "a.bib"
        file.write_text("".join(f"@article{{{key},\n title = {{Seas}}\n}}\n" for key in ("one", "bad", "two")))
        source = Source("a.bib", file, "bibtex")
        found = list(read_references(source, lambda size: None))
        assert [(type(one), one.line) for one in found] == [(Record, 1), (Reject, 4), (Record, 7)]


DEEP = 400
HOSTILE = {
    "endless numbers": {"DOI": "10.1/x", "type": "a", "title": [], "issued": {"date-parts": [[float("inf")]]}},
    "forged elements": {"_id": "f", "text": "x", "article": "full text", "article.captions": 0,
                        "article.elements": '["f1","figure","Fig 1",0,9e999,1,0,null,null,[]]'},
    "forged sections": {"_id": "f", "text": "x", "article": "full text", "article.captions": 0,
                        "article.sections": ["[" * 50_000]},
    "an article without captions": {"_id": "f", "text": "x", "article": "full text"},
    "lists in lists": {"_id": "f", "a": json.loads("[" * DEEP + "]" * DEEP)},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_record_of_json_costs_itself(tmp_path: Path, name: str) -> None:
    rows = [{"_id": "1", "text": "Seas rose.", "a": {"b": 2019}}, HOSTILE[name], {"_id": "2", "text": "Ice melts."}]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = MemoryStore()
    report = ingest(file, store, options=IngestOptions(fields=Fields(date="a.b")) if name == "lists in lists" else None)
    assert {"1", "2"} <= set(store.entries) and report.read == 3
    assert report.rejected or "forged" not in name
    if report.rejects is not None:
        assert [json.loads(line)["line"] for line in report.rejects.read_text().splitlines()] == [2]


def forged(text: str) -> dict[str, object]:
    element = json.dumps(["f", "figure", "Fig 1", 0, len(text) + 9, 1, 0, None, None, []])
    return {
        "_id": "forged",
        "title": "Snails",
        "text": text,
        "article": "full text",
        "article.captions": len(text),
        "article.elements": [element],
    }


def test_a_forged_article_is_not_stored(tmp_path: Path) -> None:
    store = MemoryStore()
    report = ingest(jsonl(tmp_path / "a.jsonl", forged("Snails eat moss."), {"_id": "1", "text": "x"}), store)
    assert set(store.entries) == {"1"} and report.rejected == 1


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_damaged_member_of_an_archive_costs_itself(tmp_path: Path, method: int) -> None:
    file = tmp_path / "papers.zip"
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in "abc":
            archive.writestr(f"{name}.xml", JATS.replace("YEAR", "2011") + " " * 2_000)
    data = bytearray(file.read_bytes())
    start = data.index(b"b.xml") + 5
    data[start + 10 : start + 60] = bytes(range(50, 100))
    file.write_bytes(data)
    found = list(full_texts(file))
    assert [one.file if isinstance(one, Reject) else one.id for one in found] == ["a", f"{file}/b.xml", "c"]


def test_figures_of_a_store_with_a_forged_article(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccheck.articles import types as stored

    (tmp_path / "good.xml").write_text(
        JATS.replace("YEAR", "2011").replace("</body>", '<fig id="f"><label>Fig 1</label><caption><p>Sea level.'
                                             "</p></caption></fig></body>")
    )  # fmt: skip
    good = next(iter(read([tmp_path / "good.xml"])))
    assert isinstance(good, Record)
    documents = [make_document(good.data).document, make_document(forged("Sea level rose.")).document]
    articles, unread = stored.articles_of(documents)
    assert [one.id for one in articles] == ["good"] and "forged" in unread[0]


def test_a_row_of_cord_19_is_cited_with_its_first_address() -> None:
    found = recognise({"cord_uid": "a", "title": "T", "abstract": "x", "url": "https://a.org/1; https://b.org/2"})
    assert found is not None and found[1]["url"] == "https://a.org/1"


def test_a_work_of_openalex_is_known_by_few_of_its_fields() -> None:
    found = recognise({"id": "https://openalex.org/W1", "display_name": "T", "publication_year": 2020})
    assert found is not None and (found[0], found[1]["title"]) == ("OpenAlex works", "T")
