"""`ccheck evaluate --ablation`, as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import ccheck

MINE = """
extends = "bm25"
[ablations.titles]
description = "titles alone"
retrievers.bm25.fields = {content = false, title = 1.0}
[ablations.shallow]
description = "two documents"
retrievers.bm25.depth = 2
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(MINE)
    return tmp_path / "mine.toml"


def test_ablations_side_by_side_with_paired_tests(papers, files, mine, tmp_path):
    arguments = ("evaluate", mine, "--ablation", "titles,shallow", *files.options, "--store", papers, "--metric", "R@5")
    ran = ccheck(*arguments, "--json", "--run", tmp_path / "runs")
    assert ran.code == 0, ran.err
    whole, _, shallow = ran.objects
    assert [one["recipe"] for one in ran.objects] == ["mine", "mine:titles", "mine:shallow"]
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
    assert "against mine" in shown.out


def test_all_ablations_and_wrong_ones(papers, files, mine):
    data = (*files.options, "--store", papers, "--quiet")
    assert len(ccheck("evaluate", mine, "--ablation", "all", *data, "--json").objects) == 3
    wrong = ccheck("evaluate", mine, "--ablation", "title", *data)
    assert wrong.code == 4 and "did you mean 'titles'?" in wrong.err
    assert ccheck("evaluate", mine, "bm25", "--ablation", "titles", *data).code == 2
    assert ccheck("evaluate", "bm25", "--ablation", "all", *data).code == 2
