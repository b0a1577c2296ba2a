"""Documents that were made to take time and memory, pages of records, and files that change while they are read."""

import json
import sys
import unicodedata
import zipfile
from pathlib import Path

import pytest
from cli_runs import ccheck, jsonl
from memory_store import MemoryStore
from read_files import parts

from ccheck.articles.types import article_of_record, articles_of
from ccheck.core import analysis, child
from ccheck.core.errors import InvalidData
from ccheck.ingest import IngestOptions, Record, Reject, apart, full_texts, ingest, read, readers
from ccheck.ingest import documents as made_of
from ccheck.ingest.documents import clean, last_day, make_document
from ccheck.ingest.fields import Fields
from ccheck.ingest.lines import Line
from ccheck.ingest.references import read_references
from ccheck.ingest.shapes import page_of, recognise
from ccheck.ingest.sources import Source
from ccheck.search.local import LocalStore

PAPER = {"paperId": "p1", "title": "Seas", "abstract": "Sea level rose."}
PAGE = {"total": 2, "offset": 0, "data": [PAPER, PAPER | {"paperId": "p2", "abstract": "Ice melts."}]}


def test_rows_of_marks_are_normalised_in_pieces(monkeypatch):
    lengths: list[int] = []
    normalize = unicodedata.normalize
    monkeypatch.setattr(
        made_of.unicodedata, "normalize", lambda form, text: lengths.append(len(text)) or normalize(form, text)
    )
    hostile = "a" + "\u0323\u0301" * 50_000 + " end"
    cleaned = clean(hostile)
    assert max(lengths) < 100  # ordering marks takes the square of their number
    assert cleaned.endswith(" end") and len(cleaned) > 99_000
    few = "e\u0301 \u1112\u1161\u11ab x" + "\u0301" * 29
    assert clean(few) == normalize("NFC", few)


def test_a_field_is_measured_before_anything_is_done_with_it(monkeypatch):
    monkeypatch.setattr(made_of, "clean", lambda text: pytest.fail("it was cleaned") if len(text) > 99 else text)
    with pytest.raises(InvalidData, match="the field text is too long: 16,000,001 characters"):
        make_document({"text": "é" * 16_000_001})


def test_what_is_split_into_sentences_has_no_long_run_of_signs(monkeypatch):
    import nupunkt

    seen: list[str] = []
    spans = nupunkt.sent_spans
    monkeypatch.setattr(nupunkt, "sent_spans", lambda text: seen.append(text) or spans(text))
    text = "Seas rise. " + "!?" * 5_000 + " Ice melts. It rains."
    found = [text[start:end] for start, end in analysis.sentence_spans(text)]
    assert found[0] == "Seas rise." and found[-1] == "It rains." and "".join(found).count("!?") == 5_000
    assert "!?" * 100 not in seen[0] and len(seen[0]) == len(text)


def test_of_too_many_fields_not_all_are_looked_at(monkeypatch):
    looked: list[str] = []
    scalar = made_of._scalar
    monkeypatch.setattr(made_of, "_scalar", lambda name, value: looked.append(name) or scalar(name, value))
    with pytest.raises(InvalidData, match="too much metadata: more than 256 fields"):
        make_document({"text": "x", "more": dict.fromkeys(map(str, range(100_000)), 1)})
    assert len(looked) < 300


def test_what_is_remembered_is_short():
    before = made_of._last_day.cache_info().currsize
    assert last_day("2" * 60_000) is None and made_of._last_day.cache_info().currsize == before
    words = analysis._known_terms.cache_info().currsize
    assert analysis.matches("x" * 5_000, "x" * 5_000) == [(0, 5_000)]
    assert analysis._known_terms.cache_info().currsize == words


def test_rows_that_never_end_are_not_read_again_and_again(tmp_path, monkeypatch):
    fed: list[int] = []

    class Counting(bytes):
        def decode(self, *arguments: str) -> str:
            fed.append(len(self))
            return bytes(self).decode(*arguments)

    monkeypatch.setattr(readers, "WASTED_CHARS", 100_000)
    lines = [Line(1, Counting(b"id,text")), *(Line(n, Counting(b'a","b')) for n in range(2, 5_002))]
    answers = list(readers.read_table(Source("a.csv", tmp_path / "a.csv", "csv"), iter(lines), ","))
    assert len(answers) == 5_000 and all(isinstance(one, Reject) for one in answers)
    assert {one.reason for one in answers} == {"not valid CSV: a quoted field has no closing quote"}
    assert sum(fed) < 300_000  # the file has 30,000 characters; each line read with all after it makes 75 million


