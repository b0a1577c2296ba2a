"""Files as people have them: a small one of each format under `formats/`, read to the right documents."""

import gzip
import io
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import read_files
from cli_runs import jsonl
from http_stub import Reply, http_stub
from memory_store import MemoryStore

from ccheck.core.errors import CcheckError, InvalidData, UsageError
from ccheck.core.layout import UnitField
from ccheck.core.settings import resolve
from ccheck.core.types import Document
from ccheck.ingest import IngestOptions, Record, Reject, ingest, read
from ccheck.ingest.documents import make_document
from ccheck.ingest.encoders import Encoders
from ccheck.ingest.fetch import Client, fetch
from ccheck.ingest.fields import Fields
from ccheck.ingest.sources import find_sources
from ccheck.search import Filter, open_store

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


def test_papers_without_an_abstract_are_counted_and_retracted_ones_marked() -> None:
    report = ingest(FORMATS / "openalex.json", store := MemoryStore())
    assert (report.exit_code, report.added, report.without_text, report.retracted) == (0, 3, 1, 1)
    assert {name: (kind.papers, kind.without_text) for name, kind in report.kinds.items()} == {"OpenAlex works": (3, 1)}
    entry = store.entries["https://openalex.org/W2000000002"]
    assert (entry.document.text, entry.document.content) == ("", "A paper without an abstract")
    files = ("pubmed.nbib", "pubmed.xml", "openalex.json", "europepmc.json", "crossref.json")
    marked = {id_ for name in files for id_, one in documents(FORMATS / name).items() if one.metadata.get("retracted")}
    assert marked == {"9500320", "30000003", "https://openalex.org/W2000000003", "PPR100", "10.5555/cr.2"}


def test_tables_of_any_delimiter_and_encoding(tmp_path: Path) -> None:
    found = documents(FORMATS / "semicolons-latin1.csv")
    assert found["1"].title == "Café au lait, and sleep" and found["2"].title == "Thé vert"
    assert found["1"].text == "Coffee, taken late, delays sleep by 40 minutes."
    pipes, tabs = documents(FORMATS / "pipes.csv")["1"], documents(FORMATS / "tabs.csv")["1"]
    assert (pipes.text, tabs.title) == ("A text, with commas, in it.", "Tabs")
    report = ingest(FORMATS / "semicolons-latin1.csv", MemoryStore())
    assert any("Windows-1252" in one for one in report.notices) and any("semicolons" in one for one in report.notices)
    assert ingest(FORMATS / "pipes.csv", MemoryStore()).added == 2
    for text, one_zero in (("id,text\n1,a\0b\n", True), ("id,text\n1,温暖化\n" * 9, False)):
        (zero := tmp_path / "zero.csv").write_bytes(text.encode("utf-8" if one_zero else "utf-16-le"))
        report = ingest(zero, MemoryStore())
        assert report.added and any("not UTF-8" in one for one in report.notices) != one_zero, report.notices


@pytest.mark.parametrize("name", "pipes.csv semicolons-latin1.csv references.ris zotero.bib openalex.json".split())
@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_told_by_its_first_bytes(monkeypatch: pytest.MonkeyPatch, name: str, packed: bool) -> None:
    data = (FORMATS / name).read_bytes()
    expected = documents(FORMATS / name)
    if name == "semicolons-latin1.csv":
        data = data.decode("latin-1").encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(data) if packed else data)))
    assert documents("-") == expected


def test_a_beir_folder_is_its_corpus() -> None:
    notices: list[str] = []
    assert [source.label for source in find_sources(str(FORMATS / "beir"), notices=notices)] == ["beir/corpus.jsonl"]
    assert "only its corpus" in notices[0]


