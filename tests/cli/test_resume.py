"""`ccheck query --resume`: a batch that ended early is gone on with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_runs import BM25, Ran, ccheck, command, jsonl
from html_page import parse

from ccheck.core.errors import ServerError
from ccheck.pipeline.checker import Checker

TEXTS = ["sea level", "ice sheets", "vaccines", "climate", "ocean", "temperature"]


@pytest.fixture
def batch(papers: Path, tmp_path: Path) -> Any:
    claims = jsonl(tmp_path / "claims.jsonl", *({"_id": f"c{n}", "text": text} for n, text in enumerate(TEXTS)))
    return lambda *more, **run: ccheck("query", "--claims", claims, "--store", papers, *BM25, *more, **run)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The claims that were asked about."""
    seen: list[str] = []
    check_many = Checker.check_many

    def noted(self: Checker, claims: Any, **options: Any) -> Any:
        def each() -> Any:
            for claim in claims:
                seen.append(claim.id)
                yield claim

        return check_many(self, each(), **options)

    monkeypatch.setattr(Checker, "check_many", noted)
    return seen


def same(one: Ran, other: Ran) -> bool:
    """The same answers, but for times and last bits: a product's can depend on how many rows are judged together."""
    return told(one) == told(other)


def told(ran: Ran) -> list[Any]:
    return [
        (
            *(a["claim"], a["settings"], a.get("error"), a["verdict"] and a["verdict"]["label"], a["warnings"]),
            *((piece["doc_id"], f"{piece['score']:.4f}", piece["stance"]["label"]) for piece in a["evidence"]),
        )
        for a in ran.objects
    ]


def test_a_batch_that_ended_early_is_gone_on_with(batch: Any, asked: list[str], tmp_path: Path) -> None:
    whole = batch("--run", "whole.run")
    lines = whole.out.splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_text("".join(lines[:2]) + lines[2][:50])  # killed while it wrote
    asked.clear()
    ran = batch("--resume", "part.jsonl", "--run", "resumed.run", "--report", "resumed.html")
    assert ran.code == 0 and asked == ["c2", "c3", "c4", "c5"] and same(ran, whole)
    assert ran.out.splitlines(keepends=True)[:2] == lines[:2]
    assert "2 answers kept from part.jsonl" in ran.err
    assert len(parse(Path("resumed.html").read_text()).all("section", class_="claim")) == 6
    assert Path("resumed.run").read_text() == Path("whole.run").read_text() != ""


def test_claims_without_an_answer_in_the_middle_are_asked(batch: Any, asked: list[str], tmp_path: Path) -> None:
    whole = batch()
    lines = [json.loads(line) for line in whole.out.splitlines()]
    jsonl(tmp_path / "part.jsonl", lines[5], lines[1] | {"error": "it was gone", "evidence": []}, lines[0], lines[3])
    asked.clear()
    ran = batch("--resume", "part.jsonl")
    assert ran.code == 0 and asked == ["c1", "c2", "c4"] and same(ran, whole)


@pytest.mark.parametrize("failed", ["verdict", "stance"])
def test_what_could_not_be_judged_is_asked_again(batch: Any, asked: list[str], tmp_path: Path, failed: str) -> None:
    lines = batch().objects
    judged = {"label": "SUPPORTS", "method": "m", "error": None}
    for number, line in enumerate(lines):
        line["verdict"] = judged | {"error": "no time" if failed == "verdict" and number == 2 else None}
        line["evidence"][0]["stance"] = judged | {"error": "no time" if failed == "stance" and number == 2 else None}
    jsonl(tmp_path / "part.jsonl", *lines)
    asked.clear()
    assert batch("--resume", "part.jsonl").code == 0 and asked == ["c2"]


def test_a_repeated_claim_stays_an_error(papers: Path, tmp_path: Path) -> None:
    claims = jsonl(tmp_path / "twice.jsonl", *[{"_id": "a", "text": "sea level"}] * 2)
    first = ccheck("query", "--claims", claims, "--store", papers, *BM25)
    (tmp_path / "first.jsonl").write_text(first.out)
    again = ccheck("query", "--claims", claims, "--store", papers, *BM25, "--resume", "first.jsonl", "--run", "my.run")
    assert first.code == again.code == 7 and same(first, again)
    assert [bool(one["evidence"]) for one in again.objects] == [True, False]
    hits = [line.split()[2] for line in Path("my.run").read_text().splitlines()]
    assert len(hits) == len(set(hits))


