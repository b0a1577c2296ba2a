"""The tables that recipes' sources published, and the page that sets measured figures beside them."""

import re
import sys

import pytest
from paths import ROOT

from ccheck.core.recipe import load_recipe, recipe_names
from ccheck.lab.papers.published import published, tables_of

sys.path.append(str(ROOT / "scripts"))
from recipes_page import page, pieces, read_measured, row_command


def test_figures_are_found_by_recipe_table_row_and_metric():
    """Of the split that the source names; rows of other recipes and commands are about something else."""
    (fused,) = (one for one in published(load_recipe("climatecheck-hybrid:rrf-only")) if one["table"] == "6")
    assert (fused["row"], fused["metrics"]["ClimateCheck"]) == ("BM25 + SPLADE + Dense", 0.2771)
    seven = tables_of("climatecheck-hybrid")["7"]
    assert seven.figures("SPLADE + BM25 + Dense")["R@600"] == 0.9583
    assert seven.split == "not stated", "not of the test claims of table 6"
    assert published(load_recipe("default")) == []


@pytest.mark.parametrize("name", recipe_names())
def test_every_row_loads_and_has_its_command(name):
    recipe = load_recipe(name)
    assert all(load_recipe(f"{name}:{ablation}").ablation == ablation for ablation in recipe.ablations)
    for number, table in tables_of(name).items():
        assert table.rows and table.metrics
        for row in table.rows.values():
            assert len(row.published) in (0, len(table.metrics)), "a figure for each metric, - for those without"
            assert all(one == "-" or isinstance(one, float | int) for one in row.published)
            assert sum(one is not None for one in (row.ablation, row.recipe, row.command)) <= 1
            if row.ablation or row.recipe:
                load_recipe(row.recipe or f"{name}:{row.ablation}")
            said = row_command(recipe, table, row) or row.note or table.command == "none"
            assert said, f"table {number}: a row that nothing runs says why"


def test_the_page_has_what_was_published_and_measured_and_every_key():
    made = page()
    for said in (
        "| BM25 + SPLADE + Dense | `climatecheck-hybrid:rrf-only` |",
        "| `climatecheck-hybrid:rrf-only`: SciFact's training claims, local store; recorded at 0ba6de1 2026-11-23 |",
        "### [retrievers.bm25.analysis]",
    ):
        assert said in made, said
    none = {"metrics": {"weighted_f1": None}, "intervals": {"weighted_f1": None}}
    runs = (
        {"metrics": {"R@5": 0.25}, "claims": 7, "seconds_per_claim": {"total": 0.5}, "cost": 2.0},
        {"pairs": 4, "seconds": 1.0, "replaced": {"a": "b"}} | none,
    )
    own = page([{"recipe": "bm25"} | run for run in runs])
    assert "|  | 7 | R@5 .250 | – | – | .500 | 2 |" in own
    assert "|  | 4 | weighted_f1 – | – | b for a | .250 | – |" in own
    assert all(re.search(r"recorded at [0-9a-f]{7} \d{4}-\d\d-\d\d$", run["note"]) for run in read_measured())


def test_the_table_of_pieces_has_words_that_the_prompts_have():
    """The page compares the papers' prompts with ccheck's piece by piece."""
    for one in pieces():
        text = " ".join((ROOT / one.prompt).read_text(encoding="utf-8").split())
        assert one.words in text, f"{one.prompt}: {one.words}"
