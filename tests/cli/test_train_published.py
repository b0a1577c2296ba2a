"""The training commands of the published recipes, as their pages print them, with small models and the tasks' files."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest
import tiny_training as tiny
from cli_runs import ccheck
from tiny_qwen2 import make_qwen2
from tiny_rerankers import make_encoder
from tiny_sparse import make_splade

from ccheck.core.recipe import load_recipe, recipe_names

pytest.importorskip("torch")
pytest.importorskip("peft")

CLAIMS = tiny.claims()[:12]
LABELS = ("Supports", "Refutes", "Not Enough Information")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """ClimateCheck's pairs (twelve claims, each with two abstracts that bear on it and one that does not), CheckThat!'s
    posts, a collection of each, and models."""
    folder = tmp_path_factory.mktemp("tasks")
    corpus = tiny.corpus()
    write(folder / "climate-corpus.csv", [{"abstract_id": d.id, "title": d.title, "abstract": d.text} for d in corpus])
    pairs = [
        {
            "claim_id": claim.id, "claim": claim.text, "abstract_id": corpus[place].id, "abstract": corpus[place].text,
            "annotation": LABELS[kind],
        }
        for number, claim in enumerate(CLAIMS)
        for kind, place in enumerate((number, number + 12, number + 24))
    ]  # fmt: skip
    write(folder / "climate-train.csv", pairs)
    write(folder / "posts-corpus.csv", [{"cord_uid": d.id, "title": d.title, "abstract": d.text} for d in corpus])
    posts = [{"post_id": c.id, "tweet_text": c.text, "cord_uid": c.id.replace("c", "d", 1)} for c in tiny.claims()]
    write(folder / "posts-train.tsv", posts[:20])
    write(folder / "posts-dev.tsv", posts[20:])
    make_encoder(folder / "encoder", architecture="bert", texts=tiny.TEXTS, num_hidden_layers=1)
    make_encoder(folder / "stance", architecture="bert", texts=tiny.TEXTS, num_hidden_layers=1, labels=3)
    make_qwen2(folder / "inf")
    make_splade(folder / "splade")
    return folder


def write(file: Path, rows) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t" if file.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)


def trained(command: str, files: Path, task: str, output: Path, *more: object):
    """What a command of a recipe's page prints as JSON, with files for its words in capitals."""
    words = shlex.split(command.removeprefix("ccheck "))
    names = {"CORPUS": f"{task}-corpus.csv", "TRAIN": f"{task}-train.csv", "DEV": f"{task}-dev.csv"}
    if task == "posts":
        names |= {"TRAIN": "posts-train.tsv", "DEV": "posts-dev.tsv"}
    words = [str(files / names[word]) if word in names else word for word in words]
    words[words.index("--output") + 1] = str(output)
    ran = ccheck(*words, *more, "--json")
    assert ran.code == 0, ran.err
    return ran.objects[0], ran.err


def command_of(recipe: str, model: str) -> str:
    return load_recipe(recipe).fine_tuned[model].train


def test_every_fine_tuned_model_has_a_whole_command():
    for name in recipe_names():
        for made in load_recipe(name).fine_tuned.values():
            files = (
                ("--train TRAIN",)
                if " stance " in made.train
                else ("--corpus CORPUS", "--claims TRAIN", "--qrels TRAIN")
            )
            assert all(part in made.train for part in (*files, "--preset ", "--output ")), made.train


def test_climatecheck_hybrid_s_embedder(files, tmp_path):
    command = command_of("climatecheck-hybrid", "bge-m3-climatecheck")
    report, said = trained(command, files, "climate", tmp_path / "out", "--base", files / "encoder")
    # 24 triplets: an abstract that was judged not to bear on its own claim for each relevant one.
    assert "embedder: 24 negatives; 24 of them were judged not relevant to their claim" in report["notes"]
    assert report["figures"] == [] and "none to measure on" in said, "no claim is held back"
    assert any("those of the last step" in note for note in report["notes"])


