"""Ablations and published tables of recipe files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.published import published, row_command
from ccheck.core.recipe import load_recipe, recipe_names

MINE = """
extends = "default"
[ablations.no-dense]
description = "BM25 alone"
retrievers.dense = false
[ablations.k-6]
description = "k = 6"
fusion.k = 6
[ablations.unshown]
description = "no examples"
verdict.examples = false
[tables.1]
title = "All"
on = "claims"
split = "test"
metrics = ["RR@5", "R@100"]
[tables.1.rows]
"BM25" = {ablation = "no-dense", published = [0.5, "-"]}
"Both" = {published = [0.6, 0.9]}
"Baseline" = {command = "none", published = [0.1, 0.2]}
"Other" = {recipe = "late", published = [0.7, 0.8]}
"Trained" = {command = "ccheck train reranker", published = [0.7, 0.8]}
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    return str(file)


def test_an_ablation_is_laid_over_the_recipe(mine):
    whole, one, both = (load_recipe(name) for name in (mine, f"{mine}:no-dense", f"{mine}:no-dense+k-6"))
    assert set(whole.retrievers) == {"bm25", "dense"} and set(one.retrievers) == {"bm25"}
    assert (whole.name, one.name, both.name) == ("mine", "mine:no-dense", "mine:no-dense+k-6")
    assert (one.fusion.k, both.fusion.k, set(both.retrievers)) == (20, 6, {"bm25"})
    assert load_recipe(f"{mine}:unshown").verdict.examples is None  # false also where there was nothing to take out


def test_a_recipe_can_extend_an_ablation(mine, tmp_path):
    (tmp_path / "other.toml").write_text('extends = "mine.toml:no-dense"\n[fusion]\nk = 3\n')
    other = load_recipe(str(tmp_path / "other.toml"))
    assert (other.name, other.ablation, set(other.retrievers), other.fusion.k) == ("other", None, {"bm25"}, 3)
    assert other.tables == {}, "another pipeline than the one that was published"


def test_stand_ins_are_for_the_models_of_the_ablation():
    base = load_recipe("checkthat-4b:dense-50+mxbai", {"mixedbread-ai/mxbai-rerank-large-v2": "small"})
    assert base.rerankers["gemma"].model == "small" and base.replace == {"mixedbread-ai/mxbai-rerank-large-v2": "small"}


def test_figures_are_found_by_table_row_and_metric(mine):
    (one,) = published(load_recipe(f"{mine}:no-dense"))
    assert (one.table, one.row, one.split, one.metrics) == ("1", "BM25", "test", {"RR@5": 0.5})
    (whole,) = published(load_recipe(mine))
    assert whole.row == "Both", "rows of another recipe or command are about something else"


def test_the_command_of_each_row(mine):
    recipe = load_recipe(mine)
    table = recipe.tables["1"]
    said = {name: row_command(recipe, table, row) for name, row in table.rows.items()}
    metrics = "--claims CLAIMS --qrels QRELS --metric RR@5 --metric R@100"
    assert said == {
        "BM25": f"ccheck evaluate mine:no-dense {metrics}",
        "Both": f"ccheck evaluate mine {metrics}",
        "Baseline": None,
        "Other": f"ccheck evaluate late {metrics}",
        "Trained": "ccheck train reranker",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ablations.x]\ndescription = 'x'", "changes at least one stage"),
        ("[ablations.x]\ndescription = 'x'\nname = 'y'", "changes stages, not name"),
        ("[ablations.x]\ndescription = 'x'\n[ablations.x.retrievers.bm25]\ndpeth = 3", "did you mean 'depth'"),
        (
            "[tables.1]\ntitle='t'\non='o'\nsplit='s'\nmetrics=['RR']\nrows.a = {published = [1, 2]}",
            "2 figures for 1 m",
        ),
        ("[tables.1]\ntitle='t'\non='o'\nsplit='s'\nmetrics=['RR']\nrows.a = {ablation='x', recipe='y'}", "has one of"),
        ("[tables.1]\ntitle='t'\non='o'\nsplit='s'\nmetrics=['RR']\nworth='R'\nrows.a = {}", "not one of the metrics"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, message):
    (tmp_path / "wrong.toml").write_text(f'extends = "bm25"\n{text}')
    with pytest.raises(InvalidData, match=message):
        load_recipe(f"{tmp_path / 'wrong.toml'}:x" if "ablations" in text else str(tmp_path / "wrong.toml"))


def test_an_unknown_ablation_names_the_nearest(mine):
    with pytest.raises(NotFound, match="did you mean 'no-dense'"):
        load_recipe(f"{mine}:no-dens")
    with pytest.raises(NotFound, match="its ablations are: none"):
        load_recipe("bm25:no-dense")


@pytest.mark.parametrize("name", recipe_names())
def test_every_row_of_a_packaged_recipe_loads(name):
    recipe = load_recipe(name)
    for ablation in recipe.ablations:
        assert load_recipe(f"{name}:{ablation}").ablation == ablation
    for number, table in recipe.tables.items():
        for row in table.rows.values():
            if row.ablation or row.recipe:
                load_recipe(row.recipe or f"{name}:{row.ablation}")
            said = row_command(recipe, table, row) or row.note or table.command == "none"
            if name.startswith(("climatecheck", "checkthat")):  # other tables list other teams' systems
                assert said, f"table {number}: a row that nothing runs says why"
