"""What makes ccheck handy in Python."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ccheck
from ccheck.core.errors import UsageError


def test_dicts_frames_strings_and_filters(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "id": [2, 3],
            "title": ["Old", "New"],
            "abstract": ["Sea level rose.", "Sea level rises."],
            "year": [1990, 2015],
        }
    )
    day = datetime.date(2020, 1, 2)
    record = {"_id": "1", "text": "Ice <melts>.", "date": day, "note": float("nan"), "read": {day: 3}}
    settings = ccheck.open(tmp_path / "store", rerank="none").settings
    with ccheck.Checker(settings) as checker:
        assert checker.ingest(record, frame, dense=False).added == 3
        results = list(checker.check_many(["sea level", ccheck.Claim("ice")], filters=["year>=2010"]))
        assert [[piece.document.id for piece in result.evidence] for result in results] == [["3"], []]
        assert checker.store.get(["1"])["1"].published == "2020-01-02"
        alone = [checker.check("sea level", filters=one) for one in ("year>=2010", ccheck.Filter("year", ">=", "2010"))]
        assert [[piece.document.id for piece in result.evidence] for result in alone] == [["3"], ["3"]]
        by_value = checker.check("sea level", filters=[ccheck.Filter("year", "<", "2000")])
        assert [piece.document.id for piece in by_value.evidence] == ["2"]
        assert repr(by_value).startswith("<Result 'sea level': verdict") and "\n" not in repr(by_value)
        with pytest.raises(ccheck.CcheckError, match="can't ingest int"):
            checker.ingest(3)


@pytest.mark.parametrize("wrong", ["abc", ccheck.Claim("abc"), {"claim": "abc"}, None, 3, [None], [3]])
def test_what_is_no_claim_is_refused_with_what_to_do(tmp_path: Path, wrong: object) -> None:
    with ccheck.open(str(tmp_path / "store"), rerank="none", recipe="bm25") as checker:
        checker.ingest({"_id": "1", "text": "abc"}, dense=False)
        with pytest.raises(UsageError, match="claim"):
            list(checker.check_many(wrong))  # type: ignore[arg-type]
        if not isinstance(wrong, str | ccheck.Claim):
            with pytest.raises(UsageError, match="a claim is a text"):
                checker.check(wrong)  # type: ignore[arg-type]


def test_a_data_frame_is_not_taken_for_claims(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with ccheck.open(str(tmp_path / "store"), rerank="none", recipe="bm25") as checker:
        checker.ingest({"_id": "1", "text": "abc"}, dense=False)
        frame = pandas.DataFrame({"claim": ["abc"]})
        with pytest.raises(UsageError, match="Name its column"):
            list(checker.check_many(frame))
        assert [result.claim.text for result in checker.check_many(frame["claim"])] == ["abc"]


PAIR = [{"_id": "a", "text": "Tea is hot.", "year": 2001}, {"_id": "b", "text": "Tea is very, very hot."}]


def refuting(claim: ccheck.Claim, evidence: Sequence[ccheck.Evidence]) -> tuple[list[ccheck.Stance], ccheck.Verdict]:
    return [ccheck.Stance("REFUTES", 0.9) for _ in evidence], ccheck.Verdict("REFUTES", 0.9)


def longest(claim: str, passages: Sequence[str]) -> list[float]:
    return [float(len(one)) for one in passages]


def failing(*given: object) -> Any:
    raise RuntimeError("no electricity")


def test_a_judge_and_a_reranker_of_ones_own_are_named_in_the_result(tmp_path: Path) -> None:
    with ccheck.open(tmp_path / "store", recipe="bm25", judge=refuting, reranker=longest) as checker:
        checker.ingest(PAIR, dense=False)
        result = checker.check("tea is hot")
    assert [one.document.id for one in result.evidence] == ["b", "a"]
    assert result.evidence[0].hit.scores["longest"] == len("Tea is very, very hot.")
    assert result.verdict is not None and result.verdict.method == "refuting"
    assert result.to_dict()["scored_by"] == {"bm25": "retriever", "longest": "reranker"}


def test_what_they_raise_is_said_and_never_a_label_or_a_rank(tmp_path: Path) -> None:
    def short(claim: str, passages: Sequence[str]) -> list[float]:
        return [1.0]

    for reranker, said in ((failing, "RuntimeError: no electricity"), (short, "1 scores for 2 passages")):
        with ccheck.open(tmp_path / "store", recipe="bm25", judge=failing, reranker=reranker) as checker:
            checker.ingest(PAIR, dense=False)
            result = checker.check("tea is hot")
        assert [one.document.id for one in result.evidence] == ["a", "b"] and said in result.warnings[0]
        assert result.verdict is not None and (result.verdict.label, result.verdict.method) == (None, "failing")


def test_a_result_as_a_data_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    with ccheck.open(tmp_path / "store", recipe="bm25", rerank="none") as checker:
        checker.ingest(PAIR, dense=False)
        result = checker.check("tea is hot")
    frame = result.to_frame()
    assert list(frame["doc_id"]) == [one.document.id for one in result.evidence] == ["a", "b"]
    assert frame["metadata.year"][0] == 2001 and frame["scores.bm25"][0] == result.evidence[0].hit.score
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ccheck.CcheckError, match="pip install pandas"):
        result.to_frame()