def pdf_of(path: Path, *, title: str = "", lines: list[str]) -> Path:
    """A PDF with a line of large letters and lines of small ones."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), pagesize=(600, 800))
    canvas.setFont("Helvetica", 20)
    canvas.drawString(50, 750, title)
    canvas.setFont("Helvetica", 10)
    for number, line in enumerate(lines):
        canvas.drawString(50, 700 - 14 * number, line)
    canvas.save()
    return path


def test_a_pdf_has_title_abstract_and_doi_and_a_scan_says_what_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    pytest.importorskip("reportlab")
    lines = ["Ana Lopez, Bo Chen", "doi:10.5555/PDF.1", "Abstract", "Sea level rose by twenty centi-", "metres in all."]
    file = pdf_of(tmp_path / "lopez.pdf", title="Sea level along the coast", lines=[*lines, "Introduction", "Tides."])
    (paper,) = documents(file).values()
    assert (paper.title, paper.metadata["doi"]) == ("Sea level along the coast", "10.5555/pdf.1")
    assert paper.id == f"{tmp_path.name}/lopez.pdf"
    assert paper.text.startswith("Sea level rose by twenty centimetres in all.") and "Tides." in paper.text
    # Where all letters are of one size, a first line that ends is the title, and the text lacks nothing.
    for some, title in ((["Sea level", *lines[:2]], "Sea level"), (["Sea level rose by", "twenty centimetres."], "")):
        (plain,) = documents(pdf_of(tmp_path / "plain.pdf", lines=some)).values()
        assert (plain.title, plain.text) == (title, " ".join(some))
    (reject,) = read([pdf_of(tmp_path / "scan.pdf", lines=[])])
    assert isinstance(reject, Reject) and "ocrmypdf" in reject.reason


def test_other_kinds_say_what_turns_them_into_these(tmp_path: Path) -> None:
    for name, tool in (("a.doc", "soffice"), ("a.7z", "Unpack"), ("a.rdf", "Zotero")):
        (tmp_path / name).write_bytes(b"\x00\x01")
        with pytest.raises(UsageError, match=tool):
            read([tmp_path / name])


ENTITIES = b'<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><PubmedArticleSet>&c;</PubmedArticleSet>'


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        *(("other.xml", b"<rss><item/></rss>", "<rss>"), ("bomb.xml", ENTITIES, "not valid XML")),
        *(("a.htm", html, "no text") for html in (b"", b"<html></html>", b"\x00\xff\xfe" * 100, b"<div>" * 100_000)),
    ],
)
def test_a_file_of_which_nothing_can_be_read_says_why(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(data)
    (reject,) = read([tmp_path])
    assert isinstance(reject, Reject) and reason in reject.reason


def test_the_same_paper_of_two_sources_is_found_by_its_doi(tmp_path: Path) -> None:
    one, once = FORMATS / "openalex.json", IngestOptions(dedupe_doi=True)
    other = jsonl(tmp_path / "other.jsonl", {"_id": "mine", "text": "Again.", "DOI": "https://doi.org/10.5555/OA.1"})
    report = ingest([one, other], MemoryStore())
    assert (report.added, report.same_doi) == (4, 1)
    store = MemoryStore()
    report = ingest([one, other], store, options=once)
    assert (report.added, report.repeated, report.same_doi) == (3, 1, 1) and "mine" not in store.entries
    assert ingest(other, store, options=once).added == 0
    doi = "10.5555/same.1"
    rows = [{"_id": doi, "text": "First.", "doi": doi}, {"_id": doi, "text": "Second.", "doi": doi}]
    store = MemoryStore()
    report = ingest(jsonl(tmp_path / "a.jsonl", *rows), store, options=IngestOptions(dedupe_doi=True))
    assert (report.added, report.repeated, report.same_doi, report.rejected, report.exit_code) == (1, 1, 1, 0, 0)
    assert store.entries[doi].document.text == "First."
    assert ingest(jsonl(tmp_path / "b.jsonl", *rows), MemoryStore()).rejected == 1


def test_names_of_fields_in_any_case(tmp_path: Path) -> None:
    (file := tmp_path / "a.csv").write_text("ID,Title,ABSTRACT,Publication Year\n1,Upper,Case.,2004\n")
    (paper,) = documents(file).values()
    assert (paper.id, paper.title, paper.text, paper.published) == ("1", "Upper", "Case.", "2004-12-31")
    named = IngestOptions(fields=Fields(text="abstract", title="TITLE"))
    assert ingest(file, MemoryStore(), options=named).added == 1
    with pytest.raises(InvalidData, match="no field 'summary' for the text"):
        ingest(file, MemoryStore(), options=IngestOptions(fields=Fields(text="summary")))


JATS = (
    '<?xml version="1.0" encoding="UTF-16"?><article><front><article-meta><title-group>'
    "<article-title>Zürich</article-title></title-group></article-meta></front><body><p>Seas rise.</p></body></article>"
)
STRINGS = """@string{n="N"}\n@string{b = n # {x}}
@misc{k, title={T}, journal = "A " # B, month="9~" # jan, year=2001, author="M{\\"u}l and others"}"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.bib", "@misc{k, title={T}, year=2014, keyword={a, b}}", {"keywords": ["a", "b"], "year": 2014}),
        ("a.bib", "@misc{k, title={T}, url={http://x.org/?a=1&copy=2}}", {"url": "http://x.org/?a=1&copy=2"}),
        ("a.bib", STRINGS, {"journal": "A Nx", "date": "2001-01", "authors": ["Mül"]}),
        ("a.nbib", "PMID- 1\nTI  - T\nDP  - Winter 2019\n", {"year": 2019, "date": "2019"}),
        ("a.ris", "TY  - JOUR\nTI  - T\nDA  - 03/05\nPY  - 2019\nEP  - 9\nER  - \n", {"date": "2019", "pages": None}),
        ("a.csv", "Key,Item Type,Title,Date,Publication Year\nA,book,T,in press,2020\n", {"date": 2020}),
    ],
)
def test_what_a_reference_says_in_other_places(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    (paper,) = documents(tmp_path / name).values()
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
        "a.txt": f"x\n{said}\n",
        "a.jsonl": json.dumps({"title": "x", "text": said}, ensure_ascii=False) + "\n",
    }[name]
    (tmp_path / name).write_bytes(text.encode(encoding))
    found = list(read([tmp_path / name]))
    if name == "a.jsonl" and not encoding.startswith("utf-16"):  # JSON is Unicode
        assert isinstance(found[0], Reject) and "UTF-8" in found[0].reason
    else:
        (paper,) = documents(tmp_path / name).values()
        assert (paper.title, paper.text) == ("x", said)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_jats_of_utf_16(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.xml").write_bytes(JATS.encode(encoding))
    (paper,) = documents(tmp_path / "a.xml").values()
    assert paper.title == "Zürich" and "Seas rise." in paper.text


def test_a_publishers_page(tmp_path: Path) -> None:
    pytest.importorskip("trafilatura")
    title, dates = "Sea level rise in cities", {"publication_date": "2019/03/05", "firstpage": "1", "lastpage": "9"}
    tags = [*dates.items(), ("title", title), ("author", "Ana López"), ("author", "Bo Chen")]
    tags += [("doi", "https://doi.org/10.5555/HTML.1"), ("journal_title", "Tides")]
    head = "".join(f'<meta name="citation_{name}" content="{value}">' for name, value in tags)
    body = f"<article><h1>{title}</h1>" + "<p>Sea level rose by twenty centimetres.</p>" * 20
    head += f"<title>Tides - {title} | Publisher</title>"
    (tmp_path / "a.html").write_text(f"<html><head>{head}</head><body>{body}</article></body></html>")
    (paper,) = documents(tmp_path / "a.html").values()
    assert paper.id == f"{tmp_path.name}/a.html" and paper.title == title and "rise in cities" not in paper.text
    assert paper.published == "2019-03-05" and paper.metadata["year"] == 2019
    assert paper.metadata["authors"] == ["Ana López", "Bo Chen"] and paper.metadata["pages"] == "1-9"
    assert (paper.metadata["doi"], paper.metadata["journal"]) == ("10.5555/html.1", "Tides")


@pytest.mark.parametrize("id_", ["ID", "EID"])
def test_a_sheet_is_read_as_a_csv_file_is(tmp_path: Path, id_: str) -> None:
    names = [id_, "Title", "Abstract", "DOI", "Year"]
    book = pytest.importorskip("openpyxl").Workbook()
    rows = [["", "Wasps", "Wasps eat flies.", "https://doi.org/10.5555/X.1", "2004"], [7, 1984, "Tea.", None, 2004]]
    for row in (names, *rows):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    jsonl(tmp_path / "a.csv", *(",".join("" if cell is None else str(cell) for cell in row) for row in (names, *rows)))
    assert documents(tmp_path / "a.xlsx") == documents(tmp_path / "a.csv")


@pytest.mark.parametrize("nobody", ["", "(anonymous)", "anonymous", "Unknown"])
def test_a_word_document_and_nobody_is_no_author_and_no_title(tmp_path: Path, nobody: str) -> None:
    document = pytest.importorskip("docx").Document()
    document.core_properties.author = document.core_properties.title = nobody
    (document.add_paragraph if nobody else document.add_heading)("Bees in cities")
    document.add_paragraph("Cities have more bees than fields.")
    row = document.add_table(1, 3).rows[0].cells
    row[0].text, row[1].merge(row[2]).text = "Bees", "1.5 m"
    document.save(str(tmp_path / "a.docx"))
    (paper,) = documents(tmp_path / "a.docx").values()
    assert (paper.title, paper.text) == ("Bees in cities", "Cities have more bees than fields.\n\nBees | 1.5 m")
    assert paper.id == f"{tmp_path.name}/a.docx" and "authors" not in paper.metadata


@pytest.mark.parametrize(("results", "seconds"), [(None, 60), ([{"id": "W1"}], -1), ([], 60)])
def test_a_service_without_an_answer_or_papers_leaves_nothing(tmp_path, monkeypatch, results, seconds) -> None:
    reply = Reply({"results": results}, 503 if results is None else 200)
    said = "Nothing was fetched" if results != [] else "openalex found no papers on 'sea level'"
    monkeypatch.setattr("ccheck.ingest.fetch.ANSWER_SECONDS", seconds)
    file = tmp_path / "seas.jsonl"
    with http_stub(lambda asked: reply) as server, pytest.raises(CcheckError, match=said) as raised:
        fetch(Client("openalex", server.url, wait=lambda seconds: None), "sea level", file)
    assert not list(tmp_path.iterdir())
    assert "safe" not in str(raised.value)


CHUNKS = Encoders(units={"chunk": UnitField("chunk", characters=2048)})
SEA = "https://example.org/sea"
HTML = """<html><head><title>The sea rises</title><link rel="canonical" href="{url}">
<meta property="og:site_name" content="The Guardian"><meta property="article:published_time" content="2020-10-05">
</head><body><nav>Home | Sport</nav><article><h1>The sea rises</h1><p>{text}</p></article>
<footer>Imprint</footer></body></html>"""
LONG = "The sea level has risen by more than 20 cm since 1900, as tide gauges on many coasts show. " * 5


def row(claim: int | str, url: str, *sentences: str) -> dict[str, Any]:
    return {"claim_id": claim, "type": "question", "query": "sea", "url": url, "url2text": list(sentences)}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    return jsonl(path, *rows)


@pytest.fixture
def put(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Ingests files into a local store, which it gives with the report."""
    with open_store(resolve({"store": str(tmp_path / "store")}).settings) as store:
        yield lambda *sources: (store, ingest([str(one) for one in sources], store, CHUNKS))


def test_a_row_of_the_knowledge_store_is_a_page(tmp_path: Path, put: Callable[..., Any]) -> None:
    file = write(tmp_path / "kb" / "0.json", row(0, SEA, "The sea rises.", "It is high."), row(0, "x:1", "Tea."))
    store, report = put(file)
    page = store.get([SEA])[SEA]
    assert (page.text, page.title) == ("The sea rises.\nIt is high.", "")
    assert dict(page.metadata) == {"url": SEA, "claim_ids": ["0"]}
    assert report.added == 2 and report.units == {"chunk": 2}


def test_a_page_of_several_claims_is_stored_once(tmp_path: Path, put: Callable[..., Any]) -> None:
    for claim, other in ((0, "Tea."), ("1", "Ice.")):
        write(tmp_path / "kb" / f"{claim}.json", row(claim, SEA, "The sea rises."), row(claim, f"x:{other}", other))
    store, report = put(tmp_path / "kb")
    assert (report.added, report.repeated, report.rejected) == (3, 1, 0)
    assert store.get([SEA])[SEA].metadata["claim_ids"] == ["0", "1"]
    assert [store.count([Filter("claim_ids", "=", claim)]) for claim in ("0", "1", "2")] == [2, 2, 0]
    # Another ingest adds to the collections and takes nothing away.
    store, report = put(write(tmp_path / "more" / "2.json", row(2, SEA, "The sea rises.")))
    assert report.updated == 1 and store.get([SEA])[SEA].metadata["claim_ids"] == ["0", "1", "2"]
    _, report = put(tmp_path / "kb")
    assert (report.updated, report.unchanged, report.added) == (0, 3, 0)
    assert store.get([SEA])[SEA].metadata["claim_ids"] == ["0", "1", "2"] and store.count() == 3


def test_another_text_of_the_same_page_is_said(tmp_path: Path, put: Callable[..., Any]) -> None:
    rows = row(0, SEA, "The sea rises."), row(1, SEA, "Cookies?"), row(2, SEA, "The sea rises.")
    store, report = put(write(tmp_path / "kb" / "all.jsonl", *rows))
    page = store.get([SEA])[SEA]
    assert page.text == "The sea rises." and page.metadata["claim_ids"] == ["0", "1", "2"]
    assert any("1 pages came again with another text" in notice for notice in report.notices)


def test_a_page_of_5_mb_is_cut_into_chunks(tmp_path: Path, put: Callable[..., Any]) -> None:
    text = "The sea rises. " * 330_000  # without a single blank line
    store, report = put(write(tmp_path / "kb" / "0.json", row(0, SEA, text), row(0, "x:tea", "Tea.")))
    assert report.rejected == 0 and report.units["chunk"] >= len(text) // 2048
    first, last = store.get_units("chunk", [f"{SEA}#0", f"{SEA}#{report.units['chunk'] - 2}"]).values()
    stored = store.get([SEA])[SEA].text
    assert stored[first.start : first.end] == first.text and last.end == len(stored.rstrip())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"url": SEA, "url2text": "The sea."}, "The sea."),
        ({"url": SEA, "url2text": ["The sea.", None, 3, "Tea."]}, "The sea.\nTea."),
        ({"url": 3, "url2text": ["The sea."], "text": "own"}, "own"),
        ({"url": SEA, "text": "own"}, "own"),
    ],
)
def test_rows_of_other_shapes(tmp_path: Path, data: dict[str, Any], text: str) -> None:
    (record,) = read([write(tmp_path / "kb" / "a.jsonl", data)])
    assert isinstance(record, Record) and record.data["text"] == text


def test_a_page_without_text_or_with_a_long_address(tmp_path: Path, put: Callable[..., Any]) -> None:
    far = "https://example.org/" + "x" * 600
    store, report = put(write(tmp_path / "kb" / "0.json", row(0, SEA), row(0, far, "Tea.")))
    assert (report.rejected, report.added, store.count()) == (1, 1, 1)


def test_html_is_a_page_with_its_main_text(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(HTML.format(url=SEA, text=LONG))
    (record,) = read([tmp_path])
    assert isinstance(record, Record) and record.kind == "HTML files"
    document = make_document(record.data).document
    assert document.id == SEA and document.title == "The sea rises" and document.published == "2020-10-05"
    assert document.metadata == {"date": "2020-10-05", "url": SEA, "source": "The Guardian"}
    assert LONG.strip() in document.text and "Imprint" not in document.text
