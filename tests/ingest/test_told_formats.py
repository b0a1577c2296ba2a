"""What a file says of its paper arrives: UTF-16, publishers' pages, sheets, PDFs of many pages, duplicates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import jsonl
from http_stub import Reply, http_stub
from memory_store import MemoryStore
from read_files import documents

from ccheck.core.errors import ServerError
from ccheck.ingest import IngestOptions, Reject, ingest, read
from ccheck.ingest.fetch import Client, fetch
from ccheck.ingest.pdf import without_running

JATS = (
    '<?xml version="1.0" encoding="UTF-16"?><article><front><article-meta><title-group>'
    "<article-title>Zürich</article-title></title-group></article-meta></front><body><p>Seas rise.</p></body></article>"
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.bib", "@misc{k, title={T}, year=2014, keyword={a, b}}", {"keywords": ["a", "b"], "year": 2014}),
        ("a.bib", "@misc{k, title={T}, url={http://x.org/?a=1&copy=2}}", {"url": "http://x.org/?a=1&copy=2"}),
        ("a.nbib", "PMID- 1\nTI  - T\nDP  - Winter 2019\n", {"year": 2019, "date": "2019"}),
        ("a.ris", "TY  - JOUR\nTI  - T\nDA  - 03/05\nPY  - 2019\nEP  - 9\nER  - \n", {"date": "2019", "pages": None}),
        ("a.csv", "Key,Item Type,Title,Date,Publication Year\nA,book,T,in press,2020\n", {"date": 2020}),
    ],
)
def test_what_a_reference_says_in_other_places(
    tmp_path: Path, name: str, text: str, expected: dict[str, object]
) -> None:
    (tmp_path / name).write_text(text)
    (paper,) = documents(tmp_path / name)
    assert {key: paper.metadata.get(key) for key in expected} == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "cp1252", "cp1251", "cp1253"])
@pytest.mark.parametrize("name", ["a.csv", "a.ris", "a.txt", "a.jsonl"])
def test_text_of_other_encodings(tmp_path: Path, encoding: str, name: str) -> None:
    said = {
        "cp1251": "Уровень моря поднялся на двадцать сантиметров",
        "cp1253": "Η στάθμη της θάλασσας ανέβηκε είκοσι εκατοστά",
    }.get(encoding, "Müller über Gletscher: España año François — größer")
    text = {
        "a.csv": f"id,title,text\n1,x,{said}\n",
        "a.ris": f"TY  - JOUR\nID  - 1\nTI  - x\nAB  - {said}\nER  - \n",
        "a.txt": f"A title\n{said}\n",
        "a.jsonl": json.dumps({"_id": "1", "text": said}, ensure_ascii=False) + "\n",
    }[name]
    (tmp_path / name).write_bytes(text.encode(encoding))
    found = list(read([tmp_path / name]))
    if name == "a.jsonl" and not encoding.startswith("utf-16"):  # JSON is Unicode
        assert isinstance(found[0], Reject) and "UTF-8" in found[0].reason
    else:
        (paper,) = documents(tmp_path / name)
        assert paper.text == said


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_jats_of_utf_16(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.xml").write_bytes(JATS.encode(encoding))
    (paper,) = documents(tmp_path / "a.xml")
    assert paper.title == "Zürich" and "Seas rise." in paper.text


def test_a_publishers_page(tmp_path: Path) -> None:
    pytest.importorskip("trafilatura")
    tags = {
        "citation_title": "Sea level rise in cities",
        "citation_author": "Ana López",
        "citation_doi": "https://doi.org/10.5555/HTML.1",
        "citation_journal_title": "Tides",
        "citation_publication_date": "2019/03/05",
        "citation_firstpage": "1",
        "citation_lastpage": "9",
    }
    head = "".join(f'<meta name="{name}" content="{value}">' for name, value in tags.items())
    head += '<meta name="citation_author" content="Bo Chen"><title>Tides - Sea level rise in cities | Publisher</title>'
    body = "<article><h1>Sea level rise in cities</h1>" + "<p>Sea level rose by twenty centimetres.</p>" * 20
    (tmp_path / "a.html").write_text(f"<html><head>{head}</head><body>{body}</article></body></html>")
    (paper,) = documents(tmp_path / "a.html")
    assert paper.title == "Sea level rise in cities" and "rise in cities" not in paper.text
    assert paper.published == "2019-03-05" and paper.metadata["year"] == 2019
    assert paper.metadata["authors"] == ["Ana López", "Bo Chen"] and paper.metadata["pages"] == "1-9"
    assert (paper.metadata["doi"], paper.metadata["journal"]) == ("10.5555/html.1", "Tides")


@pytest.mark.parametrize(
    "names", [["ID", "Title", "Abstract", "DOI", "Year"], ["EID", "Title", "Abstract", "DOI", "Year"]]
)
def test_a_sheet_is_read_as_a_csv_file_is(tmp_path: Path, names: list[str]) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    rows = [["", "Wasps", "Wasps eat flies.", "https://doi.org/10.5555/X.1", "2004"], [7, 1984, "Tea.", None, 2004]]
    book = openpyxl.Workbook()
    for row in (names, *rows):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in (names, *rows)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert documents(tmp_path / "a.xlsx") == documents(tmp_path / "a.csv")


# -- PDF


def test_lines_that_pages_repeat_stay_once() -> None:
    bodies = ["Ice melts.", "Seas rise.", "Tides turn.", "Coasts sink.", "Cities flood.", "People move."]
    pages = [f"Journal of Tides 12\n{body}\nAll rights reserved.\nPage {n} of 6\n" for n, body in enumerate(bodies, 3)]
    text = "\n".join(without_running(pages))
    assert text.count("All rights reserved.") == text.count("Journal of Tides 12") == text.count("Page") == 1
    assert all(body in text for body in bodies)


def test_lines_that_only_look_alike_stay() -> None:
    pages = [f"Title\nText.\nIn year {1990 + n * n} we saw {n * 7} storms.\n" for n in range(6)]
    assert "\n".join(without_running(pages)).count("storms") == 6
    inside = ["The end.\nmore\nThe end.\nx\ny\nThe end."] * 6
    assert "\n".join(without_running(inside)).count("The end.") > 6


@pytest.mark.parametrize("nobody", ["(anonymous)", "anonymous", "Unknown"])
def test_nobody_is_no_author_and_no_title(tmp_path: Path, nobody: str) -> None:
    word = pytest.importorskip("docx")
    document = word.Document()
    document.core_properties.author = document.core_properties.title = nobody
    document.add_paragraph("Bees in cities")
    document.add_paragraph("Cities have more bees than fields. " * 3)
    document.save(str(tmp_path / "a.docx"))
    (paper,) = documents(tmp_path / "a.docx")
    assert paper.title == "Bees in cities" and "authors" not in paper.metadata


# -- duplicates, and a service that can't be reached


def test_a_duplicate_whose_id_is_its_doi_is_left_out_and_not_called_unusable(tmp_path: Path) -> None:
    doi = "10.5555/same.1"
    rows = [{"_id": doi, "text": "First.", "doi": doi}, {"_id": doi, "text": "Second.", "doi": doi}]
    store = MemoryStore()
    report = ingest(jsonl(tmp_path / "a.jsonl", *rows), store, options=IngestOptions(dedupe_doi=True))
    assert (report.added, report.repeated, report.same_doi, report.rejected, report.exit_code) == (1, 1, 1, 0, 0)
    assert store.entries[doi].document.text == "First."
    assert ingest(jsonl(tmp_path / "b.jsonl", *rows), MemoryStore()).rejected == 1


def test_a_service_that_can_not_be_reached_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "seas.jsonl"
    with http_stub(lambda asked: Reply({}, 503)) as server, pytest.raises(ServerError) as raised:
        fetch(Client("openalex", server.url, wait=lambda seconds: None), "sea level", file)
    assert not list(tmp_path.iterdir())
    assert "safe" not in str(raised.value) and "Nothing was fetched" in str(raised.value)
