import json
import math
from pathlib import Path

import pytest
from cli_runs import ccheck, jsonl, works

from ccheck.lab.measure.datasets import write_run


@pytest.fixture(autouse=True)
def files() -> None:
    """Twenty claims; the run `good` has the relevant document first, `bad` second, but for one of each."""
    first, second = {"r": 2.0, "x": 1.0}, {"x": 2.0, "r": 1.0}
    write_run("bad.run", {f"q{i}": second if i else first for i in range(20)}, "bad")
    write_run("good.run", {f"q{i}": first if i else second for i in range(20)}, "good")
    Path("qrels").write_text("".join(f"q{i} 0 r 1\n" for i in range(20)))
    jsonl(Path("claims.jsonl"), *({"_id": f"q{i}", "text": f"Claim [bold]{i}\x1b[2J"} for i in range(20)))


def test_for_a_person():
    ran = ccheck("compare", "bad.run", "good.run", "--qrels", "qrels", "--metric", "RR@10", "--claims", "claims.jsonl")
    assert ran.code == 0 and ran.err == "" and "\x1b" not in ran.out
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["bad", "0.5250", "[0.500,", "0.575]", "20"] in lines
    assert ["good", "0.9750", "[0.925,", "1.000]", "20"] in lines
    row = next(line for line in lines if line[:2] == ["good", "RR@10"])
    assert row[2] == "+0.4500" and row[5:7] == ["≤0.0002", "≤0.0002"] and row[7:] == ["19", "1", "0"]
    assert "good: the 5 claims that changed most in RR@10" in ran.out
    assert "  -0.5000  1.0000 -> 0.5000  q0  Claim [bold]0[2J\n" in ran.out
    assert "  +0.5000  0.5000 -> 1.0000  q1  Claim [bold]1[2J\n" in ran.out


def test_as_json(monkeypatch):
    ran = ccheck(
        "compare", "bad.run", "good.run", "--qrels", "qrels", "--json", "--changes", "1", "--claims", "claims.jsonl"
    )
    assert ran.code == 0 and ran.err == ""
    bad, good = ran.objects
    assert bad["run"] == "bad" and bad["baseline"] is None and bad["differences"] == {} and bad["claims"] == 20
    assert list(bad["metrics"]) == ["nDCG@10", "R@100"] and good["baseline"] == "bad"
    change = good["differences"]["nDCG@10"]
    assert (change["wins"], change["losses"], change["ties"], change["claims"]) == (19, 1, 0, 20)
    assert change["interval"][0] < change["difference"] < change["interval"][1] and change["p"] < 0.001
    assert change["p_holm"] == pytest.approx(2 * change["p"])
    (claim,) = change["changes"]
    assert claim["claim"] == {"id": "q0", "text": "Claim [bold]0\x1b[2J"} and claim["baseline"] == 1.0
    assert good["differences"]["R@100"]["p"] == 1.0 and good["differences"]["R@100"]["changes"] == []
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    assert [key for key in {**good, **change} if f"`{key}`" not in page and f'"{key}"' not in page] == []
    # JSON has no NaN.
    monkeypatch.setattr("ccheck.lab.measure.compare.bootstrap", lambda values, **options: (math.nan, math.inf))
    ran = works("compare", "bad.run", "good.run", "--qrels", "qrels", "--json")
    _, good = (json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in ran.out.splitlines())
    assert good["differences"]["nDCG@10"]["interval"] == [None, None]


def test_a_run_of_a_part_of_the_claims():
    write_run("part.run", {f"q{i}": {"r": 1.0} for i in range(5)} | {"other": {"r": 1.0}}, "part")
    options = ("--qrels", "qrels", "--metric", "RR@10", "--json")
    whole = ccheck("compare", "bad.run", "part.run", *options)
    quiet = ccheck("compare", "bad.run", "part.run", *options, "--quiet").err
    assert "15 of 20 judged claims" in quiet and "--common" not in quiet
    assert [one["metrics"]["RR@10"] for one in whole.objects] == [0.525, 0.25]
    assert "part: 15 of 20 judged claims not in the run, counted as 0" in whole.err and "--common" in whole.err
    common = ccheck("compare", "bad.run", "part.run", "--common", *options)
    assert [(one["metrics"]["RR@10"], one["claims"]) for one in common.objects] == [(0.6, 5), (1.0, 5)]
    difference = common.objects[1]["differences"]["RR@10"]
    assert (difference["claims"], difference["wins"], difference["ties"]) == (5, 4, 1)
    said, unjudged, few = common.err.replace("ccheck: ", "").splitlines()
    assert said == "compared over the 5 of 20 judged claims that are in all runs"
    assert "part: 1 of 6 claims without" in unjudged and few == "part: at most 1 document a claim, too few for RR@10"
    write_run("other.run", {"other": {"r": 1.0}}, "other")
    none = ccheck("compare", "bad.run", "other.run", "--common", *options)
    assert none.code == 5 and "no claim that has judgements is in all runs" in none.err
    every = ccheck("compare", "bad.run", "good.run", "--common", *options)
    assert every.err == "" and every.out == ccheck("compare", "bad.run", "good.run", *options).out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["bad.run"], 2, "at least two runs"),
        (["bad.run", "bad.run"], 2, "the same run is given twice"),
        (["bad.run", "none.run"], 4, "there is no file none.run"),
        (["bad.run", "qrels"], 5, "qrels can't be used: line 1: 4 columns where a run has 6"),
        (["bad.run", "good.run", "--claims", "bad.run"], 5, "line 1: 6 columns without a header"),
    ],
)
def test_what_is_wrong_is_said(arguments, code, said):
    ran = ccheck("compare", *arguments, "--qrels", "qrels")
    assert (ran.code, ran.out) == (code, "") and said in ran.err
