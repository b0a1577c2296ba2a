"""`ccheck train`, from files to a model that is used."""

import json
import shlex
from pathlib import Path

import pytest
import tiny_training as tiny
from cli_runs import BM25, ccheck, jsonl, table, works
from tiny_qwen2 import make_qwen2
from tiny_rerankers import make_encoder
from tiny_sparse import make_splade
from tiny_stances import rows_of

from ccheck.core.recipe import load_recipe, recipe_names

pytest.importorskip("torch")
pytest.importorskip("peft")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    corpus = ({"_id": one.id, "title": one.title, "text": one.text} for one in tiny.corpus())
    jsonl(folder / "corpus.jsonl", *corpus)
    jsonl(folder / "claims.jsonl", *({"_id": one.id, "text": one.text} for one in tiny.claims()))
    lines = [f"{claim}\t{id_}\t{grade}" for claim, grades in tiny.qrels().items() for id_, grade in grades.items()]
    jsonl(folder / "qrels.tsv", "query-id\tcorpus-id\tscore", *lines)
    make_encoder(folder / "base", architecture="bert", texts=tiny.TEXTS, num_hidden_layers=1)
    return folder


def toml(file: Path, **settings: object) -> Path:
    file.write_text("".join(f"{name} = {json.dumps(value, default=str)}\n" for name, value in settings.items()))
    return file


def test_a_reranker_is_trained_by_a_file_of_settings_and_used(files, tmp_path):
    data = {"corpus": files / "corpus.jsonl", "claims": files / "claims.jsonl", "base": files / "base"}
    config = toml(tmp_path / "mine.toml", **data, epochs=9, depth=10, eval_depth=4)
    arguments = ("train", "reranker", "--config", config, "--qrels", files / "qrels.tsv", "-o", tmp_path / "out")
    how = ("--set", "epochs=1", "--set", "hard=1", "--set", "random=1", "--recipe", "bm25", "--json")
    ran = ccheck(*arguments, *how)
    assert ran.code == 0 and "ingesting the corpus" in ran.err, ran.err
    again = ccheck(*arguments, *how)
    assert again.code == 2 and "already exists" in again.err and "ingesting" not in again.err
    (report,) = ran.objects
    assert report["kind"] == "reranker" and report["phases"][0]["phase"] == "first"
    assert {figure["group"] for figure in report["figures"]} == {"by document", "by claim"}
    assert "their documents are not in training" in ran.err and "first, epoch 1: nDCG@10" in ran.err
    assert "epochs = 1" in (tmp_path / "out" / "README.md").read_text()
    assert ccheck("ingest", files / "corpus.jsonl", "--store", tmp_path / "store", "--no-dense").code == 0
    query = ("query", "The ice changed.", "--store", tmp_path / "store", "--recipe", "bm25", "--verdict", "none")
    used = works(*query, "--rerank", tmp_path / "out", "--json")
    assert "rerank" in used.objects[0]["evidence"][0]["scores"]


