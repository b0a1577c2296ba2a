"""Ablations of recipe files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.recipe import load_recipe

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


def test_stand_ins_are_for_the_models_of_the_ablation():
    base = load_recipe("checkthat-4b:dense-50+mxbai", {"mixedbread-ai/mxbai-rerank-large-v2": "small"})
    assert base.rerankers["gemma"].model == "small" and base.replace == {"mixedbread-ai/mxbai-rerank-large-v2": "small"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ablations.x]\ndescription = 'x'", "changes at least one stage"),
        ("[ablations.x]\ndescription = 'x'\nname = 'y'", "changes stages, not name"),
        ("[ablations.x]\ndescription = 'x'\n[ablations.x.retrievers.bm25]\ndpeth = 3", "did you mean 'depth'"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, message):
    (tmp_path / "wrong.toml").write_text(f'extends = "bm25"\n{text}')
    with pytest.raises(InvalidData, match=message):
        load_recipe(f"{tmp_path / 'wrong.toml'}:x")


def test_an_unknown_ablation_names_the_nearest(mine):
    with pytest.raises(NotFound, match="did you mean 'no-dense'"):
        load_recipe(f"{mine}:no-dens")
    with pytest.raises(NotFound, match="its ablations are: none"):
        load_recipe("bm25:no-dense")
