"""`ccheck train`, from files to a model that is used."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
import tiny_training as tiny
from cli_runs import BM25, ccheck, jsonl
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
    rows = [{"_id": one.id, "title": one.title, "text": one.text} for one in tiny.corpus()]
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    claims = [{"_id": one.id, "text": one.text} for one in tiny.claims()]
    (folder / "claims.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in claims))
    lines = [f"{claim}\t{id_}\t{grade}" for claim, grades in tiny.qrels().items() for id_, grade in grades.items()]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    make_encoder(folder / "base", architecture="bert", texts=tiny.TEXTS, num_hidden_layers=1)
    return folder


def data(files, *kinds):
    return [part for kind in kinds or ("corpus", "claims", "qrels") for part in (f"--{kind}", _file(files, kind))]


def _file(files, kind):
    return files / {"corpus": "corpus.jsonl", "claims": "claims.jsonl", "qrels": "qrels.tsv"}[kind]


def test_a_reranker_is_trained_by_a_file_of_settings_and_used(files, tmp_path, monkeypatch):
    monkeypatch.setenv("CCHECK_CACHE_DIR", str(tmp_path / "cache"))
    config = tmp_path / "mine.toml"
    settings = {
        "corpus": str(files / "corpus.jsonl"),
        "claims": str(files / "claims.jsonl"),
        "base": str(files / "base"),
        "epochs": 9,
        "depth": 10,
        "eval_depth": 4,
    }
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    ran = ccheck(
        *("train", "reranker", "--config", config, *data(files, "qrels"), "--output", tmp_path / "out"),
        *("--set", "epochs=1", "--set", "hard=1", "--set", "random=1", "--recipe", "bm25", "--json"),
    )
    assert ran.code == 0, ran.err
    (report,) = ran.objects
    assert report["kind"] == "reranker" and report["phases"][0]["phase"] == "first"
    assert {figure["group"] for figure in report["figures"]} == {"by document", "by claim"}
    assert "their documents are not in training" in ran.err and "first, epoch 1: nDCG@10" in ran.err
    assert "epochs = 1" in (tmp_path / "out" / "README.md").read_text()
    assert ccheck("ingest", files / "corpus.jsonl", "--store", tmp_path / "store", "--no-dense").code == 0
    used = ccheck(
        *("query", "The ice changed.", "--store", tmp_path / "store", "--recipe", "bm25"),
        *("--rerank", tmp_path / "out", "--json", "--verdict", "none"),
    )
    assert used.code == 0, used.err
    assert "rerank" in used.objects[0]["evidence"][0]["scores"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--output", "out"), 2, "--corpus is missing"),
        (("--preset", "climatecheck-hybird"), 4, "did you mean 'climatecheck-hybrid'"),
        (("--set", "clip"), 2, "write it as KEY=VALUE"),
        (("--set", "clipp=1"), 5, "did you mean 'clip'"),
        (("--config", "nothing.toml"), 4, "nothing.toml can't be read"),
        (("--device", "cuda:7"), 2, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_what_can_not_be_done_is_said(files, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    given = data(files) if arguments[0] == "--device" else ()
    output = ("--output", "out") if arguments[0] == "--device" else ()
    ran = ccheck("train", "embedder", *given, *output, *arguments)
    assert ran.code == code and message in ran.err, ran.err


# -- `ccheck train stance` on the command line, and `ccheck query` with what it made


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


def asked(folder: Path, output: Path) -> list[str | None]:
    """What a query's results say of a claim, by a model."""
    store = folder / "store"
    if not store.exists():
        assert ccheck("ingest", folder / "corpus.jsonl", "--store", store, "--no-dense").code == 0
    ran = ccheck("query", "the sea rises", "--store", store, *BM25, "--stance", output, "-k", "4", "--json")
    assert ran.code == 0, ran.err
    (answer,) = ran.objects
    assert answer["verdict"]["method"].startswith("stance:")
    return [piece["stance"]["label"] for piece in answer["evidence"]]


