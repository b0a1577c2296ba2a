"""The measures of Context24, as the task's scripts compute them."""

import json
from pathlib import Path

import pytest
from cli_runs import jsonl

from ccheck.core.errors import InvalidData, NotFound
from ccheck.lab.measure.context24 import figure_scores, passage_scores, read_gold

ELEMENTS = {
    "moss": ["FIG 1", "FIG 1A", "FIG 1B", "FIG 2", "FIG 10", "TAB 1"],
    "slugs": [*(f"FIG {n}" for n in range(1, 9)), "FIG 3A", "FIG 3B", "TAB 1", "TAB 2"],
}
FIGURES = [  # claim, article, gold elements, predicted elements, nDCG@5 and @10
    ("a", "moss", "FIG 1A", "FIG 1,FIG 1B,FIG 1A", 0.7601875334318685, 0.7601875334318685),
    ("b", "moss", "FIG 2,TAB 1", "TAB 1,FIG 10,FIG 2,FIG 1", 0.9197207891481876, 0.9197207891481876),
    ("c", "moss", "FIG 1", "FIG 10,FIG 1B,FIG 1", 0.7386919056633241, 0.7386919056633241),
    ("d", "moss", "", "FIG 1", None, None),
    ("e", "slugs", "FIG 3A,FIG 3B,FIG 4", "FIG 3,FIG 4,FIG 1,FIG 3B,FIG 2,TAB 1,FIG 3A", 0.6655702971450115,
     0.8076398854020674),
    ("f", "slugs", "FIG 9", "FIG 1,FIG 9", 0.6309297535714575, 0.6309297535714575),
    ("g", "slugs", "TAB 2", "TAB 1,TAB 1,FIG 2,FIG 3,FIG 4,FIG 5,TAB 2", 0.0, 0.3333333333333333),
    ("h", "slugs", "FIG 8", "FIG 1,FIG 2,FIG 3,FIG 4,FIG 5,FIG 6,FIG 7,TAB 1,TAB 2,FIG 3A,FIG 8", 0.0, 0.0),
]  # fmt: skip
GOLD_PASSAGES = {
    "a": ["Twelve snails were kept at 4 °C for two weeks.", "Shell lengths were measured with calipers."],
    "b": ["We counted moss plants on 30 walls in Bern, and twice in winter."],
    "c": [],
    "d": ["Slugs were fed nightly with lettuce leaves; controls were not fed."],
    "e": ["Nothing."],
}
KEPT = "Snails were kept at 4 °C."
PASSAGES = {
    "a": [KEPT, "The shells were measured by two observers using calipers.", KEPT],
    "b": ["Moss plants were counted on walls.", "It was winter in Bern."],
    "c": ["Anything at all."],
    "d": ["Controls were not fed; slugs were fed lettuce."],
    "z": ["Not a claim of the gold file."],
}


def test_the_figures_are_those_of_the_tasks_own_scripts() -> None:
    """`eval/task1_eval.py` and `eval/task2_eval.py` of github.com/oasisresearchlab/context24 (commit c934072) with
    the data above: predictions as CSV, a folder with an empty `FIG 1.png` for each element, gold as JSON."""
    scores = figure_scores(
        {claim: predicted.split(",") for claim, _, _, predicted, _, _ in FIGURES},
        {claim: gold.split(",") if gold else [] for claim, _, gold, _, _, _ in FIGURES},
        {claim: ELEMENTS[article] for claim, article, *_ in FIGURES},
    )
    wanted = {claim: (at_5, at_10) for claim, *_, at_5, at_10 in FIGURES if at_5 is not None}
    assert {claim: (one["nDCG@5"], one["nDCG@10"]) for claim, one in scores.items()} == wanted
    six = {"x": ELEMENTS["slugs"][3:9]}
    assert figure_scores(six, six, six)["x"]["nDCG@5"] == 1, "of the ideal ranking, too, the first 5 count"
    assert sum(one["nDCG@5"] for one in scores.values()) / len(scores) == 0.5307286112799785
    assert passage_scores(PASSAGES, GOLD_PASSAGES) == {
        "rouge1": 0.33994152046783627,
        "rouge2": 0.19978722258134024,
        "rougeL": 0.234093567251462,
    }


def test_the_tasks_files_are_read(tmp_path: Path) -> None:
    rows = [{"id": "a1", "claim": "x", "citekey": "k", "findings": ["FIG 1D"]}]
    (tmp_path / "task1.json").write_text(json.dumps(rows))
    [one] = read_gold(tmp_path / "task1.json")
    assert (one.id, one.article, one.elements) == ("a1", "k", ("FIG 1D",))
    own = jsonl(tmp_path / "own.jsonl", {"claim_id": "b", "passages": [{"text": "was eaten"}]})
    assert read_gold(own)[0].passages == ("was eaten",)
    with pytest.raises(InvalidData, match="line 1: claim_id is missing"):
        read_gold(jsonl(tmp_path / "bad.json", "[{}]"))
    with pytest.raises(NotFound):
        read_gold(tmp_path / "none.json")
