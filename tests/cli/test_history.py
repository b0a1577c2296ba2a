"""What was checked can be found, shown, corrected and learned from."""

import re
from pathlib import Path

import pytest
from cli_runs import BM25, Ran, ccheck

from ccheck.cli.common import user_name
from ccheck.lab.measure.pairs import read_rows

CLAIM = "Vaccines cause autism."


def query(store: Path, claim: str, *more: str) -> Ran:
    return ccheck("query", claim, "--store", store, *BM25, "-k", "2", *more)


def test_a_check_is_listed_and_shown_as_it_was_printed(own_papers):
    asked = query(own_papers, CLAIM)
    query(own_papers, "Sea level has risen.", "--json")
    listed = ccheck("history", "--store", own_papers).out.splitlines()
    assert [line.split("  ")[-1] for line in listed] == ["Sea level has risen.", CLAIM]
    id_ = listed[1].split()[0]
    assert f"Kept as {id_}" in asked.out
    shown = ccheck("show", id_, "--store", own_papers)
    assert shown.out == asked.out and f"checked {listed[1][18:28]}" in shown.err
    assert f" UTC by {user_name()}\n" in shown.err
    assert [one["check"]["id"] for one in ccheck("history", "AUTISM", "--store", own_papers, "--json").objects] == [id_]
    again = ccheck("show", id_, "--store", own_papers, "--json").objects[0]
    assert again["check"]["settings"]["recipe"] == again["recipe"] == "bm25" and "result" not in again["check"]
    assert ccheck("history", "--before", "2020-01-31", "--store", own_papers).out == ""
    wrong = ccheck("history", "--before", "yesterday", "--store", own_papers)
    assert (wrong.code, wrong.out) == (2, "") and "'yesterday' is not a time" in wrong.err
    deleted = ccheck("index", "delete", "--yes", "--store", own_papers).err
    assert not own_papers.exists() and f"its checks were left, with their claims: {own_papers}.checks.sqlite" in deleted
    assert ccheck("show", id_, "--store", own_papers).out == asked.out, "the record outlives the store"


@pytest.mark.parametrize("how", ["flag", "variable", "dry run", "no store"])
def test_what_is_not_to_be_kept_is_not(own_papers, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("CCHECK_RECORD", "false")
    if how == "no store":
        own_papers = own_papers.with_name("nowhere")
    more = {"flag": ["--no-record"], "dry run": ["--dry-run", "--llm", "m"]}.get(how, [])
    assert "Kept as" not in query(own_papers, CLAIM, *more).out
    assert not list(own_papers.parent.glob("*.checks.sqlite*"))
    ran = ccheck("history", "--store", own_papers)
    assert (ran.code, ran.out) == (0, "") and "no check in" in ran.err
    assert "--store" in ran.err and "--store" in ccheck("show", "f" * 16).err


def test_a_correction_is_shown_with_the_check_and_becomes_a_pair(own_papers, tmp_path):
    query(own_papers, CLAIM)
    (one,) = ccheck("history", "--store", own_papers, "--json").objects
    id_, document = one["check"]["id"], one["evidence"][0]["doc_id"]
    said = ("--document", document, "--stance", "REFUTES", "--note", "read \x1b[31mthe table", "--user", "ann")
    ran = ccheck("correct", id_, *said, "--store", own_papers)
    assert ran.code == 0 and f"wrong stance: {document} (REFUTES)  ann" in ran.out and "\x1b" not in ran.out
    assert ccheck("correct", id_, "--verdict", "REFUTES", "--store", own_papers).code == 0
    shown = ccheck("show", id_, "--store", own_papers).out
    assert "wrong verdict (REFUTES)" in shown and "read [31mthe table" in shown
    report = tmp_path / "asked.html"
    assert "wrong verdict (REFUTES)" in query(own_papers, CLAIM, "--report", str(report)).out
    assert report.read_text(encoding="utf-8").count("Corrected:") == 2
    assert "[corrected: REFUTES]" in ccheck("history", "--corrected", "--store", own_papers).out
    ran = ccheck("history", "--pairs", "--store", own_papers)
    (tmp_path / "pairs.jsonl").write_text(ran.out)
    (row,) = read_rows(tmp_path / "pairs.jsonl").rows
    assert (row.claim, row.doc_id, row.label) == (CLAIM, document, "REFUTES") and len(row.text) > 200
    assert "1 pair\n" in ran.err and ran.err.count("of a verdict") == 1
    for more in ("coffee", "--label=REFUTES", "--before=2020-01-31", "--limit=20"):
        assert ccheck("history", "--pairs", more, "--store", own_papers).code == 2
    ccheck("index", "remove", document, "--yes", "--store", own_papers)
    assert "1 whose document is gone" in ccheck("history", "--pairs", "--store", own_papers).err
    assert ccheck("correct", id_, "--withdraw", "--document", document, *said[-2:], "--store", own_papers).code == 0
    assert ccheck("history", "--pairs", "--store", own_papers).out == ""
    measured = ccheck("evaluate", "--pairs", tmp_path / "pairs.jsonl", "--json")
    assert measured.objects[0]["pairs"] == measured.objects[0]["decided"]["refuted"] == 1


UNCLEAR = {"": "say one thing", "--verdict REFUTES --not-relevant": "say one thing"}
UNCLEAR |= {"--verdict REFUTES --document x": "takes none", "--stance REFUTES": "need --document"}
UNCLEAR |= {"--document madsen-202 --not-relevant": "did you mean 'madsen-2002'?"}


@pytest.mark.parametrize("said", UNCLEAR)
def test_a_correction_that_says_nothing_clear_is_refused(own_papers, said):
    query(own_papers, CLAIM)
    id_ = ccheck("history", "--store", own_papers).out.split()[0]
    ran = ccheck("correct", id_, *said.split(), "--store", own_papers)
    assert ran.code == 2 and UNCLEAR[said] in ran.err
    assert "correction" not in ccheck("history", "--store", own_papers).out


def test_a_check_that_is_not_there_and_one_that_failed(own_papers):
    for command in ("show", "correct"):
        ran = ccheck(command, "abc", *(["--verdict", "REFUTES"] if command == "correct" else []), "--store", own_papers)
        assert ran.code == 4 and "ccheck history lists" in ran.err
    assert query(own_papers, "...").code == 5
    line = ccheck("history", "--store", own_papers).out
    assert "failed" in line
    ran = ccheck("show", line.split()[0], "--store", own_papers)
    assert ran.code == 7 and "could not be checked: the claim has no word" in ran.err


def test_where_a_record_cannot_be_kept_the_answer_is_there_all_the_same(own_papers):
    record = own_papers.with_name("papers.checks.sqlite")
    record.write_text("this is no database" * 100)
    ran = query(own_papers, CLAIM)
    assert ran.code == 0 and "Verdict" in ran.out and "Kept as" not in ran.out
    assert "not recorded: the record" in ran.err and "--no-record" in ran.err
    assert record.read_text() == "this is no database" * 100
    told = ccheck("doctor", "--store", own_papers)
    assert told.code == 5 and re.search(f"failed +record +the record {record} is damaged", told.out)
    record.unlink()
    assert re.search(f"ok +record +{record}\n", ccheck("doctor", "--store", own_papers).out) and not record.exists()
    record.symlink_to(own_papers.with_name("elsewhere"))
    assert "not recorded" in query(own_papers, CLAIM).err and not own_papers.with_name("elsewhere").exists()
