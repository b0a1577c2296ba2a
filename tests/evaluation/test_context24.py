"""The measures of Context24, by hand as the task's scripts compute them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ccheck.errors import InvalidData, NotFound
from ccheck.evaluation.context24 import figure_scores, gain, ndcg, passage_scores, read_captions, read_gold


def test_partial_credit_and_the_ideal_of_the_papers_elements() -> None:
    assert [gain(one, ["FIG 1D"]) for one in ("FIG 1D", "FIG 1", "FIG 1DX", "FIG 2")] == [1, 0.5, 0.5, 0]
    elements = ["FIG 1", "FIG 1A", "FIG 1D", "FIG 2", "TAB 1"]
    ideal = 1 + 0.5 / math.log2(3)
    assert ndcg(["FIG 1D", "FIG 1"], ["FIG 1D"], elements, 5) == pytest.approx(1)
    assert ndcg(["FIG 1", "FIG 2", "FIG 1D"], ["FIG 1D"], elements, 5) == pytest.approx((0.5 + 1 / 2) / ideal)
    assert ndcg(["FIG 2", "FIG 1D"], ["FIG 1D"], elements, 1) == 0
    # A gold element that the paper's list lacks is in the ideal all the same.
    assert ndcg(["FIG 9"], ["FIG 9"], ["FIG 2"], 5) == 1


def test_claims_without_gold_do_not_count() -> None:
    scores = figure_scores({"1": ["a", "b"], "2": ["a"]}, {"1": ["b"], "2": []}, {"1": ["a", "b"], "2": ["a"]})
    assert scores == {
        "1": {"nDCG@5": pytest.approx(1 / math.log2(3)), "nDCG@10": pytest.approx(1 / math.log2(3)), "hit@1": 0}
    }


def test_rouge_takes_the_best_f_of_each_prediction() -> None:
    gold = {"1": ["moss was eaten at night", "snails grew"], "2": ["nothing was found"]}
    scores = passage_scores({"1": ["snails grew", "moss was seen"]}, gold)
    # "snails grew": 1; "moss was seen" shares 2 of 3 and 2 of 5 words with the first: F = .5. Claim 2 has none.
    assert scores["rouge1"] == pytest.approx((1 + 0.5) / 2 / 2)
    # One of 2 and of 4 pairs of words: F = 1/3.
    assert scores["rouge2"] == pytest.approx((1 + 1 / 3) / 2 / 2)
    twice = passage_scores({"1": ["snails grew", "snails grew"]}, {"1": gold["1"]})
    assert twice["rouge1"] == pytest.approx(0.5)


def test_the_tasks_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "task1.json").write_text(
        json.dumps([{"id": "a1", "claim": "x", "citekey": "k", "findings": ["FIG 1D"]}])
    )
    [one] = read_gold(tmp_path / "task1.json")
    assert (one.id, one.article, one.elements) == ("a1", "k", ("FIG 1D",))
    (tmp_path / "own.jsonl").write_text('{"claim_id": "b", "passages": [{"text": "was eaten"}]}\n')
    assert read_gold(tmp_path / "own.jsonl")[0].passages == ("was eaten",)
    (tmp_path / "k.json").write_text(
        json.dumps({"CAPTION FIG1.png": "'Figure 1: Moss\\n\\n'", "CAPTION TAB 2.png": "'T'"})
    )
    assert read_captions(tmp_path, "k") == {"FIG 1": "Figure 1: Moss", "TAB 2": "T"}
    (tmp_path / "bad.json").write_text("[{}]")
    with pytest.raises(InvalidData, match="row 1: claim_id is missing"):
        read_gold(tmp_path / "bad.json")
    with pytest.raises(NotFound):
        read_gold(tmp_path / "none.json")