def test_files_that_are_something_else_are_refused(batch: Any, tmp_path: Path) -> None:
    good = batch("-k", "3").objects
    other = {**good[1], "claim": {"id": "c9", "text": "another"}}
    for lines, said, more in (
        (["no json", good[0]], "part.jsonl, line 1 is not JSON", ()),
        ([good[0], {"_id": "c1", "text": "a claim"}], "part.jsonl, line 2 is not an answer", ()),
        ([good[0] | {"evidence": [{"rank": 1}]}], "line 1 is not an answer", ()),
        ([good[0] | {"claim": "c0"}], "line 1 is not an answer", ()),
        ([good[0], other], "line 2 answers the claim 'another' (id c9), which is not among these claims", ()),
        ([good[0]], "line 1 was answered with a different recipe, model, store, filter or number", ("-k", "4")),
        ([good[0]], "line 1 was answered with a different", ("-k", "3", "--filter", "year>1900")),
        ([{**good[0], "settings": None}], "line 1 was answered with a different", ()),
    ):
        jsonl(tmp_path / "part.jsonl", *lines)
        ran = batch("--resume", "part.jsonl", *(more or ("-k", "3")))
        assert (ran.code, ran.out) == (5, "") and said in ran.err, ran.err


def test_what_does_not_go_with_resume(batch: Any, papers: Path, tmp_path: Path) -> None:
    for ran, code, said in (
        (batch("--resume", "nothing.jsonl"), 4, "there is no file nothing.jsonl"),
        (batch("--resume", tmp_path), 2, "can't be read"),
        (ccheck("query", "sea", "--resume", "x.jsonl", "--store", papers), 2, "needs a file of claims"),
    ):
        assert (ran.code, ran.out) == (code, "") and said in ran.err


def test_the_file_that_is_read_is_not_the_one_that_is_written(papers: Path, tmp_path: Path) -> None:
    claims = jsonl(tmp_path / "claims.jsonl", {"text": "sea"})
    asked = ("query", "--claims", claims, "--resume", "answers.jsonl", "--store", papers, *BM25)
    with (tmp_path / "answers.jsonl").open("ab") as out:
        done = subprocess.run(command(*asked), stdout=out, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 2 and b"Write it to another file" in done.stderr


# -- servers


def test_a_server_that_fails_before_the_first_answer(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccheck.search.local import LocalStore

    def gone(*_: Any, **__: Any) -> Any:
        raise ServerError("it is gone")

    monkeypatch.setattr(LocalStore, "rank", gone)
    ran = batch()
    assert (ran.code, ran.out) == (6, "") and "it is gone" in ran.err
    monkeypatch.setattr(LocalStore, "rank", lambda _, search: [ServerError("too busy")] * len(search.queries))
    ran = batch()
    assert ran.code == 6 and [one["error"] for one in ran.objects] == ["too busy"] * 6
    assert "6 of 6 claims could not be checked" in ran.err


def test_a_store_that_fails_midway(
    batch: Any, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ccheck.search.local import LocalStore

    whole = batch()
    monkeypatch.setattr("ccheck.pipeline.checker.BATCH", 2)
    rank, calls = LocalStore.rank, iter(range(10))

    def at_times(self: LocalStore, search: Any) -> Any:
        if next(calls) == 1:
            raise ServerError("it is gone")
        return rank(self, search)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "rank", at_times)
        ran = batch()
    assert ran.code == 7 and "2 of 6 claims could not be checked" in ran.err
    assert [one.get("error") for one in ran.objects] == [None, None, "it is gone", "it is gone", None, None]
    (tmp_path / "part.jsonl").write_text(ran.out)
    asked.clear()
    resumed = batch("--resume", "part.jsonl")
    assert resumed.code == 0 and asked == ["c2", "c3"] and same(resumed, whole)