@pytest.mark.skipif(sys.platform != "linux", reason="a process's memory is limited on Linux")
def test_parquet_that_unpacks_to_gigabytes_is_a_reject(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(child, "MEMORY", 1 << 30)
    file = tmp_path / "bomb.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), pa.array(["x" * 8_000_000]))
    pq.write_table(pa.table({"text": text}), file, compression="zstd")  # 256 rows are 2 GB
    assert file.stat().st_size < 40_000
    assert ["too much memory" in one.reason for one in read(file) if isinstance(one, Reject)] == [True]


def test_parquet_with_a_row_of_many_values_keeps_its_other_rows(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "wide.parquet"
    values = pa.ListArray.from_arrays(pa.array([0, 9_000_000, 9_000_000]), pa.array([0] * 9_000_000, pa.int64()))
    pq.write_table(pa.table({"text": ["a", "b"], "more": values}), file)
    first, second = read(str(file))
    assert isinstance(first, Reject) and "row is too long" in first.reason
    assert isinstance(second, Record) and second.data["text"] == "b"


@pytest.mark.parametrize("name", ["page.json", "page.jsonl"])
@pytest.mark.parametrize(
    ("page", "contents"),
    [
        (PAGE, ["Seas\nSea level rose.", "Seas\nIce melts."]),
        ({"hits": {"total": 1, "hits": [{"_id": "1", "_source": {"text": "a"}}]}}, ["a"]),
        ({"results": [{"id": "W1", "title": "x"}]}, ["x"]),
        ({"message": {"items": [{"DOI": "10.1000/a", "title": ["x"]}]}}, ["x"]),
        ({"answer": [{"title": "a", "abstract": "b"}]}, ["a\nb"]),
    ],
)
def test_a_page_of_records_is_not_one_document(tmp_path, name, page, contents):
    records, rejects = parts(jsonl(tmp_path / name, page))
    assert [make_document(one.data).document.content for one in records] == contents and not rejects


def test_a_record_with_lists_of_its_own_is_no_page():
    paper = {"_id": "a", "references": [{"title": "b", "abstract": "c"}], "body": [{"text": "One."}, {"text": "Two."}]}
    assert make_document(paper, made_of.Fields(text="body.text")).document.text == "One. Two."
    assert make_document({"text": "x", "results": [{"id": "r1"}]}).document.text == "x"
    unknown = {f"field {n}": n for n in range(8)} | {"authors": [{"id": "a", "name": "Ito"}]}
    assert page_of(unknown) is None
    parts = {"sections": [{"section": "Intro", "text": "One."}, {"section": "End", "text": "Two."}]}
    assert make_document(parts, made_of.Fields(text="sections.text")).document.text == "One. Two."


@pytest.mark.parametrize(
    ("option", "name", "nearest"),
    [
        ("--title-field", "titel", "'title'"),
        ("--date-field", "pubdate", "'pub_year'"),
        ("--text-field", "abstrct", "'abstract'"),
        ("--text-field", "front.abstrat", "'abstract'"),
        ("--id-field", "paper", "'paperId'"),
    ],
)
def test_a_field_that_no_record_has_is_an_error(tmp_path, option, name, nearest):
    corpus = jsonl(tmp_path / "c.jsonl", *({**PAPER, "paperId": str(n), "pub_year": 2000} for n in range(3)))
    given = [] if option == "--text-field" else ["--text-field", "abstract"]
    for more in ([], ["--dry-run"]):
        ran = ccheck("ingest", corpus, "--no-dense", "--store", tmp_path / "s", option, name, *given, *more)
        assert ran.code == 5 and f"no field {name!r}" in ran.err and f"The records have {nearest}" in ran.err, ran.err
        assert not (tmp_path / "s").exists()


def test_a_field_that_is_empty_or_rare_is_there(tmp_path):
    records = [{"_id": "a", "text": "x", "day": None}, {"_id": "b", "text": "y", "front": {"name": None}}]
    corpus = jsonl(tmp_path / "c.jsonl", *records)
    given = ["--no-dense", "--date-field", "day", "--title-field", "front.name"]
    assert ccheck("ingest", corpus, "--store", tmp_path / "s", *given).code == 0


def test_nothing_was_done_is_not_done_in_part(tmp_path):
    corpus = jsonl(tmp_path / "c.jsonl", {"_id": "a", "text": "x"})
    with LocalStore(tmp_path / "store") as store:
        ingest(corpus, store, options=IngestOptions(cache_dir=tmp_path / "cache"))
        more = jsonl(tmp_path / "d.jsonl", {"_id": "b", "text": "y"})
        with store._writing():
            ran = ccheck("ingest", more, "--no-dense", "--store", tmp_path / "store")
    assert ran.code == 6 and "another process is writing" in ran.err


def test_who_has_a_store_open_after_an_ingest_lets_others_write(tmp_path):
    """As a server and a notebook have: neither an ingest that ended well nor one that failed keeps it to itself."""
    options = IngestOptions(cache_dir=tmp_path / "cache")
    corpora = [jsonl(tmp_path / f"{name}.jsonl", {"_id": name, "text": name}) for name in "abc"]
    with LocalStore(tmp_path / "store") as store, LocalStore(tmp_path / "store") as other:
        ingest(corpora[0], store, options=options)
        ingest(corpora[1], other, options=options)
        with pytest.raises(ZeroDivisionError):
            ingest(corpora[2], store, options=options, on_progress=lambda progress: 1 / 0)
        ingest(corpora[2], other, options=options)
        assert store.count() == 3


JATS = (
    "<article><front><article-meta><title-group><article-title>Seas</article-title></title-group>"
    "<pub-date><year>YEAR</year></pub-date></article-meta></front><body><p>Sea level rose.</p></body></article>"
)
PUBMED = (
    "<PubmedArticle><MedlineCitation><PMID>ID</PMID><Article><ArticleTitle>Seas</ArticleTitle><Journal><JournalIssue>"
    "<PubDate><Year>2019</Year><Month>MONTH</Month><Day>DAY</Day></PubDate></JournalIssue></Journal></Article>"
    "</MedlineCitation></PubmedArticle>"
)
TWO = "x}} @misc{b, title = {y"


@pytest.mark.parametrize("number", ["²", "1" * 5_000, "٢٠١٩²", ""])
def test_a_year_or_day_that_is_no_number_is_left_out_and_costs_no_article_after_it(tmp_path: Path, number: str) -> None:
    (file := tmp_path / "a.xml").write_text(JATS.replace("YEAR", number))
    records, rejects = parts(file)
    assert not rejects and "year" not in records[0].data
    articles = [PUBMED.replace("ID", str(n)).replace("MONTH", "3" if n != 2 else number) for n in (1, 2, 3)]
    file.write_text(f"<PubmedArticleSet>{''.join(articles).replace('DAY', number)}</PubmedArticleSet>")
    records, rejects = parts(file)
    assert [one.data["date"] for one in records] == ["2019-03", "2019", "2019-03"] and not rejects


@pytest.mark.parametrize("value", ["{" * 250 + "x" + "}" * 250, r"{\em " * 1_500 + "x" + "}" * 1_500, "{{x", TWO])
def test_a_nested_bibtex_entry_costs_itself(tmp_path: Path, value: str) -> None:
    good = "@article{%s,\n title = {Seas rise},\n abstract = {Sea level rose.}\n}\n"
    bad = "@article{bad,\n title = {" + value + "}\n}\n"
    records, rejects = parts(jsonl(tmp_path / "a.bib", good % "one" + bad + good % "two"))
    assert {"one", "two"} <= {one.data["_id"] for one in records}
    assert len(records) + len(rejects) == 3 and all(one.line == 5 for one in rejects) and (rejects or len(value) > 99)


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
        found = list(read_references(Source("a.bib", file, "bibtex"), lambda size: None))
        assert [(type(one), one.line) for one in found] == [(Record, 1), (Reject, 4), (Record, 7)]


def forged(text: str) -> dict[str, object]:
    element = json.dumps(["f", "figure", "Fig 1", 0, len(text) + 9, 1, 0, None, None, []])
    article = {"article": "full text", "article.captions": len(text), "article.elements": [element]}
    return {"_id": "forged", "title": "Snails", "text": text} | article


DEEP = 400
ARTICLE = {"_id": "f", "text": "x", "article": "full text"}
HOSTILE = {
    "forged place": forged("Snails eat moss."),
    "endless numbers": {"DOI": "10.1/x", "type": "a", "title": [], "issued": {"date-parts": [[float("inf")]]}},
    "forged elements": forged("x") | {"article.elements": '["f1","figure","Fig 1",0,9e999,1,0,null,null,[]]'},
    "forged sections": ARTICLE | {"article.captions": 0, "article.sections": ["[" * 50_000]},
    "an article without captions": ARTICLE,
    "lists in lists": {"_id": "f", "a": json.loads("[" * DEEP + "]" * DEEP)},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_record_of_json_costs_itself(tmp_path: Path, name: str) -> None:
    rows = [{"_id": "1", "text": "Seas rose.", "a": {"b": 2019}}, HOSTILE[name], {"_id": "2", "text": "Ice melts."}]
    file, store = jsonl(tmp_path / "a.jsonl", *rows), MemoryStore()
    report = ingest(file, store, options=IngestOptions(fields=Fields(date="a.b")) if name == "lists in lists" else None)
    assert {"1", "2"} <= set(store.entries) and report.read == 3
    assert report.rejected or "forged" not in name
    if report.rejects is not None:
        assert [json.loads(line)["line"] for line in report.rejects.read_text().splitlines()] == [2]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_damaged_member_of_an_archive_costs_itself(tmp_path: Path, method: int) -> None:
    text = JATS.replace("YEAR", "2011") + " " * 2_000
    file = archive(tmp_path / "papers.zip", method, a__xml=text, b__xml=text, c__xml=text)
    data = bytearray(file.read_bytes())
    start = data.index(b"b.xml") + 5
    data[start + 10 : start + 60] = bytes(range(50, 100))
    file.write_bytes(data)
    found = list(full_texts(file))
    assert [one.file if isinstance(one, Reject) else one.id for one in found] == ["a", f"{file}/b.xml", "c"]


def test_figures_of_a_store_with_a_forged_article(tmp_path: Path) -> None:
    figure = '<fig id="f"><label>Fig 1</label><caption><p>Sea level.</p></caption></fig>'
    (tmp_path / "good.xml").write_text(BARE.format(figure))
    good = next(iter(read([tmp_path / "good.xml"])))
    assert isinstance(good, Record)
    documents = [make_document(good.data).document, make_document(forged("Sea level rose.")).document]
    articles, unread = articles_of(documents)
    assert [one.id for one in articles] == ["good"] and "forged" in unread[0]


def test_records_are_known_by_few_of_their_fields() -> None:
    found = recognise({"cord_uid": "a", "title": "T", "abstract": "x", "url": "https://a.org/1; https://b.org/2"})
    assert found is not None and found[1]["url"] == "https://a.org/1"
    found = recognise({"id": "https://openalex.org/W1", "display_name": "T", "publication_year": 2020})
    assert found is not None and (found[0], found[1]["title"]) == ("OpenAlex works", "T")


BARE = "<article><front/><body><p>Sea level rose by 20 cm.</p>{}</body></article>"


def outcome(*files: Path) -> dict[str, str]:
    """The reason of each reject, and empty for what was read, by the file's name."""
    return {Path(one.file).name: one.reason if isinstance(one, Reject) else "" for one in read(list(files))}


def test_a_slow_page_ends_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trafilatura")
    attributes = " ".join(f"a{number}=1" for number in range(200_000))
    (tmp_path / "a.html").write_text(f"<html><body><p {attributes}>Seas rise.</p></body></html>")
    (tmp_path / "b.jsonl").write_text('{"_id": "1", "text": "Ice melts."}')
    monkeypatch.setattr(child, "SECONDS", 1.0)
    monkeypatch.setattr(child, "SECONDS_A_MIB", 0.0)
    found = outcome(tmp_path / "a.html", tmp_path / "b.jsonl")
    assert "too long" in found["a.html"] and found["b.jsonl"] == ""


@pytest.mark.parametrize("suffix", ["html", "xml", "bib", "pdf", "docx", "xlsx", "parquet", "nbib", "ris"])
def test_every_format_that_a_library_parses_is_read_in_the_other_process(tmp_path, monkeypatch, suffix):
    asked: list[object] = []

    def refuse(self: child.Child, size: int, /, **given: object) -> None:
        asked.append(given["format"])
        raise child.Ended("it takes too long")

    monkeypatch.setattr(child.Child, "ask", refuse)
    (tmp_path / f"a.{suffix}").write_bytes(b"x")
    assert "it takes too long" in outcome(tmp_path / f"a.{suffix}")[f"a.{suffix}"] and len(asked) == 1


def test_links_to_one_figure_and_an_inverted_index_take_linear_time(tmp_path: Path) -> None:
    links = '<xref ref-type="fig" rid="f">x</xref> ' * 30_000
    figure = '<fig id="f"><label>Fig 1</label><caption><p>Seas.</p></caption></fig>'
    (tmp_path / "a.xml").write_text(BARE.format(f"<p>{links}</p>{figure}"))
    [record] = read([tmp_path / "a.xml"])
    assert isinstance(record, Record)
    assert len(article_of_record(record.data).elements[0].mentions) == 30_000
    index = {"x" * 100_000: list(range(50_000))}
    row = json.dumps({"id": "https://openalex.org/W1", "abstract_inverted_index": index})
    (tmp_path / "a.jsonl").write_text(row + '\n{"_id": "1", "text": "x"}\n')
    first, second = read([tmp_path / "a.jsonl"])
    assert isinstance(first, Reject) and "too long" in first.reason and isinstance(second, Record)


def archive(file: Path, method: int = zipfile.ZIP_DEFLATED, /, **members: str | bytes) -> Path:
    with zipfile.ZipFile(file, "w", method) as packed:
        for name, text in members.items():
            packed.writestr(name.replace("__", "."), text)
    return file


def test_a_zip_of_papers(tmp_path: Path) -> None:
    references = "TY  - JOUR\nID  - r1\nTI  - Seas\nER  - \n"
    file = archive(
        tmp_path / "papers.zip",
        a__xml=BARE.format(""),
        b__jsonl='{"_id": "1", "text": "Ice melts."}\n{"_id": 2}\n[]\n',
        c__ris=references,
        d__png="x",
        e__xml="<article>",
        f__txt="Seas rise.",
    )
    found = list(read([file]))
    records = [one for one in found if isinstance(one, Record)]
    assert [one.data["_id"] for one in records] == ["a", "1", 2, "r1", f"{tmp_path.name}/papers.zip/f.txt"]
    rejects = [(one.file.rpartition("/")[2], one.line) for one in found if isinstance(one, Reject)]
    assert rejects == [("b.jsonl", 3), ("e.xml", 1)]


def test_a_zip_that_is_damaged_or_a_bomb_or_has_no_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = archive(tmp_path / "a.zip", a__png="x")
    outer = archive(tmp_path / "b.zip", a__zip=inner.read_bytes())
    (tmp_path / "c.zip").write_bytes(b"PK\x03\x04")
    for file, reason in ((inner, "no file"), (outer, "archive in an archive"), (tmp_path / "c.zip", "can't be read")):
        (said,) = outcome(file).values()
        assert reason in said
    monkeypatch.setattr(apart, "UNPACKED_BYTES", 10_000)
    monkeypatch.setattr(apart, "UNPACKED", 0)
    row = '{"_id": "1", "text": "x"}\n'
    file = archive(tmp_path / "bomb.zip", a__jsonl=row, b__jsonl=" " * 20_000, c__jsonl=row)
    first, second = read([file])
    assert isinstance(first, Record) and isinstance(second, Reject) and "unpacks to more than" in second.reason