DATA = ("--corpus", "corpus.jsonl", "--claims", "claims.jsonl", "--qrels", "qrels.tsv")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--output", "out"), 2, "--corpus is missing"),
        (("--set", "clip"), 2, "write it as KEY=VALUE"),
        (("--preset", "climatecheck-hybird"), 4, "did you mean 'climatecheck-hybrid'"),
        (("--set", "clipp=1"), 5, "did you mean 'clip'"),
        (("--config", "nothing.toml"), 4, "nothing.toml can't be read"),
        ((*DATA, "--output", "out", "--device", "cuda:7"), 2, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_what_can_not_be_done_is_said(files, monkeypatch, arguments, code, message):
    monkeypatch.chdir(files)
    ran = ccheck("train", "embedder", *arguments)
    assert ran.code == code and message in ran.err, ran.err


SPELLED = {"SUPPORTS": "entailment", "REFUTES": "Contradict", "NOT_ENOUGH_INFO": "NEI"}


def records(count: int = 72) -> list[dict[str, str]]:
    return [{"claim": row.claim, "evidence": row.text, "label": SPELLED[row.label]} for row in rows_of(count)]


@pytest.fixture(scope="module")
def stance_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stance")
    jsonl(folder / "pairs.jsonl", *records())
    jsonl(folder / "corpus.jsonl", *({"_id": f"d{n}", "text": one["evidence"]} for n, one in enumerate(records())))
    texts = [f"{one['claim']} {one['evidence']}" for one in records()]
    make_encoder(folder / "base", architecture="bert", texts=texts, num_hidden_layers=1)
    return folder


def test_a_classifier_from_a_file_of_settings_to_a_query(stance_files, tmp_path):
    data = {"train": stance_files / "pairs.jsonl", "base": stance_files / "base"}
    config, output = toml(tmp_path / "mine.toml", **data, epochs=9, max_tokens=64), tmp_path / "out"
    how = ("--config", config, "-o", output, "--set", "epochs=2", "--set", "gamma=0", "--device", "cpu")
    ran = works("train", "stance", *how, "--set", "learning_rate=1e-3", "--json")
    (report,) = ran.objects
    assert (report["kind"], report["output"]) == ("stance", str(output))
    assert {figure["group"] for figure in report["figures"]} == {"by document", "by claim"}
    figure = report["figures"][0]
    assert (figure["group"], figure["metric"], figure["claims"]) == ("by document", "weighted F1", 14)
    assert 0 <= figure["after"] <= 1 and report["before"].startswith("always saying ")
    assert [phase["phase"] for phase in report["phases"]] == ["stance"] and report["phases"][0]["steps"] > 0
    assert "stance, epoch 2: weighted F1" in ran.err
    assert "epochs = 2" in (output / "README.md").read_text()
    store = tmp_path / "store"
    assert ccheck("ingest", stance_files / "corpus.jsonl", "--store", store, "--no-dense").code == 0
    ran = works("query", "the sea rises", "--store", store, *BM25, "--stance", output, "-k", "4", "--json")
    assert ran.objects[0]["verdict"]["method"].startswith("stance:")
    assert {piece["stance"]["label"] for piece in ran.objects[0]["evidence"]} <= set(SPELLED)


@pytest.mark.parametrize(
    ("lines", "options", "code", "message"),
    [
        ([*records(6), {"claim": "c", "label": "NEI"}], (), 5, "both the evidence and the id"),
        (records(30), ("--base", "no-such-model"), 4, "no-such-model"),
        ([], (), 5, "pairs.jsonl is empty"),
        (records(30), ("--corpus", "nothing.jsonl"), 4, "nothing.jsonl"),
        (records(30), ("--set", "balanced=2"), 2, "balanced"),
        (records(30), ("--set", "metric=nDCG"), 2, "'weighted F1' or 'macro F1'"),
    ],
)
def test_what_can_not_be_trained_is_said(tmp_path, lines, options, code, message):
    jsonl(tmp_path / "pairs.jsonl", *lines)
    ran = ccheck("train", "stance", "--train", "pairs.jsonl", "-o", "out", *options)
    assert (ran.code, ran.out) == (code, "") and message in ran.err, ran.err
    assert not (tmp_path / "out").exists()


LABELS = ("Supports", "Refutes", "Not Enough Information")


@pytest.fixture(scope="module")
def task_files(tmp_path_factory) -> Path:
    """ClimateCheck's pairs (twelve claims, each with two abstracts that bear on it and one that does not), CheckThat!'s
    posts, a collection of each, and models."""
    folder = tmp_path_factory.mktemp("tasks")
    corpus = tiny.corpus()
    table(folder / "climate-corpus.csv", [{"abstract_id": d.id, "title": d.title, "abstract": d.text} for d in corpus])
    pairs = [
        {
            "claim_id": claim.id, "claim": claim.text, "abstract_id": corpus[place].id, "abstract": corpus[place].text,
            "annotation": LABELS[kind],
        }
        for number, claim in enumerate(tiny.claims()[:12])
        for kind, place in enumerate((number, number + 12, number + 24))
    ]  # fmt: skip
    table(folder / "climate-train.csv", pairs)
    table(folder / "posts-corpus.csv", [{"cord_uid": d.id, "title": d.title, "abstract": d.text} for d in corpus])
    posts = [{"post_id": c.id, "tweet_text": c.text, "cord_uid": c.id.replace("c", "d", 1)} for c in tiny.claims()]
    table(folder / "posts-train.tsv", posts[:20])
    table(folder / "posts-dev.tsv", posts[20:])
    make_encoder(folder / "encoder", architecture="bert", texts=tiny.TEXTS, num_hidden_layers=1)
    make_encoder(folder / "stance", architecture="bert", texts=tiny.TEXTS, num_hidden_layers=1, labels=3)
    make_qwen2(folder / "inf")
    make_splade(folder / "splade")
    return folder


def trained(recipe: str, model: str, task_files: Path, base: str, *more: object):
    """What the command of a recipe's page prints as JSON, with files for its words in capitals, and what it says."""
    task = "posts" if recipe == "checkthat-4b" else "climate"
    words = shlex.split(load_recipe(recipe).fine_tuned[model].train.rpartition("ccheck ")[2])
    words = [str(next(task_files.glob(f"{task}-{word.lower()}.*"), word)) if word.isupper() else word for word in words]
    words[words.index("--output") + 1] = "out"
    ran = works(*words, "--base", task_files / base, *more, "--json")
    return ran.objects[0], ran.err


def test_every_fine_tuned_model_has_a_whole_command():
    for name in recipe_names():
        for made in load_recipe(name).fine_tuned.values():
            files = "--train TRAIN" if " stance " in made.train else "--corpus CORPUS --claims TRAIN --qrels TRAIN"
            assert all(part in made.train for part in (files, "--preset ", "--output ")), made.train


NEGATIVES = {
    # A triplet for each of 24 relevant abstracts, with an abstract that was judged not to bear on its own claim.
    "bge-m3-climatecheck": ("embedder: 24 negatives; 24 of them were judged not relevant", "those of the last step"),
    # 4 hard and 4 easy ones for each of twelve claims, in each phase.
    "ms-marco-MiniLM-L6-v2-climatecheck": ("first: 48 hard and 48 random", "second: 48 hard and 48 random"),
    # For each relevant abstract 5 from the reranked BM25 list and 10 from the corpus.
    "bge-reranker-large-climatecheck-1": ("first: 120 hard and 240 random",),
    "bge-reranker-large-climatecheck-2": ("first: 120 hard and 240 random",),
    "bge-reranker-v2-m3-climatecheck-5": ("first: 120 hard and 240 random",),
}
SLOW = ("bge-reranker-large-climatecheck-2", "bge-reranker-v2-m3-climatecheck-5")


@pytest.mark.parametrize(
    "model", [pytest.param(one, marks=[pytest.mark.slow] if one in SLOW else []) for one in NEGATIVES]
)
def test_a_model_of_climatecheck_is_trained_on_the_negatives_of_its_page(task_files, model):
    recipe, more = f"climatecheck-{'ensemble' if 'reranker' in model else 'hybrid'}", []
    if "MiniLM" in model:
        models = {"naver/splade-v3": "splade", "bge-m3-climatecheck": "encoder"}
        more = [part for name, other in models.items() for part in ("--replace", f"{name}={task_files / other}")]
    report, said = trained(recipe, model, task_files, "encoder", *more)
    assert [wanted for wanted in NEGATIVES[model] if wanted not in "\n".join(report["notes"])] == []
    assert report["figures"] == [] and "none to measure on" in said, "no claim is held back"
    assert len(report["phases"]) == (2 if more else 1)


def test_the_ensemble_s_negatives_mined_once(task_files):
    store = ("--store", "store", "--recipe", "climatecheck-ensemble")
    corpus, pairs = task_files / "climate-corpus.csv", task_files / "climate-train.csv"
    assert ccheck("ingest", corpus, *store).code == 0
    works(
        *("mine", "--claims", pairs, "--qrels", pairs, *store, "--rerank", task_files / "encoder"),
        *("--margin", 0, "--corpus", corpus, "-o", "negatives.jsonl", "--quiet"),
    )
    more = ("--negatives", "negatives.jsonl", "--set", "epochs=1")
    report, _ = trained("climatecheck-ensemble", "bge-reranker-large-climatecheck-3", task_files, "encoder", *more)
    assert "first: 120 hard and 240 random negatives" in "\n".join(report["notes"]), "as many of each as were mined"


def test_checkthat_4b_s_embedder(task_files):
    model = "inf-retriever-v1-checkthat4b"
    report, _ = trained("checkthat-4b", model, task_files, "inf", "--set", "epochs=1")
    assert [figure["group"] for figure in report["figures"] if figure["metric"] == "P@100"] == ["by claim"]
    assert {figure["claims"] for figure in report["figures"]} == {20}, "all development posts, none left out"
    assert not any("negatives" in note for note in report["notes"]), "only those of the batch"
    card = Path("out/README.md").read_text()
    assert "batch = 4" in card and "accumulate = 16" in card


@pytest.mark.parametrize("base", ["mnli", pytest.param("scifact", marks=pytest.mark.slow)])
def test_climatecheck_hybrid_s_stance_models(task_files, base):
    model = f"DeBERTa-v3-base-{base}-climatecheck"
    report, said = trained("climatecheck-hybrid", model, task_files, "stance", "--set", "epochs=1")
    assert "33 pairs to train on, 3 to choose the best epoch on" in said, "a tenth of each label"
    assert report["kind"] == "stance"
