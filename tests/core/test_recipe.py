"""Recipes: the packaged ones, and what is said of wrong ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.core.layout import AdditionalTexts, Chunking, DenseField, Embedding, Layout, SparseField, UnitField
from ccheck.core.recipe import Recipe, load_recipe, models_used, recipe_names, recipe_text, with_ways_to_get
from ccheck.core.stages import Analysis, Bm25, Dense


def written(text: str, file: str = "mine.toml") -> str:
    """Where a recipe is, in the folder of the test."""
    Path(file).write_text(text, "utf-8-sig" if file == "mine.toml" else "utf-8")
    return str(Path(file).absolute())


def pipeline(recipe: Recipe) -> Recipe:
    """Without where it comes from."""
    return recipe.model_copy(update={"extends": None, "source": None, "decisions": []})


def test_a_recipe_from_a_file_and_one_that_lays_its_tables_over_another() -> None:
    text = '[retrievers.titles]\nkind = "bm25"\nfields = {title = 2.0, text = 1.0}\n[retrievers.dense]\n'
    recipe = load_recipe(file := written(text))
    assert recipe.name == "mine"
    assert recipe.retrievers["titles"] == Bm25(fields={"title": 2.0, "text": 1.0})
    assert recipe.fusion.method == "rrf"
    assert recipe_text(file) == text
    tables = "retrievers = {bm25 = {depth = 7}, dense = false}\nrerankers = {late = false, rerank = false}\n"
    recipe = load_recipe(written(f'extends = "default"\n{tables}'))
    assert recipe.name == "mine" and recipe.description == ""
    assert recipe.retrievers == {"bm25": Bm25(depth=7)}
    assert recipe.rerankers == {}
    assert recipe.fusion.k == load_recipe("default").fusion.k
    assert recipe.evidence.sentences == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[retrievers.bm25]\ndpth = 3", "did you mean 'depth'"),
        ("[retrievers.bm25]\n[fuson]\nk = 1", "did you mean 'fusion'"),
        ("[retrievers.bm25]\n[fusion]\nmethd = 'rrf'", "did you mean 'method'"),
        ("[retrievers.bm25]\n[fusion]\nmethod = 'sum'", "rrf"),
        ("[retrievers.bm25]\ndepth = 'many'", "retrievers.bm25"),
        ("[retrievers.bm25]\n[", "TOML"),
        ("[retrievers.bm25]\n[ingest.units.'Long Window']", r"ingest\.units\.Long Window"),
        ("[retrievers.splade]\n", "unknown kind splade: did you mean 'sparse'"),
        ("extends = 'default'\n[rerankers.lat]\ndepth = 9", r"rerankers\.lat: unknown kind lat: did you mean 'late'"),
        ("extends = 'default'\n[rerankers.mine]\ndepth = 9", "one of another name needs a model"),
        ("extends = 'bm25'\nfilter = 'year>2000'", r"unknown key filter: .*ccheck query"),
        ("extends = 'bm25'\n[fusion]\nweights = {bm25 = 2}", r"unknown key weights: .*retrievers\.NAME\.weight"),
        *((text, "retrievers") for text in ("[fusion]\nk = 1", "[retrievers]\n", "retrievers = 3")),
        ("extends = 'bm25'\n[retrievers]\nbm52 = false", r"retrievers\.bm52 = false: .* did you mean 'bm25'"),
        ("extends = 'bm25'\n[ablations.x]\ndescription = 'x'", "changes at least one stage"),
        ("extends = 'bm25'\n[ablations.x]\ndescription = 'x'\nname = 'y'", "changes stages, not name"),
        ("extends = 'bm25'\n[ablations.x]\ndescription = 'x'\nretrievers.bm25.dpeth = 3", "did you mean 'depth'"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said(text: str, message: str) -> None:
    file = written(text)
    with pytest.raises(InvalidData, match=message) as caught:
        load_recipe(f"{file}:x" if "ablations" in text else file)
    assert file in str(caught.value)


WEIGHTS = ("-1", "0", "inf", "nan", "1e300", "1e-300")
WHOLE = ("0", "-1", "1" + 400 * "0", 5_000 * "9")


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        *(("retrievers.bm25", "weight", value) for value in WEIGHTS),
        *(("retrievers.bm25", "fields", f"{{ content = {value} }}") for value in WEIGHTS),
        *(("fusion", "k", value) for value in WHOLE),
        *(("retrievers.bm25", "depth", value) for value in WHOLE),
        *(("retrievers.dense", "candidates", value) for value in WHOLE),
    ],
)
def test_numbers_of_a_recipe_have_limits(table: str, key: str, value: str) -> None:
    with pytest.raises(InvalidData, match="mine") as caught:
        load_recipe(written(f'name = "mine"\nextends = "default"\n[{table}]\n{key} = {value}\n'))
    assert len(value) > 300 or re.search(f"{table}.*{key}", str(caught.value))


def test_a_recipe_that_can_not_be_read_or_extends_itself(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidData, match="can't be read"):
        load_recipe(str(tmp_path / "binary.toml"))
    with pytest.raises(InvalidData, match="not valid TOML"):
        load_recipe(written("a = " + "[" * 100_000))
    written('extends = "b.toml"\n', "a.toml")
    with pytest.raises(InvalidData, match="extends itself"):
        load_recipe(written('extends = "a.toml"\n', "b.toml"))


def test_a_recipe_extends_a_file_beside_it_and_finds_files_beside_it(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "shown.jsonl").write_text("")
    written('[retrievers.bm25]\n[rerankers.listwise]\nexamples = "shown.jsonl"\n', "base.toml")
    mine = written('extends = "base.toml"\n[rerankers.listwise]\nalpha = 0.1\n')
    monkeypatch.chdir("/")
    stage = load_recipe(mine).rerankers["listwise"]
    assert stage.kind == "listwise" and stage.alpha == 0.1
    assert stage.examples == tmp_path / "shown.jsonl"


def test_models_beside_a_recipe_are_found_from_anywhere_and_names_stay_names(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "auto").mkdir()
    stages = '[rerankers.ensemble]\nmodels = ["mine", "some/name"]\n[rerankers.first]\nmodel = "auto"\n'
    file = written(f'[retrievers.dense]\nmodel = "mine"\n{stages}')
    monkeypatch.chdir("/")
    recipe = load_recipe(file)
    dense = recipe.retrievers["dense"]
    assert isinstance(dense, Dense) and dense.model == str(tmp_path / "mine")
    assert recipe.rerankers["ensemble"].models == [str(tmp_path / "mine"), "some/name"]
    assert recipe.rerankers["first"].model == "auto"


def test_models_are_replaced_wherever_they_stand() -> None:
    recipe = load_recipe("checkthat-4b", {"infly/inf-retriever-v1": "mine", "BAAI/bge-reranker-v2-gemma": "small"})
    bm25 = recipe.retrievers["bm25"]
    assert isinstance(bm25, Bm25) and bm25.analysis is not None and bm25.analysis.subwords == "mine"
    assert recipe.rerankers["gemma"].model == "small"
    assert recipe.replace == {"infly/inf-retriever-v1": "mine", "BAAI/bge-reranker-v2-gemma": "small"}
    assert list(models_used(recipe)) == ["mine", "inf-retriever-v1-checkthat4b", "small"]
    ensemble = load_recipe("climatecheck-ensemble", {"bge-reranker-large-climatecheck-2": "other"})
    assert ensemble.rerankers["ensemble"].models[:2] == ["bge-reranker-large-climatecheck-1", "other"]
    with pytest.raises(UsageError, match="did you mean 'naver/splade-v3'"):
        load_recipe("climatecheck-hybrid", {"naver/splade": "x"})
    base = load_recipe("checkthat-4b:dense-50+mxbai", {"mixedbread-ai/mxbai-rerank-large-v2": "small"})
    assert base.rerankers["gemma"].model == "small" and base.replace == {"mixedbread-ai/mxbai-rerank-large-v2": "small"}


def test_an_error_says_how_to_get_the_model_that_it_is_about_not_one_that_it_mentions() -> None:
    recipe = load_recipe("climatecheck-hybrid")
    model = "bge-m3-climatecheck"
    missing = with_ways_to_get(NotFound("the model is missing", model=model), recipe)
    assert isinstance(missing, NotFound) and missing.model == model and f"--replace {model}=" in str(missing)
    assert "BAAI/bge-m3" in str(missing) and "ccheck train embedder" in str(missing)
    mentioned = NotFound(f"the store has no units; another one has vectors by {model}")
    assert with_ways_to_get(mentioned, recipe) is mentioned


@pytest.mark.parametrize("name", recipe_names())
def test_packaged_recipes_load_by_their_names_and_use_their_fine_tuned_models(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.description
    ablations = [load_recipe(f"{name}:{ablation}") for ablation in recipe.ablations]
    for one in ablations:
        assert pipeline(load_recipe(written(recipe_text(one.name)))) == pipeline(one)
    assert set(recipe.fine_tuned) <= {model for one in (recipe, *ablations) for model in models_used(one)}


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


def test_an_ablation_is_laid_over_the_recipe_and_can_be_extended() -> None:
    mine = written(MINE)
    whole, one, both = (load_recipe(name) for name in (mine, f"{mine}:no-dense", f"{mine}:no-dense+k-6"))
    assert set(whole.retrievers) == {"bm25", "dense"} and set(one.retrievers) == {"bm25"}
    assert (whole.name, one.name, both.name) == ("mine", "mine:no-dense", "mine:no-dense+k-6")
    assert (one.fusion.k, both.fusion.k, set(both.retrievers)) == (20, 6, {"bm25"})
    assert load_recipe(f"{mine}:unshown").verdict.examples is None  # false also where there was nothing to take out
    for each in (one, both, load_recipe(f"{mine}:unshown")):
        shown = written(recipe_text(f"mine.toml:{each.ablation}"), "shown.toml")
        assert pipeline(load_recipe(shown)) == pipeline(each)
    other = load_recipe(written('extends = "mine.toml:no-dense"\n[fusion]\nk = 3\n', "other.toml"))
    assert (other.name, other.ablation, set(other.retrievers), other.fusion.k) == ("other", None, {"bm25"}, 3)


# -- what a store records of how it was made


MODEL = Embedding("m", 8, "f" * 64, 256)
FULL = Layout(
    {"passages": DenseField(MODEL, Chunking(254, 200, 32))},
    SparseField("s", 30_522, "a" * 64, 512),
    (Analysis(), Analysis(stemming=True, keep="#")),
    AdditionalTexts("llm", True, 2, "p"),
    {"sentences": UnitField("sentence"), "windows": UnitField("window", 200, 50, MODEL)},
)


PARTS = "dense.passages dense.passages.chunking dense.passages.embedding sparse additional units.windows analyses.0"


@pytest.mark.parametrize("path", ["", *PARTS.split()])
def test_what_a_later_version_would_add_is_refused(path: str) -> None:
    """It may change how documents are made, so that theirs and ours would be mixed."""
    data: Any = json.loads(json.dumps(FULL.to_dict()))
    place = data
    for part in filter(None, path.split(".")):
        place = place[int(part) if part.isdecimal() else part]
    place["more"] = 1
    with pytest.raises(ValueError, match="more"):
        Layout.from_dict(data)
