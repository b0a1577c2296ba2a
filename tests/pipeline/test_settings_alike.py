"""What the settings say of a recipe is heeded alike by every command and in Python; stages have one name each."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import ccheck, jsonl

import ccheck as package
from ccheck import Checker
from ccheck.core.adjust import resolved
from ccheck.core.errors import CcheckError, InvalidData, UsageError
from ccheck.core.recipe import Recipe, changed, load_recipe
from ccheck.core.settings import resolve
from ccheck.core.stages import LateStage

CLAIM = "vaccines cause autism"


class Stopped(CcheckError):
    """Enough was seen."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes that were about to run."""
    recipes: list[Recipe] = []

    def stop(checker: Checker) -> None:
        recipes.append(checker.recipe)
        raise Stopped("seen")

    monkeypatch.setattr(Checker, "plan", stop)
    return recipes


@pytest.fixture
def measured(papers: Path, tmp_path: Path) -> tuple[object, ...]:
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": "1", "text": CLAIM})
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\tvaccines-autism\t1\n")
    return "--claims", claims, "--qrels", tmp_path / "qrels.tsv", "--store", papers


@pytest.mark.parametrize("rerank", ["none", "late", "auto", "some/model", "http://127.0.0.1:1/rerank"])
@pytest.mark.parametrize("recipe", ["default", "bm25"])
def test_the_reranker_of_the_environment(seen, papers, measured, monkeypatch, rerank, recipe):
    monkeypatch.setenv("CCHECK_RERANK", rerank)
    monkeypatch.setenv("CCHECK_RECIPE", recipe)
    wanted = {"none": [], "late": [load_recipe("default").rerankers["late"].model_dump()]}.get(rerank)
    package.open(str(papers)).recipe  # noqa: B018 - what it has is compared below
    with pytest.raises(Stopped):
        package.open(str(papers)).check(CLAIM)
    for command in (
        ("query", CLAIM, "--store", papers),
        ("evaluate", recipe, *measured),
        ("mine", *measured, "-o", "mined.jsonl"),
    ):
        before = len(seen)
        ccheck(*command)
        assert len(seen) == before + 1, command
    python, query, evaluate, mine = seen
    named = [LateStage().model, rerank] if rerank == "auto" else [rerank]
    if wanted is not None:
        assert [stage.model_dump() for stage in python.rerankers.values()] == wanted
    else:
        assert [stage.model for stage in python.rerankers.values()] == named  # type: ignore[union-attr]
    assert query == python
    assert evaluate.rerankers == python.rerankers
    assert [stage.model_dump(exclude={"depth"}) for stage in mine.rerankers.values()] == [
        stage.model_dump(exclude={"depth"}) for stage in python.rerankers.values()
    ]


def test_evaluations_say_which_setting_takes_the_rerankers_place(seen, measured, monkeypatch):
    monkeypatch.setenv("CCHECK_RERANK", "http://me:of-the-reranker@127.0.0.1:1/rerank")
    ran = ccheck("evaluate", "default", *measured)
    assert "replaces the recipes' own (the setting rerank, from CCHECK_RERANK)" in ran.err
    assert "of-the-reranker" not in ran.err


# -- names


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ('[rerankers.bm25]\nmodel = "m"', r"Rename \[rerankers.bm25\]: 'bm25' is taken"),
        ('[rerankers.rrf]\nmodel = "m"', r"Rename \[rerankers.rrf\]"),
        ('[rerankers.minmax]\nmodel = "m"', r"Rename \[rerankers.minmax\]"),
        ('[retrievers.rrf]\nkind = "bm25"', r"Rename \[retrievers.rrf\]"),
    ],
)
def test_two_stages_of_one_name_are_refused(stages, said, tmp_path):
    """The reranker's scores would stand where the retriever's were."""
    (tmp_path / "mine.toml").write_text(f'extends = "bm25"\n{stages}\n')
    with pytest.raises(InvalidData, match=said):
        load_recipe("mine.toml")


def test_by_whatever_way_a_stage_comes(tmp_path):
    (tmp_path / "mine.toml").write_text('[retrievers.late]\nkind = "bm25"\n[retrievers.rerank]\nkind = "bm25"\n')
    recipe = load_recipe("mine.toml")
    with pytest.raises(UsageError, match=r"Rename \[rerankers.late\]"):
        resolved(resolve({"rerank": "late"}).settings, recipe=recipe)
    with pytest.raises(UsageError, match=r"Rename \[rerankers.rerank\]"):
        resolved(resolve({"rerank": "some/model"}).settings, recipe=recipe)
    with pytest.raises(UsageError, match=r"Rename \[rerankers.late\]"):
        changed(recipe, {"rerankers.late": {"kind": "late"}})


def test_an_ingest_makes_what_the_settings_recipe_searches_in(tmp_path, monkeypatch):
    """Else the next query with the same settings would find nothing to search in."""
    (tmp_path / "mine.toml").write_text(
        'extends = "bm25"\n[retrievers.bm25.analysis]\nstemming = true\n[verdict]\nmethod = "none"\n'
    )
    monkeypatch.setenv("CCHECK_RECIPE", "mine.toml")
    corpus = jsonl(tmp_path / "corpus.jsonl", {"_id": "1", "title": "Tea", "text": "Tea is healthy."})
    assert ccheck("ingest", corpus, "--store", "one", "--no-dense").code == 0
    assert ccheck("query", "healthy tea", "--store", "one").code == 0
    with package.open("two") as checker:
        checker.ingest(str(corpus), dense=False)
        assert checker.check("healthy tea").evidence