def test_a_classifier_from_a_file_of_settings_to_a_query(stance_files, tmp_path):
    config = tmp_path / "mine.toml"
    settings = {
        "train": str(stance_files / "pairs.jsonl"),
        "base": str(stance_files / "base"),
        "epochs": 9,
        "max_tokens": 64,
    }
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    output = tmp_path / "out"
    how = ("--config", config, "-o", output, "--set", "epochs=2", "--set", "gamma=0", "--device", "cpu")
    ran = ccheck("train", "stance", *how, "--set", "learning_rate=1e-3", "--json")
    assert ran.code == 0, ran.err
    (report,) = ran.objects
    assert (report["kind"], report["output"]) == ("stance", str(output))
    assert {figure["group"] for figure in report["figures"]} == {"by document", "by claim"}
    figure = report["figures"][0]
    assert (figure["group"], figure["metric"], figure["claims"]) == ("by document", "weighted F1", 14)
    assert 0 <= figure["after"] <= 1 and report["before"].startswith("always saying ")
    assert [phase["phase"] for phase in report["phases"]] == ["stance"] and report["phases"][0]["steps"] > 0
    assert "stance, epoch 2: weighted F1" in ran.err
    assert "epochs = 2" in (output / "README.md").read_text()
    assert set(asked(stance_files, output)) <= set(SPELLED)


@pytest.mark.parametrize(
    ("lines", "options", "code", "message"),
    [
        ([*records(6), {"claim": "c", "evidence": "e", "label": "perhaps"}], (), 5, "line 7: unknown label 'perhaps'"),
        ([*records(6), {"claim": "c", "label": "NEI"}], (), 5, "both the evidence and the id"),
        ([{**one, "label": "supports"} for one in records(30)], (), 5, "REFUTES"),
        (records(30), ("--base", "no-such-model"), 4, "no-such-model"),
        (records(30), ("--corpus", "nothing.jsonl"), 4, "nothing.jsonl"),
        (records(30), ("--set", "balanced=2"), 2, "balanced"),
        (records(30), ("--set", "gama=2"), 5, "did you mean 'gamma'"),
        (records(30), ("--set", "metric=nDCG"), 2, "'weighted F1' or 'macro F1'"),
        ([], (), 5, "pairs.jsonl is empty"),
    ],
)
def test_what_can_not_be_trained_is_said(tmp_path, monkeypatch, lines, options, code, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "pairs.jsonl", *lines)
    ran = ccheck("train", "stance", "--train", "pairs.jsonl", "-o", "out", *options)
    assert (ran.code, ran.out) == (code, "") and message in ran.err, ran.err
    assert not (tmp_path / "out").exists()


# -- the training commands of the published recipes, as their pages print them, with small models and the tasks'
# files


CLAIMS = tiny.claims()[:12]
LABELS = ("Supports", "Refutes", "Not Enough Information")


@pytest.fixture(scope="module")
def task_files(tmp_path_factory) -> Path:
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


def trained(command: str, task_files: Path, task: str, output: Path, *more: object):
    """What a command of a recipe's page prints as JSON, with files for its words in capitals."""
    words = shlex.split(command.removeprefix("ccheck "))
    names = {"CORPUS": f"{task}-corpus.csv", "TRAIN": f"{task}-train.csv", "DEV": f"{task}-dev.csv"}
    if task == "posts":
        names |= {"TRAIN": "posts-train.tsv", "DEV": "posts-dev.tsv"}
    words = [str(task_files / names[word]) if word in names else word for word in words]
    words[words.index("--output") + 1] = str(output)
    ran = ccheck(*words, *more, "--json")
    assert ran.code == 0, ran.err
    return ran.objects[0], ran.err


def command_of(recipe: str, model: str) -> str:
    return load_recipe(recipe).fine_tuned[model].train


def test_every_fine_tuned_model_has_a_whole_command():
    for name in recipe_names():
        for made in load_recipe(name).fine_tuned.values():
            task_files = (
                ("--train TRAIN",)
                if " stance " in made.train
                else ("--corpus CORPUS", "--claims TRAIN", "--qrels TRAIN")
            )
            assert all(part in made.train for part in (*task_files, "--preset ", "--output ")), made.train


