"""`ccheck train learned-reranker` on the command line, and `ccheck query` with what it made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_training
from cli_runs import ccheck, jsonl

from ccheck.core.runtime import Runtime
from ccheck.core.settings import resolve
from ccheck.lab.train.from_store import learn_reranker_from_store
from ccheck.lab.train.learned_reranker import LearnedRerankerOptions, save_learned_reranker

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Each document shares its number with its claim and all of its words with its neighbour."""
    folder = tmp_path_factory.mktemp("learned")
    documents = tiny_training.corpus()
    jsonl(folder / "corpus.jsonl", *({"_id": one.id, "title": one.title, "text": one.text} for one in documents))
    judged = {key: next(iter(grades)) for key, grades in tiny_training.qrels().items()}
    words = {one.id: one.title.split()[4] for one in documents}
    jsonl(
        folder / "claims.jsonl",
        *({"_id": key, "text": f"The {words[id_]} fell in site {id_[-1]}."} for key, id_ in judged.items()),
    )
    lines = [f"{key}\t{id_}\t1\n" for key, id_ in judged.items()]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    assert ccheck("ingest", folder / "corpus.jsonl", "--store", folder / "store", "--no-dense").code == 0
    return folder


def train(files: Path, output: Path, recipe: object, *more: object):
    return ccheck(
        *("train", "learned-reranker", "--claims", files / "claims.jsonl", "--qrels", files / "qrels.tsv"),
        *("--store", files / "store", "--recipe", recipe, "--output", output, *more),
    )


def test_from_files_to_a_query(files, tmp_path):
    ran = train(files, tmp_path / "learned.json", "bm25", "--depth", "10", "--json")
    assert ran.code == 0, ran.err
    (said,) = ran.objects
    made = json.loads((tmp_path / "learned.json").read_text())
    assert said["claims"] == made["claims"] == 40 and made["retrievers"] == ["bm25"] and made["recipe"] == "bm25"
    assert [figure["group"] for figure in said["figures"]] == ["by document", "by claim"]
    (tmp_path / "mine.toml").write_text('extends = "bm25"\n[rerankers.learned]\nmodel = "learned.json"\n')
    ran = ccheck(
        "query", "The coral fell in site 2.", "--store", files / "store", "--recipe", tmp_path / "mine.toml", "--json"
    )
    assert ran.code == 0, ran.err
    assert {"bm25", "learned"} <= ran.objects[0]["evidence"][0]["scores"].keys()
    # For a person: figures with their intervals.
    ran = train(files, tmp_path / "learned.json", "bm25", "--depth", "10")
    assert ran.code == 0 and "nDCG@10 by document (40)" in ran.out and "[" in ran.out


def test_a_script_trains_the_same(files, tmp_path):
    assert train(files, tmp_path / "command.json", "bm25", "--depth", "10").code == 0
    settings = resolve({"store": str(files / "store"), "recipe": "bm25"}).settings
    options = LearnedRerankerOptions(depth=10)
    claims, qrels = str(files / "claims.jsonl"), str(files / "qrels.tsv")
    report = learn_reranker_from_store(Runtime(settings), claims, qrels, options)
    save_learned_reranker(report.model, tmp_path / "script.json")
    assert (tmp_path / "script.json").read_bytes() == (tmp_path / "command.json").read_bytes()


def test_with_the_scores_of_rerankers(files, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "late.toml").write_text('extends = "bm25"\n[rerankers.late]\ndepth = 4\nalpha = 0\n')
    ran = train(files, tmp_path / "learned.json", tmp_path / "late.toml", "--depth", "10", "--rerankers")
    assert ran.code == 0, ran.err
    assert "late" in ran.out
    assert json.loads((tmp_path / "learned.json").read_text())["rerankers"] == ["late"]
    (tmp_path / "mine.toml").write_text('extends = "late.toml"\n[rerankers.learned]\nmodel = "learned.json"\n')
    asked = ("query", "The coral fell in site 2.", "--store", files / "store", "--json")
    ran = ccheck(*asked, "--recipe", tmp_path / "mine.toml")
    assert ran.code == 0, ran.err
    assert {"bm25", "late", "learned"} <= ran.objects[0]["evidence"][0]["scores"].keys()
    # Where that reranker does not run, it is said and nothing is guessed.
    (tmp_path / "without.toml").write_text('extends = "bm25"\n[rerankers.learned]\nmodel = "learned.json"\n')
    ran = ccheck(*asked, "--recipe", tmp_path / "without.toml")
    assert "was trained with scores of bm25, late" in json.dumps(ran.objects[0]["warnings"]) + ran.err


def test_a_reranker_that_is_not_here_is_not_learned_from(files, tmp_path):
    """The default recipe takes the best reranker there is: mostly late interaction alone."""
    (tmp_path / "auto.toml").write_text(
        'extends = "bm25"\n[rerankers.late]\ndepth = 4\n[rerankers.best]\nmodel = "auto"\n'
    )
    ran = train(files, tmp_path / "learned.json", tmp_path / "auto.toml", "--depth", "10", "--rerankers")
    assert ran.code == 0, ran.err
    assert json.loads((tmp_path / "learned.json").read_text())["rerankers"] == ["late"]


def test_why_too_few_claims_are_left_is_said(files, tmp_path):
    """What a retriever does not find has no score of it to learn from."""
    claims = [json.loads(line) | {"text": "zzz"} for line in (files / "claims.jsonl").read_text().splitlines()]
    jsonl(tmp_path / "claims.jsonl", *claims)
    ran = train(files, tmp_path / "learned.json", "bm25", "--claims", tmp_path / "claims.jsonl")
    assert ran.code == 5
    assert "only 0 claims have a relevant document" in ran.err
    assert "40 claims were left out" in ran.err.lower() and "ids" not in ran.err


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("--rerankers",), 2, "has no rerankers to learn from"),
        (("--recipe", "dense"), 4, "has no vectors"),
        (("--claims", "missing.jsonl"), 4, "missing.jsonl"),
        (("--store", "nowhere"), 4, "nowhere"),
    ],
)
def test_what_can_not_be_done_says_what_to_do(files, tmp_path, change, code, message):
    ran = train(files, tmp_path / "learned.json", "bm25", *change)
    assert (ran.code, message in ran.err) == (code, True), ran.err
    assert not (tmp_path / "learned.json").exists()


def test_too_few_claims_are_refused(files, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join(f"{line}\n" for line in (files / "claims.jsonl").read_text().splitlines()[:5]))
    ran = train(files, tmp_path / "learned.json", "bm25", "--claims", few)
    assert ran.code != 0 and "training needs 20" in ran.err
