"""Documents that were made to take time and memory, pages of records, and files that change while they are read."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path

import pytest
from cli_runs import ccheck, jsonl

from ccheck.core import analysis
from ccheck.core.errors import InvalidData
from ccheck.ingest import IngestOptions, Record, Reject, ingest, read, readers
from ccheck.ingest import documents as made_of
from ccheck.ingest.documents import clean, last_day, make_document
from ccheck.ingest.shapes import page_of
from ccheck.search.local import LocalStore

PAPER = {"paperId": "p1", "title": "Seas", "abstract": "Sea level rose."}
PAGE = {"total": 2, "offset": 0, "data": [PAPER, PAPER | {"paperId": "p2", "abstract": "Ice melts."}]}


# -- time and memory


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


def test_names_of_fields_do_not_multiply():
    long = {"k" * 1_001: dict.fromkeys(map(str, range(100)), 1)}
    with pytest.raises(InvalidData, match="the name of a field is too long: 1,001 characters"):
        make_document({"text": "x", "metadata": long})
    with pytest.raises(InvalidData, match="name of a field is too long"):
        make_document({"text": "x", **long})


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
    words = analysis._known_term_set.cache_info().currsize
    assert analysis.matches("x" * 5_000, "x" * 5_000) == [(0, 5_000)]
    assert analysis._known_term_set.cache_info().currsize == words


def test_rows_that_never_end_are_not_read_again_and_again(tmp_path, monkeypatch):
    fed = 0
    decode = readers.Line

    class Counting(bytes):
        def decode(self, *arguments: str) -> str:
            nonlocal fed
            fed += len(self)
            return bytes(self).decode(*arguments)

    monkeypatch.setattr(readers, "WASTED_CHARS", 100_000)
    lines = [decode(1, Counting(b"id,text")), *(decode(n, Counting(b'a","b')) for n in range(2, 5_002))]
    source = next(iter(tables_source(tmp_path)))
    answers = list(readers.read_table(source, iter(lines), ","))
    assert len(answers) == 5_000 and all(isinstance(one, Reject) for one in answers)
    assert {one.reason for one in answers} == {"not valid CSV: a quoted field has no closing quote"}
    assert fed < 300_000  # the file has 30,000 characters; each line read with all after it makes 75 million


def tables_source(tmp_path: Path):
    from ccheck.ingest.sources import find_sources

    (tmp_path / "a.csv").write_text("id,text\n")
    return find_sources(tmp_path / "a.csv")


def test_a_quoted_field_over_lines_is_still_one_after_bad_rows(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('id,text\n1,"two\nlines"\na","b\nc,d\n2,"and\nmore"\n')
    answers = list(read(str(file)))
    assert [one.data["text"] for one in answers if isinstance(one, Record)][:1] == ["two\nlines"]
    assert any(isinstance(one, Reject) and one.line == 4 for one in answers)


@pytest.mark.skipif(sys.platform != "linux", reason="a process's memory is limited on Linux")
def test_parquet_that_unpacks_to_gigabytes_is_a_reject(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from ccheck.core import child

    monkeypatch.setattr(child, "MEMORY", 1 << 30)
    file = tmp_path / "bomb.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), pa.array(["x" * 8_000_000]))
    pq.write_table(pa.table({"text": text}), file, compression="zstd")  # 256 rows are 2 GB
    assert file.stat().st_size < 40_000
    answers = list(read(str(file)))
    (reject,) = [one for one in answers if isinstance(one, Reject)]
    assert "too much memory" in reject.reason


def test_parquet_with_a_row_of_many_values_keeps_its_other_rows(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    file = tmp_path / "wide.parquet"
    values = pa.ListArray.from_arrays(pa.array([0, 9_000_000, 9_000_000]), pa.array([0] * 9_000_000, pa.int64()))
    pq.write_table(pa.table({"text": ["a", "b"], "more": values}), file)
    first, second = read(str(file))
    assert isinstance(first, Reject) and "row is too long" in first.reason
    assert isinstance(second, Record) and second.data["text"] == "b"


# -- which fields


@pytest.mark.parametrize("name", ["page.json", "page.jsonl"])
def test_a_page_of_records_is_not_one_document(tmp_path, name):
    (tmp_path / name).write_text(json.dumps(PAGE))
    ran = ccheck("ingest", tmp_path / name, "--no-dense", "--store", tmp_path / "store")
    assert ran.code == 0 and "Semantic Scholar papers: 2 papers" in ran.err
    with LocalStore(tmp_path / "store") as store:
        assert {one.id: (one.title, one.text) for one in store.scan()} == {
            "p1": ("Seas", "Sea level rose."),
            "p2": ("Seas", "Ice melts."),
        }


@pytest.mark.parametrize(
    "page",
    [
        {"hits": {"total": 1, "hits": [{"_id": "1", "_source": {"text": "a"}}]}},
        {"results": [{"id": "W1", "title": "x"}]},
        {"message": {"items": [{"DOI": "10.1000/a", "title": ["x"]}]}},
        {"answer": [{"title": "a", "abstract": "b"}]},
    ],
)
def test_pages_of_services_are_known(tmp_path, page):
    (tmp_path / "page.json").write_text(json.dumps(page))
    (record,) = read(str(tmp_path / "page.json"))
    assert isinstance(record, Record) and make_document(record.data).document.content


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


def test_the_title_can_be_the_text():
    made = make_document({"_id": "a", "title": "Sea level rose."}, made_of.Fields(text="title")).document
    assert (made.title, made.text, dict(made.metadata)) == ("", "Sea level rose.", {})
    both = make_document({"_id": "a", "title": "Seas."}, made_of.Fields(text="title", title="title")).document
    assert (both.title, both.text) == ("Seas.", "Seas.")


# -- files that change, stores that are locked


def test_nothing_was_done_is_not_done_in_part(tmp_path):
    corpus = jsonl(tmp_path / "c.jsonl", {"_id": "a", "text": "x"})
    with LocalStore(tmp_path / "store") as store:
        ingest(corpus, store, options=IngestOptions(cache_dir=tmp_path / "cache"))
        more = jsonl(tmp_path / "d.jsonl", {"_id": "b", "text": "y"})
        with store._writing():
            ran = ccheck("ingest", more, "--no-dense", "--store", tmp_path / "store")
    assert ran.code == 6 and "another process is writing" in ran.err
    bad = jsonl(tmp_path / "bad.jsonl", {"_id": "b", "text": ""})
    assert ccheck("ingest", bad, "--no-dense", "--store", tmp_path / "store").code == 5
