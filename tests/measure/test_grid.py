"""A recipe over a grid of settings."""

from __future__ import annotations

import pytest

from ccheck.core.errors import UsageError
from ccheck.core.recipe import changed, load_recipe
from ccheck.lab.measure.grid import MAX_POINTS, parse_grid, points_of

DEFAULT = load_recipe("default")


def test_values_are_written_as_in_toml():
    assert parse_grid(
        ["fusion.k=10, 20,60", "fusion.method=rrf,minmax", "a.b=[1,2],[3]", 'c="x,y"', "d=true,false", "e=0.5,1e-3"]
    ) == {
        "fusion.k": [10, 20, 60],
        "fusion.method": ["rrf", "minmax"],
        "a.b": [[1, 2], [3]],
        "c": ["x,y"],
        "d": [True, False],
        "e": [0.5, 0.001],
    }


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (["fusion.k"], "is not KEY=VALUE"),
        (["fusion..k=3"], "is not KEY=VALUE"),
        (["fusion.k="], "is not KEY=VALUE"),
        (["fusion.k=1,1"], "a value twice"),
        (["fusion.k=1", "fusion.k=2"], "twice"),
        (["fusion.k=1,[2"], "is not TOML"),
    ],
)
def test_a_grid_that_is_none_says_why(grid, said):
    with pytest.raises(UsageError, match=said.replace("[", r"\[")):
        parse_grid(grid)


def test_a_point_changes_what_it_names_and_nothing_else():
    ((settings, recipe),) = points_of(DEFAULT, {"fusion.k": [10]})
    assert (settings, recipe.fusion.k) == ({"fusion.k": 10}, 10)
    assert recipe.retrievers == DEFAULT.retrievers and recipe.verdict == DEFAULT.verdict
    with pytest.raises(UsageError, match="At most"):
        points_of(DEFAULT, {"fusion.k": range(1, MAX_POINTS + 2)})
    with pytest.raises(UsageError, match="no combination of the grid has a retriever"):
        points_of(DEFAULT, {"retrievers.bm25": [False], "retrievers.dense": [False]})


def test_a_stage_can_be_left_out():
    without = changed(DEFAULT, {"retrievers.dense": False, "rerankers.rerank": True})
    assert list(without.retrievers) == ["bm25"] and without.rerankers == DEFAULT.rerankers
    assert DEFAULT.retrievers.keys() == {"bm25", "dense"}  # it is as it was


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fusion.kk": 3}, "default with fusion.kk = 3: fusion: unknown key kk: did you mean 'k'"),
        ({"retrievers.bm52.depth": 3}, "did you mean 'bm25'"),
        ({"retrievers.sparse": False}, "to leave out"),
        ({"fusion.k": "many"}, "fusion.k"),
        ({"retrievers.bm25.depth": 0}, "depth"),
        ({"retrievers.bm25.depth.x": 1}, "no 'depth'"),
    ],
    ids=str,
)
def test_a_setting_that_the_recipe_does_not_take_says_why(settings, said):
    with pytest.raises(UsageError, match=said):
        changed(DEFAULT, settings)


def test_examples_can_be_turned_off():
    points = points_of(load_recipe("climatecheck-hybrid"), {"rerankers.listwise.examples": [False]})
    assert points[0][1].rerankers["listwise"].examples is None
