"""`ccheck query --resume`: a batch that ended early is gone on with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_runs import BM25, Ran, ccheck, jsonl
from html_page import parse

from ccheck.core.errors import ServerError
from ccheck.pipeline.checker import Checker

TEXTS = ["sea level", "ice sheets", "vaccines", "climate", "ocean", "temperature"]


@pytest.fixture
def papers(papers: Path, tmp_path: Path) -> Path:
    """A copy of the sample corpus's store, whose record of checks no other test has written to."""
    return shutil.copytree(papers, tmp_path / "papers")


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


def test_a_batch_that_ended_early_is_gone_on_with(batch: Any, asked: list[str], papers: Path, tmp_path: Path) -> None:
    whole = batch("--run", "whole.run", "--no-record")
    part = jsonl(tmp_path / "part.jsonl", *({"_id": f"c{n}", "text": TEXTS[n]} for n in (4, 1)))
    assert ccheck("query", "--claims", part, "--store", papers, *BM25).code == 0
    asked.clear()
    ran = batch("--resume", "--run", "resumed.run", "--report", "resumed.html")
    assert ran.code == 0 and asked == ["c0", "c2", "c3", "c5"] and same(ran, whole)
    assert "2 answers kept" in ran.err
    assert len(parse(Path("resumed.html").read_text()).all("section", class_="claim")) == 6
    assert Path("resumed.run").read_text() == Path("whole.run").read_text() != ""
    asked.clear()
    assert batch("--resume").code == 0 and asked == []
    assert batch("--resume", "-k", "3").code == 0 and len(asked) == 6, "other settings"
    assert batch().code == 0 and len(asked) == 12, "unless it is asked for"


def test_a_repeated_claim_stays_an_error(papers: Path, tmp_path: Path) -> None:
    claims = jsonl(tmp_path / "twice.jsonl", *[{"_id": "a", "text": "sea level"}] * 2)
    first = ccheck("query", "--claims", claims, "--store", papers, *BM25)
    again = ccheck("query", "--claims", claims, "--store", papers, *BM25, "--resume", "--run", "my.run")
    assert first.code == again.code == 7 and same(first, again)
    assert [bool(one["evidence"]) for one in again.objects] == [True, False]
    hits = [line.split()[2] for line in Path("my.run").read_text().splitlines()]
    assert len(hits) == len(set(hits))


def test_what_does_not_go_with_resume(batch: Any, papers: Path) -> None:
    for ran, said in (
        (batch("--resume", "--no-record"), "leave out --no-record"),
        (ccheck("query", "sea", "--resume", "--store", papers), "needs a file of claims"),
    ):
        assert (ran.code, ran.out) == (2, "") and said in ran.err


def test_a_record_that_can_t_be_read_is_an_error_of_resume(batch: Any, asked: list[str], papers: Path) -> None:
    """The answers in it may have been paid for."""
    assert batch().code == 0
    papers.with_name(f"{papers.name}.checks.sqlite").write_bytes(b"damaged " * 1000)
    asked.clear()
    ran = batch("--resume")
    assert (ran.code, ran.out, asked) == (5, "", []) and "is damaged" in ran.err
    assert batch().code == 0 and len(asked) == 6


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


def test_a_store_that_fails_midway(batch: Any, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from ccheck.search.local import LocalStore

    whole = batch("--no-record")
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
    asked.clear()
    resumed = batch("--resume")
    assert resumed.code == 0 and asked == ["c2", "c3"] and same(resumed, whole)