def test_climatecheck_hybrid_s_embedder(task_files, tmp_path):
    command = command_of("climatecheck-hybrid", "bge-m3-climatecheck")
    report, said = trained(command, task_files, "climate", tmp_path / "out", "--base", task_files / "encoder")
    # 24 triplets: an abstract that was judged not to bear on its own claim for each relevant one.
    assert "embedder: 24 negatives; 24 of them were judged not relevant to their claim" in report["notes"]
    assert report["figures"] == [] and "none to measure on" in said, "no claim is held back"
    assert any("those of the last step" in note for note in report["notes"])


def test_climatecheck_hybrid_s_reranker(task_files, tmp_path):
    command = command_of("climatecheck-hybrid", "ms-marco-MiniLM-L6-v2-climatecheck")
    stand_ins = (f"naver/splade-v3={task_files / 'splade'}", f"bge-m3-climatecheck={task_files / 'encoder'}")
    more = ("--base", task_files / "encoder", *(part for one in stand_ins for part in ("--replace", one)))
    report, _ = trained(command, task_files, "climate", tmp_path / "out", *more)
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
def test_climatecheck_ensemble_s_rerankers(task_files, tmp_path, number):
    model = f"bge-reranker-{'v2-m3' if number == 5 else 'large'}-climatecheck-{number}"
    command = command_of("climatecheck-ensemble", model)
    report, _ = trained(command, task_files, "climate", tmp_path / "out", "--base", task_files / "encoder")
    # For each of 24 relevant abstracts 5 from the reranked BM25 list and 10 from the corpus.
    (note,) = [note for note in report["notes"] if note.startswith("first: ")]
    assert note.startswith("first: 120 hard and 240 random negatives"), note
    assert report["figures"] == []


def test_the_ensemble_s_negatives_mined_once(task_files, tmp_path):
    mined = tmp_path / "negatives.jsonl"
    store = tmp_path / "store"
    assert (
        ccheck("ingest", task_files / "climate-corpus.csv", "--store", store, "--recipe", "climatecheck-ensemble").code
        == 0
    )
    pairs = ("--claims", task_files / "climate-train.csv", "--qrels", task_files / "climate-train.csv")
    ran = ccheck(
        *("mine", *pairs, "--store", store, "--recipe", "climatecheck-ensemble", "--rerank", task_files / "encoder"),
        *("--margin", 0, "--corpus", task_files / "climate-corpus.csv", "-o", mined, "--quiet"),
    )
    assert ran.code == 0, ran.err
    command = command_of("climatecheck-ensemble", "bge-reranker-large-climatecheck-3")
    how = ("--base", task_files / "encoder", "--negatives", mined, "--set", "epochs=1")
    report, _ = trained(command, task_files, "climate", tmp_path / "out", *how)
    (note,) = [note for note in report["notes"] if note.startswith("first: ")]
    assert note.startswith("first: 120 hard and 240 random negatives"), "as many of each kind as were mined"


def test_checkthat_4b_s_embedder(task_files, tmp_path):
    command = command_of("checkthat-4b", "inf-retriever-v1-checkthat4b")
    report, _ = trained(
        command, task_files, "posts", tmp_path / "out", "--base", task_files / "inf", "--set", "epochs=1"
    )
    assert [figure["group"] for figure in report["figures"] if figure["metric"] == "P@100"] == ["by claim"]
    assert {figure["claims"] for figure in report["figures"]} == {20}, "all development posts, none left out"
    assert not any("negatives" in note for note in report["notes"]), "only those of the batch"
    card = (tmp_path / "out" / "README.md").read_text()
    assert "batch = 4" in card and "accumulate = 16" in card


@pytest.mark.parametrize("base", ["mnli", pytest.param("scifact", marks=pytest.mark.slow)])
def test_climatecheck_hybrid_s_stance_models(task_files, tmp_path, base):
    command = command_of("climatecheck-hybrid", f"DeBERTa-v3-base-{base}-climatecheck")
    report, said = trained(
        command, task_files, "climate", tmp_path / "out", "--base", task_files / "stance", "--set", "epochs=1"
    )
    assert "33 pairs to train on, 3 to choose the best epoch on" in said, "a tenth of each label"
    assert report["kind"] == "stance"
