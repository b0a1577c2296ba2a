"""`ccheck recipes tables` and `ccheck evaluate --ablation`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import ccheck

from ccheck.cli import recipe_pages

MINE = """
extends = "bm25"
[ablations.titles]
description = "titles alone"
retrievers.bm25.fields = {content = false, title = 1.0}
[ablations.shallow]
description = "two documents"
retrievers.bm25.depth = 2
[tables.2]
title = "Fields"
on = "claims"
split = "test"
metrics = ["nDCG@10", "R@5"]
[tables.2.rows]
"Titles" = {ablation = "titles", published = [0.31, "-"], note = "a note"}
"All" = {published = [0.52, 0.41]}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(MINE)
    return tmp_path / "mine.toml"


def test_ablations_side_by_side_with_paired_tests(papers, files, mine, tmp_path):
    arguments = ("evaluate", mine, "--ablation", "titles,shallow", *files.options, "--store", papers, "--metric", "R@5")
    ran = ccheck(*arguments, "--json", "--run", tmp_path / "runs")
    assert ran.code == 0, ran.err
    whole, titles, shallow = ran.objects
    assert [one["recipe"] for one in ran.objects] == ["mine", "mine:titles", "mine:shallow"]
    assert titles["published"][0]["row"] == "Titles" and whole["published"][0]["row"] == "All"
    assert "differences" not in whole and shallow["baseline"] == "mine"
    told = shallow["differences"]["R@5"]
    assert (
        told["difference"] == pytest.approx(shallow["metrics"]["R@5"] - whole["metrics"]["R@5"])
        and told["claims"] == 12
    )
    assert told["difference"] < 0 and 0 < told["p"] <= told["p_holm"] <= 1
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == [
        "mine-shallow.run", "mine-titles.run", "mine.run",
    ]  # fmt: skip
    # The same test as ccheck compare makes of the runs.
    compared = ccheck(
        *("compare", tmp_path / "runs" / "mine.run", tmp_path / "runs" / "mine-shallow.run"),
        *("--qrels", files.qrels, "--metric", "R@5", "--json"),
    ).objects[1]["differences"]["R@5"]
    assert {key: compared[key] for key in ("difference", "p", "wins", "losses")} == {
        key: told[key] for key in ("difference", "p", "wins", "losses")
    }
    shown = ccheck(*arguments)
    assert "against mine" in shown.out and "published: table 2, All (claims, test)" in shown.out


def test_all_ablations_and_wrong_ones(papers, files, mine):
    data = (*files.options, "--store", papers, "--quiet")
    assert len(ccheck("evaluate", mine, "--ablation", "all", *data, "--json").objects) == 3
    wrong = ccheck("evaluate", mine, "--ablation", "title", *data)
    assert wrong.code == 4 and "did you mean 'titles'?" in wrong.err
    assert ccheck("evaluate", mine, "bm25", "--ablation", "titles", *data).code == 2
    assert ccheck("evaluate", "bm25", "--ablation", "all", *data).code == 2


def test_the_tables_with_what_was_measured_below_what_was_published(mine, tmp_path):
    measured = tmp_path / "measured.jsonl"
    one = {"recipe": "mine:titles", "metrics": {"R@5": 0.125, "RR@5": 1.0}, "claims": 12, "replaced": {"big": "small"}}
    measured.write_text(json.dumps(one) + "\n")
    ran = ccheck("recipes", "tables", mine, "--measured", measured, "--json")
    assert ran.code == 0, ran.err
    titles, whole = ran.objects
    assert (titles["table"], titles["split"], titles["published"]) == ("2", "test", {"nDCG@10": 0.31})
    assert titles["measured"] == [{"on": "12 claims; small for big", "metrics": {"R@5": 0.125}, "intervals": {}}]
    assert whole["measured"] == [] and whole["command"].startswith("ccheck evaluate mine --claims CLAIMS")
    shown = ccheck("recipes", "tables", mine, "--measured", measured).out
    for said in (
        "Table 2: Fields (claims, test)",
        "0.31",
        "0.125",
        "12 claims; small for big",
        "a note",
        "titles alone",
    ):
        assert said in shown
    assert ccheck("recipes", "tables", mine, "--table", "9").code == 4
    (tmp_path / "wrong.jsonl").write_text("[1]\n")
    assert ccheck("recipes", "tables", mine, "--measured", tmp_path / "wrong.jsonl").code == 5


def test_the_papers_tables():
    said = ccheck("recipes", "tables", "climatecheck-hybrid", "--json").objects
    figures = {(one["table"], one["row"]): one for one in said}
    assert figures["2", "B+S+D+C+L"]["published"]["ClimateCheck"] == 0.4386
    seven = figures["7", "SPLADE + BM25 + Dense"]
    assert seven["published"]["R@600"] == 0.9583 and seven["split"] == "not stated", "not of the test claims of table 6"


def test_the_page_begins_with_what_each_stage_is_worth():
    page = recipe_pages.page()
    head = page[: page.index("## averitec-questions")]
    assert "- [late](#late): The default recipe" in head
    # .2771 of the paper's table 6 for the three retrievers, .4386 for all.
    assert "| BM25 + SPLADE + Dense | .277 | -0.161 |" in head
    assert "| **BM25 + SPLADE + Dense + CE + LLM** | .439 |  |" in head
    # A row without figures names its models: of retrieval no judge's, of pairs of claim and text the judge's alone.
    assert "\n- naver/splade-v3: SPLADE, BM25 + SPLADE\n" in page
    assert "\n- gpt-4.1: Few-shots-hybrid, Zero-shot-hybrid, Zero-shot-two-step, Zero-shot-one-step\n" in page
    assert "| ClimateSense | `climatecheck-2026` | .466 | 1.183 |" in page, "as published, to the last digit"
    assert "and more of this kind" in page and "hierarchical-captions-e5" in page
