"""Files as people have them: a small one of each format under `formats/`, read to the right documents."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path

import pytest
import read_files
from memory_store import MemoryStore

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.types import Document
from ccheck.ingest import IngestOptions, Reject, ingest, read
from ccheck.ingest.fields import Fields
from ccheck.ingest.sources import find_sources

FORMATS = Path(__file__).parent / "formats"


def documents(*sources: str | Path) -> dict[str, Document]:
    return {one.id: one for one in read_files.documents(*sources)}


EXPECTED = tomllib.loads((FORMATS / "expected.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", EXPECTED)
def test_a_paper_of_each_source(file: str) -> None:
    expected = EXPECTED[file]
    document = documents(FORMATS / file)[expected["id"]]
    assert document.title == expected["title"] and document.text.startswith(expected["text"])
    found = {**document.metadata, "published": document.published}
    names = ("doi", "authors", "year", "journal", "published")
    assert {name: found[name] for name in names} == {name: expected[name] for name in names}


def test_papers_without_an_abstract_are_stored_by_title_and_counted() -> None:
    store = MemoryStore()
    report = ingest([str(FORMATS / "openalex.json")], store)
    assert (report.exit_code, report.added, report.without_text, report.retracted) == (0, 3, 1, 1)
    assert {name: (kind.papers, kind.without_text) for name, kind in report.kinds.items()} == {"OpenAlex works": (3, 1)}
    entry = store.entries["https://openalex.org/W2000000002"]
    assert (entry.document.text, entry.document.content) == ("", "A paper without an abstract")


def test_retracted_papers_are_marked() -> None:
    files = ("pubmed.nbib", "pubmed.xml", "openalex.json", "europepmc.json", "crossref.json")
    marked = {id_ for name in files for id_, one in documents(FORMATS / name).items() if one.metadata.get("retracted")}
    assert marked == {"9500320", "30000003", "https://openalex.org/W2000000003", "PPR100", "10.5555/cr.2"}


def test_tables_of_any_delimiter_and_encoding() -> None:
    found = documents(FORMATS / "semicolons-latin1.csv")
    assert found["1"].title == "Café au lait, and sleep" and found["2"].title == "Thé vert"
    assert found["1"].text == "Coffee, taken late, delays sleep by 40 minutes."
    assert documents(FORMATS / "pipes.csv")["1"].text == "A text, with commas, in it."
    assert documents(FORMATS / "tabs.csv")["1"].title == "Tabs"
    store = MemoryStore()
    report = ingest([str(FORMATS / "semicolons-latin1.csv")], store)
    assert any("Windows-1252" in one for one in report.notices) and any("semicolons" in one for one in report.notices)
    assert ingest([str(FORMATS / "pipes.csv")], MemoryStore()).added == 2


@pytest.mark.parametrize(
    "name", ["pipes.csv", "semicolons-latin1.csv", "references.ris", "zotero.bib", "openalex.json"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_told_by_its_first_bytes(monkeypatch: pytest.MonkeyPatch, name: str, packed: bool) -> None:
    import gzip

    data = (FORMATS / name).read_bytes()
    expected = documents(FORMATS / name)
    if name == "semicolons-latin1.csv":
        data = data.decode("latin-1").encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(data) if packed else data)))
    assert documents("-") == expected


def test_a_beir_folder_is_its_corpus() -> None:
    notices: list[str] = []
    assert [source.label for source in find_sources(str(FORMATS / "beir"), notices=notices)] == ["corpus.jsonl"]
    assert "only its corpus" in notices[0]


def test_a_text_file_is_a_document() -> None:
    (paper,) = documents(FORMATS / "paper.txt").values()
    assert paper.title == "Sleep and memory in students" and paper.text.startswith("We measured the sleep of 120")


def pdf_of(path: Path, *, title: str = "", lines: list[str]) -> Path:
    """A PDF with a line of large letters and lines of small ones."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), pagesize=(600, 800))
    canvas.setAuthor("")
    canvas.setTitle("")
    canvas.setFont("Helvetica", 20)
    canvas.drawString(50, 750, title)
    canvas.setFont("Helvetica", 10)
    for number, line in enumerate(lines):
        canvas.drawString(50, 700 - 14 * number, line)
    canvas.save()
    return path


