"""TREC runs: what is written keeps its order in every tool, what is read is checked."""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from cli_runs import jsonl

from ccheck.core.errors import InvalidData
from ccheck.core.trec import result_lines
from ccheck.core.types import Claim, Document, Evidence, Hit, Result, Stance, Unit
from ccheck.lab.measure.runs import ranked, read_run, write_run


def lines(path: str = "a.run") -> list[list[str]]:
    return [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]


SCORES = {
    "ties": [0.5] * 300,
    "zeros": [0.0, -0.0, 0.0, 0.0],
    "apart in float64 only": [1 + i * 1e-12 for i in range(50, 0, -1)],
    "large": [1e30, 1e30, 16777217.0, 16777216.0],
    "tiny": [1e-300, 1e-310, 5e-324, 0.0],
    "negative": [-1.0, -1.0, -1.0000001, -1e20],
    "reciprocal ranks": [1 / (60 + rank) for rank in range(1, 200)],
    "random": sorted((round(random.Random(1).random(), 3) for _ in range(500)), reverse=True),
}


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_scores_fall_strictly_in_both_precisions(scores):
    # Ids against the order, so that a tie that a tool breaks by id would show.
    ids = [f"d{number:04}" for number in range(len(scores))]
    write_run("a.run", {"q": dict(zip(ids, scores, strict=True))}, "name")
    written = [line[4] for line in lines()]
    double, single = np.array(written, np.float64), np.array(written, np.float32)
    assert (np.diff(double) < 0).all() and (np.diff(single) < 0).all()
    assert [line[2] for line in lines()] == ids == list(read_run("a.run")["q"])
    # No further from the scores than the number of ties makes necessary.
    assert np.allclose(single, scores, rtol=1e-4, atol=1e-35)


def test_the_columns():
    write_run("a.run", {"q 1": {"b": 0.25, "a": 0.5}, "none": {}}, "my recipe")
    assert lines() == [
        ["q%201", "Q0", "a", "1", "0.5", "my%20recipe"],
        ["q%201", "Q0", "b", "2", "0.25", "my%20recipe"],
    ]
    write_run("a.run", {"q": {"a": 1.0}}, "")
    assert lines() == [["q", "Q0", "a", "1", "1.0", "ccheck"]]


def test_writing_and_reading_are_each_others_inverse():
    rng = random.Random(3)
    run = {f"q{i}": {f"d{j}": rng.random() for j in rng.sample(range(99), 30)} for i in range(20)}
    write_run("a.run", run, "x")
    read = read_run("a.run")
    assert {claim: list(scores) for claim, scores in read.items()} == {claim: ranked(run[claim]) for claim in run}
    assert all(read[claim] == pytest.approx(run[claim], rel=1e-6) for claim in run)
    Path("a.run.gz").write_bytes(gzip.compress(Path("a.run").read_bytes()))
    assert read_run("a.run.gz") == read


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e39])
def test_scores_that_no_run_can_hold(score):
    Path("a.run").write_text("as it was\n")
    with pytest.raises(InvalidData, match="claim q has a score that a run can't hold"):
        write_run("a.run", {"p": {"a": 1.0}, "q": {"a": score}}, "x")
    assert Path("a.run").read_text() == "as it was\n" and [path.name for path in Path.cwd().iterdir()] == ["a.run"]


def test_equal_scores_are_read_in_trec_evals_order():
    Path("a.run").write_text("q Q0 a 1 0.5 x\nq Q0 c 2 0.5 x\nq Q0 b 3 0.7 x\n")
    assert list(read_run("a.run")["q"]) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("q Q0 d 1 0.5", "line 2: 5 columns where a run has 6"),
        ("q Q0 d 1 high x", "line 2: the score 'high' is not a number"),
        ("q Q0 d 1 nan x", "line 2: the score 'nan' is not a number"),
        ("q Q0 a 2 0.1 x", "line 2: document a of claim q appears twice"),
        ("q Q0 \x00\udcff 2 0.1 x", "line 2: not valid UTF-8"),
    ],
)
def test_bad_lines_are_named(line, said):
    Path("a.run").write_text(f"q Q0 a 1 0.5 x\n{line}\n", errors="surrogateescape")
    with pytest.raises(InvalidData) as caught:
        read_run("a.run")
    assert said in str(caught.value)


# -- results as runs


def result(claim: str | None, *hits: tuple[str, float]) -> Result:
    evidence = [
        Evidence(Hit(rank, Document(document, "", ""), score)) for rank, (document, score) in enumerate(hits, 1)
    ]
    return Result(Claim("text", claim), tuple(evidence), None, "default", "local:x")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (result(None).to_dict(), "line 1: the claim has no id"),
        ({"recipe": "default", "metrics": {}}, "line 1: neither a line of a TREC run nor a result of ccheck query"),
        (result("1", ("a", 1.0), ("a", 0.5)).to_dict(), "line 1: claim 1 has a document twice"),
    ],
)
def test_answers_that_are_no_run(data, said):
    Path("answers.jsonl").write_text(json.dumps(data))
    with pytest.raises(InvalidData) as caught:
        read_run("answers.jsonl")
    assert said in str(caught.value)


def test_a_document_of_several_units_counts_once_by_its_best():
    document, other = Document("d", "", "The sea rises. Ice melts."), Document("e", "", "Ice.")
    units = [Unit("sentences", 0, 0, 14, "The sea rises."), Unit("sentences", 1, 15, 25, "Ice melts.")]
    stances = [Stance("SUPPORTS"), Stance("REFUTES"), Stance("NOT_ENOUGH_INFO")]
    hits = [Hit(1, document, 3.0, unit=units[0]), Hit(2, other, 2.0), Hit(3, document, 1.0, unit=units[1])]
    evidence = tuple(Evidence(hit, stance=stance) for hit, stance in zip(hits, stances, strict=True))
    result = Result(Claim("c", "1"), evidence, None, "r", "s")
    assert [line.split()[2] for line in result_lines(result)] == ["d", "e"]
    jsonl(Path("a.jsonl"), result.to_dict())
    assert read_run("a.jsonl") == {"1": {"d": 3.0, "e": 2.0}}
    assert [evidence.stance for evidence in result.by_document] == stances[:2]