def test_climatecheck_hybrid_s_reranker(files, tmp_path):
    command = command_of("climatecheck-hybrid", "ms-marco-MiniLM-L6-v2-climatecheck")
    stand_ins = (f"naver/splade-v3={files / 'splade'}", f"bge-m3-climatecheck={files / 'encoder'}")
    more = ("--base", files / "encoder", *(part for one in stand_ins for part in ("--replace", one)))
    report, _ = trained(command, files, "climate", tmp_path / "out", *more)
    counts = {}
    for note in report["notes"]:
        if found := re.match(r"(first|second): (\d+) hard and (\d+) random negatives; (\d+) of them were judged", note):
            counts[found[1]] = tuple(map(int, found.groups()[1:]))
    # 4 hard and 4 easy ones for each of twelve claims, all of them judged for some claim.
    assert {phase: some[:2] for phase, some in counts.items()} == {"first": (48, 48), "second": (48, 48)}
    assert [phase["phase"] for phase in report["phases"]] == ["first", "second"] and report["figures"] == []


@pytest.mark.parametrize(
    "number", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)]
)
def test_climatecheck_ensemble_s_rerankers(files, tmp_path, number):
    model = f"bge-reranker-{'v2-m3' if number == 5 else 'large'}-climatecheck-{number}"
    command = command_of("climatecheck-ensemble", model)
    report, _ = trained(command, files, "climate", tmp_path / "out", "--base", files / "encoder")
    # For each of 24 relevant abstracts 5 from the reranked BM25 list and 10 from the corpus.
    (note,) = [note for note in report["notes"] if note.startswith("first: ")]
    assert note.startswith("first: 120 hard and 240 random negatives"), note
    assert report["figures"] == []


def test_the_ensemble_s_negatives_mined_once(files, tmp_path):
    mined = tmp_path / "negatives.jsonl"
    store = tmp_path / "store"
    assert (
        ccheck("ingest", files / "climate-corpus.csv", "--store", store, "--recipe", "climatecheck-ensemble").code == 0
    )
    pairs = ("--claims", files / "climate-train.csv", "--qrels", files / "climate-train.csv")
    ran = ccheck(
        *("mine", *pairs, "--store", store, "--recipe", "climatecheck-ensemble", "--rerank", files / "encoder"),
        *("--margin", 0, "--corpus", files / "climate-corpus.csv", "-o", mined, "--quiet"),
    )
    assert ran.code == 0, ran.err
    command = command_of("climatecheck-ensemble", "bge-reranker-large-climatecheck-3")
    how = ("--base", files / "encoder", "--negatives", mined, "--set", "epochs=1")
    report, _ = trained(command, files, "climate", tmp_path / "out", *how)
    (note,) = [note for note in report["notes"] if note.startswith("first: ")]
    assert note.startswith("first: 120 hard and 240 random negatives"), "as many of each kind as were mined"


def test_checkthat_4b_s_embedder(files, tmp_path):
    command = command_of("checkthat-4b", "inf-retriever-v1-checkthat4b")
    report, _ = trained(command, files, "posts", tmp_path / "out", "--base", files / "inf", "--set", "epochs=1")
    assert [figure["group"] for figure in report["figures"] if figure["metric"] == "P@100"] == ["by claim"]
    assert {figure["claims"] for figure in report["figures"]} == {20}, "all development posts, none left out"
    assert not any("negatives" in note for note in report["notes"]), "only those of the batch"
    card = (tmp_path / "out" / "README.md").read_text()
    assert "batch = 4" in card and "accumulate = 16" in card


@pytest.mark.parametrize("base", ["mnli", pytest.param("scifact", marks=pytest.mark.slow)])
def test_climatecheck_hybrid_s_stance_models(files, tmp_path, base):
    command = command_of("climatecheck-hybrid", f"DeBERTa-v3-base-{base}-climatecheck")
    report, said = trained(command, files, "climate", tmp_path / "out", "--base", files / "stance", "--set", "epochs=1")
    assert "33 pairs to train on, 3 to choose the best epoch on" in said, "a tenth of each label"
    assert report["kind"] == "stance"