def test_a_pdf_has_title_abstract_and_doi(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    pytest.importorskip("reportlab")
    lines = ["Ana Lopez, Bo Chen", "doi:10.5555/PDF.1", "Abstract", "Sea level rose by twenty centi-", "metres in all."]
    file = pdf_of(tmp_path / "lopez.pdf", title="Sea level along the coast", lines=[*lines, "Introduction", "Tides."])
    (paper,) = documents(file).values()
    assert (paper.id, paper.title, paper.metadata["doi"]) == ("lopez.pdf", "Sea level along the coast", "10.5555/pdf.1")
    assert paper.text.startswith("Sea level rose by twenty centimetres in all.") and "Tides." in paper.text


def test_a_scan_says_what_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    pytest.importorskip("reportlab")
    (reject,) = read([pdf_of(tmp_path / "scan.pdf", lines=[])])
    assert isinstance(reject, Reject) and "ocrmypdf" in reject.reason
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nonsense")
    (reject,) = read([tmp_path / "broken.pdf"])
    assert isinstance(reject, Reject) and "can't be read" in reject.reason


def test_word_and_excel(tmp_path: Path) -> None:
    word = pytest.importorskip("docx")
    openpyxl = pytest.importorskip("openpyxl")
    document = word.Document()
    document.add_heading("Bees in cities", 0)
    document.add_paragraph("Cities have more bees than fields.")
    document.save(str(tmp_path / "bees.docx"))
    (paper,) = documents(tmp_path / "bees.docx").values()
    assert (paper.id, paper.title, paper.text) == ("bees.docx", "Bees in cities", "Cities have more bees than fields.")
    book = openpyxl.Workbook()
    for row in (["ID", "Title", "Abstract", "Year"], [7, "Wasps", "Wasps eat flies.", 2004]):
        book.active.append(row)
    book.save(tmp_path / "papers.xlsx")
    (paper,) = documents(tmp_path / "papers.xlsx").values()
    assert (paper.id, paper.title, paper.text, paper.published) == ("7", "Wasps", "Wasps eat flies.", "2004-12-31")


def test_other_kinds_say_what_turns_them_into_these(tmp_path: Path) -> None:
    for name, tool in (("a.doc", "soffice"), ("a.7z", "Unpack"), ("a.rdf", "Zotero")):
        (tmp_path / name).write_bytes(b"\x00\x01")
        with pytest.raises(UsageError, match=tool):
            read([tmp_path / name])
    (tmp_path / "other.xml").write_text("<rss><item/></rss>")
    (reject,) = read([tmp_path / "other.xml"])
    assert isinstance(reject, Reject) and "<rss>" in reject.reason


def test_xml_with_entities_is_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]>'
    bomb += "<PubmedArticleSet><PubmedArticle>&c;</PubmedArticle></PubmedArticleSet>"
    (tmp_path / "bomb.xml").write_text(bomb)
    (reject,) = read([tmp_path / "bomb.xml"])
    assert isinstance(reject, Reject) and "not valid XML" in reject.reason


def test_the_same_paper_of_two_sources_is_found_by_its_doi(tmp_path: Path) -> None:
    same = {"_id": "mine", "title": "The same", "text": "Again.", "DOI": "https://doi.org/10.5555/OA.1"}
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(same) + "\n")
    files = [str(FORMATS / "openalex.json"), str(other)]
    report = ingest(files, MemoryStore())
    assert (report.added, report.same_doi) == (4, 1)
    store = MemoryStore()
    report = ingest(files, store, options=IngestOptions(dedupe_doi=True))
    assert (report.added, report.repeated, report.same_doi) == (3, 1, 1) and "mine" not in store.entries
    later = MemoryStore()
    ingest(files[:1], later, options=IngestOptions(dedupe_doi=True))
    assert ingest(files[1:], later, options=IngestOptions(dedupe_doi=True)).added == 0


def test_names_of_fields_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ID,Title,ABSTRACT,Publication Year\n1,Upper,Case.,2004\n")
    (paper,) = documents(tmp_path / "a.csv").values()
    assert (paper.id, paper.title, paper.text, paper.published) == ("1", "Upper", "Case.", "2004-12-31")
    named = IngestOptions(fields=Fields(text="abstract", title="TITLE"))
    assert ingest([str(tmp_path / "a.csv")], MemoryStore(), options=named).added == 1
    with pytest.raises(InvalidData, match="no field 'summary' for the text"):
        ingest([str(tmp_path / "a.csv")], MemoryStore(), options=IngestOptions(fields=Fields(text="summary")))
