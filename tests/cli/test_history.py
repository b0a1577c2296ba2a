"""What was checked can be found, shown, corrected and learned from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_runs import BM25, Ran, ccheck

from ccheck.lab.measure.rows import read_rows

CLAIM = "Vaccines cause autism."


@pytest.fixture
def store(papers: Path, tmp_path: Path) -> Path:
    """A copy of the sample papers, with a record of its own."""
    shutil.copytree(papers, tmp_path / "papers")
    return tmp_path / "papers"


def query(store: Path, claim: str, *more: str) -> Ran:
    return ccheck("query", claim, "--store", store, *BM25, "-k", "2", *more)


def test_a_check_is_listed_and_shown_as_it_was_printed(store):
    asked = query(store, CLAIM)
    query(store, "Sea level has risen.", "--json")
    listed = ccheck("history", "--store", store).out.splitlines()
    assert [line.split("  ")[-1] for line in listed] == ["Sea level has risen.", CLAIM]
    id_ = listed[1].split()[0]
    assert f"Kept as {id_}" in asked.out
    shown = ccheck("show", id_, "--store", store)
    assert shown.out == asked.out and f"checked {listed[1][18:28]}" in shown.err
    found = ccheck("history", "AUTISM", "--store", store, "--json")
    assert [one["check"]["id"] for one in found.objects] == [id_]
    again = ccheck("show", id_, "--store", store, "--json").objects[0]
    assert again["check"]["settings"]["recipe"] == again["recipe"] == "bm25" and "result" not in again["check"]
    shutil.rmtree(store)
    assert ccheck("show", id_, "--store", store).out == asked.out, "the record outlives the store"


def test_answers_are_the_same_with_and_without_a_record(store):
    kept, not_kept = (query(store, CLAIM, "--json", *more) for more in ((), ("--no-record",)))
    for one in (first := kept.objects[0], second := not_kept.objects[0]):
        one.pop("timings_ms")
    assert first == second and (kept.err, kept.code) == (not_kept.err, not_kept.code)


@pytest.mark.parametrize("how", ["flag", "variable", "dry run", "no store"])
def test_what_is_not_to_be_kept_is_not(store, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("CCHECK_RECORD", "false")
    if how == "no store":
        store = store.with_name("nowhere")
    more = {"flag": ["--no-record"], "dry run": ["--dry-run", "--llm", "m"]}.get(how, [])
    ran = query(store, CLAIM, *more)
    assert "Kept as" not in ran.out
    assert not list(store.parent.glob("*.checks.sqlite*"))
    ran = ccheck("history", "--store", store)
    assert (ran.code, ran.out) == (0, "") and "no check in" in ran.err
    assert "--store" in ran.err and "--store" in ccheck("show", "f" * 16).err


def test_a_correction_is_shown_with_the_check_and_becomes_a_pair(store, tmp_path):
    query(store, CLAIM)
    (one,) = ccheck("history", "--store", store, "--json").objects
    id_, document = one["check"]["id"], one["evidence"][0]["doc_id"]
    said = ("--document", document, "--stance", "REFUTES", "--note", "read \x1b[31mthe table", "--user", "ann")
    ran = ccheck("correct", id_, *said, "--store", store)
    assert ran.code == 0 and f"wrong stance: {document} (REFUTES)  ann" in ran.out and "\x1b" not in ran.out
    assert ccheck("correct", id_, "--verdict", "REFUTES", "--store", store).code == 0
    shown = ccheck("show", id_, "--store", store).out
    assert "wrong verdict (REFUTES)" in shown and "read [31mthe table" in shown
    report = tmp_path / "asked.html"
    assert "wrong verdict (REFUTES)" in query(store, CLAIM, "--report", str(report)).out, "asking again shows it too"
    assert report.read_text(encoding="utf-8").count("Corrected:") == 2
    assert "[2 corrections]" in ccheck("history", "--corrected", "--store", store).out
    ran = ccheck("history", "--pairs", "--store", store)
    (tmp_path / "pairs.jsonl").write_text(ran.out)
    (row,) = read_rows(tmp_path / "pairs.jsonl").rows
    assert (row.claim, row.doc_id, row.label) == (CLAIM, document, "REFUTES") and len(row.text) > 200
    measured = ccheck("evaluate", "--pairs", tmp_path / "pairs.jsonl", "--json")
    assert measured.objects[0]["pairs"] == measured.objects[0]["decided"]["refuted"] == 1


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        ((), 2, "say one thing"),
        (("--verdict", "REFUTES", "--not-relevant"), 2, "say one thing"),
        (("--verdict", "REFUTES", "--document", "x"), 2, "takes none"),
        (("--stance", "REFUTES"), 2, "need --document"),
        (("--document", "madsen-202", "--not-relevant"), 2, "did you mean 'madsen-2002'?"),
    ],
)
def test_a_correction_that_says_nothing_clear_is_refused(store, said, code, why):
    query(store, CLAIM)
    id_ = ccheck("history", "--store", store).out.split()[0]
    ran = ccheck("correct", id_, *said, "--store", store)
    assert ran.code == code and why in ran.err
    assert "correction" not in ccheck("history", "--store", store).out


def test_a_check_that_is_not_there_and_one_that_failed(store):
    for command in ("show", "correct"):
        ran = ccheck(command, "abc", *(["--verdict", "REFUTES"] if command == "correct" else []), "--store", store)
        assert ran.code == 4 and "ccheck history lists" in ran.err
    assert query(store, "...").code == 5
    line = ccheck("history", "--store", store).out
    assert "failed" in line
    ran = ccheck("show", line.split()[0], "--store", store)
    assert ran.code == 7 and "could not be checked: the claim has no word" in ran.err


def test_where_a_record_cannot_be_kept_the_answer_is_there_all_the_same(store):
    record = store.with_name("papers.checks.sqlite")
    record.write_text("this is no database" * 100)
    ran = query(store, CLAIM)
    assert ran.code == 0 and "Verdict" in ran.out and "Kept as" not in ran.out
    assert "not recorded: the record" in ran.err and "--no-record" in ran.err
    assert record.read_text() == "this is no database" * 100
    record.unlink()
    record.symlink_to(store.with_name("elsewhere"))
    assert "not recorded" in query(store, CLAIM).err and not store.with_name("elsewhere").exists()
