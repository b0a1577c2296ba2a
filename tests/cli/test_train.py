"""`ccheck train embedder` and `ccheck train reranker`, from files to a model that is used."""

from __future__ import annotations

import json

import pytest
import tiny_training as tiny
from cli_runs import ccheck
from tiny_rerankers import make_encoder

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
