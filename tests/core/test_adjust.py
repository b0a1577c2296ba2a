"""What flags and settings change of a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccheck.core.adjust import Changes, filled, resolved
from ccheck.core.errors import UsageError
from ccheck.core.recipe import load_recipe
from ccheck.core.settings import resolve
from ccheck.core.stages import LateStage, ListwiseStage, ModelStage


def change(recipe: str = "default", rerank: str | None = None, **changes: object):
    settings = resolve({"recipe": recipe, "rerank": rerank}).settings
    return resolved(settings, Changes(**changes))  # type: ignore[arg-type]


def test_without_flags_the_recipe_is_what_it_is():
    assert change() == load_recipe("default")


def test_a_named_reranker_takes_the_place_of_the_recipes_and_must_be_there():
    (stage,) = change(rerank="some/model").rerankers.values()
    assert stage == ModelStage(model="some/model", depth=50, required=True)
    late, stage = change(rerank="auto").rerankers.values()
    assert isinstance(late, LateStage) and isinstance(stage, ModelStage) and not stage.required
    (stage,) = change("bm25", rerank="http://127.0.0.1:8080").rerankers.values()
    assert stage == ModelStage(model="http://127.0.0.1:8080")
    assert change(rerank="none").rerankers == {}
    assert change("bm25", rerank="late").rerankers == {"late": load_recipe("default").rerankers["late"]}


def test_depth_is_for_a_reranker():
    assert [stage.depth for stage in change(rerank_depth=7).rerankers.values()] == [7, 7]
    with pytest.raises(UsageError, match="--rerank"):
        change("bm25", rerank_depth=7)


def test_a_recipe_can_have_several_rerankers(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[retrievers.bm25]\n[rerankers.first]\nmodel = "a"\ndepth = 50\n[rerankers.listwise]\ndepth = 20\nllm = "m"\n'
        '[rerankers.last]\nkind = "ensemble"\nmodels = ["a", "b"]\n'
    )
    stages = load_recipe(str(file)).rerankers
    assert list(stages) == ["first", "listwise", "last"] and isinstance(stages["listwise"], ListwiseStage)
    assert [stage.depth for stage in change(str(file), rerank_depth=9).rerankers.values()] == [9, 9, 9]


def test_what_settings_choose_is_filled_in_where_the_recipe_names_none(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'extends = "bm25"\n[rerankers.listwise]\n[rerankers.second]\nkind = "listwise"\nllm = "own"\n'
        '[figures.runs.one]\nkind = "chunk-guided"\norder = "llm"\n[verdict]\nmethod = "auto"\n'
    )
    settings = resolve({"recipe": str(file), "llm_model": "of-settings"}).settings
    made = resolved(settings)
    assert [stage.llm for stage in made.rerankers.values()] == ["of-settings", "own"]  # type: ignore[union-attr]
    assert made.figures is not None and made.figures.runs["one"].llm == "of-settings"  # type: ignore[union-attr]
    assert (made.verdict.method, made.verdict.model) == ("llm", "of-settings")
    assert filled(made, settings) == made
    other = resolved(settings, Changes(llm="of-flag"))
    assert (other.verdict.model, other.figures.runs["one"].llm) == ("of-flag", "of-flag")  # type: ignore[union-attr]


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_where_a_setting_comes_from_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str):
    monkeypatch.chdir(tmp_path)
    if source == "environment":
        monkeypatch.setenv("CCHECK_LLM_MODEL", "m")
    if source == "file":
        (tmp_path / "ccheck.toml").write_text('llm_model = "m"\n')
    found = resolve({"llm_model": "m" if source == "flag" else None}, trust_folder=True).settings
    assert resolved(found) == resolved(resolve({"llm_model": "m"}).settings)
    assert resolved(found).verdict.model == "m"


def test_naming_a_judge_chooses_the_method():
    assert change(llm="gpt").verdict.method == "llm" and change(llm="gpt").verdict.model == "gpt"
    assert change(stance="folder").verdict.method == "stance" and change(stance="folder").verdict.model == "folder"
    assert change(verdict="none").verdict.method == "none"
    with pytest.raises(UsageError, match="two judges"):
        change(llm="gpt", stance="folder")
