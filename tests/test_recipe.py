"""Recipes: the packaged ones, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccheck.errors import InvalidData, NotFound
from ccheck.recipe import load_recipe, recipe_names, recipe_text
from ccheck.stages import Bm25, Dense


@pytest.mark.parametrize("name", recipe_names())
def test_packaged_recipes_load_by_their_names(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description


def test_the_default_goes_on_without_vectors() -> None:
    recipe = load_recipe("default")
    assert recipe.retrievers["bm25"] == Bm25()
    assert recipe.retrievers["dense"] == Dense(required=False)


def test_a_recipe_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[retrievers.titles]\nkind = "bm25"\nfields = {title = 2.0, text = 1.0}\n[retrievers.dense]\n')
    recipe = load_recipe(str(file))
    assert recipe.name == "mine"
    assert recipe.retrievers["titles"] == Bm25(fields={"title": 2.0, "text": 1.0})
    assert recipe.fusion.method == "rrf"
    assert recipe_text(str(file)) == file.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[retrievers.bm25]\ndpth = 3", "did you mean 'depth'"),
        ("[retrievers.bm25]\n[fuson]\nk = 1", "did you mean 'fusion'"),
        ("[retrievers.bm25]\n[fusion]\nmethd = 'rrf'", "did you mean 'method'"),
        ("[retrievers.bm25]\ndepth = 0", "greater than or equal to 1"),
        ("[retrievers.bm25]\ndepth = 'many'", "retrievers.bm25"),
        ("[retrievers.splade]\n", "bm25"),
        ("[fusion]\nk = 1", "retrievers"),
        ("[retrievers]\n", "retrievers"),
        ("retrievers = 3", "retrievers"),
        ("[retrievers.bm25]\n[fusion]\nmethod = 'sum'", "rrf"),
        ("[retrievers.bm25", "TOML"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InvalidData, match=message) as caught:
        load_recipe(str(file))
    assert str(file) in str(caught.value)


def test_a_recipe_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="default"):
        load_recipe("defalt")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidData, match="can't be read"):
        load_recipe(str(tmp_path / "binary.toml"))
