"""A script that calls the functions behind the commands gets what the commands print."""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, jsonl
from tiny_training import claims, corpus, qrels

from ccheck import Checker
from ccheck.core.adjust import Changes, resolved
from ccheck.core.errors import CcheckError, NotFound, UsageError
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings, resolve
from ccheck.core.stages import ModelStage
from ccheck.demo import CLAIMS, CORPUS
from ccheck.ingest import IngestOptions, ingest
from ccheck.lab.measure.session import load_recipes, open_session, read_evaluation_data
from ccheck.lab.measure.sweep import parse_grid, sweep
from ccheck.lab.train.from_store import mine_from_store
from ccheck.lab.train.mining import MiningOptions
from ccheck.pipeline.batch import check_batch, earlier_answers, settings_key
from ccheck.pipeline.claims import iter_claims, read_claims
from ccheck.pipeline.doctor import findings
from ccheck.pipeline.ingest import open_ingest, recipe_to_ingest
from ccheck.search import open_local_store, open_store
from ccheck.search.local.listing import local_stores


def settings(store: Path, **more: object) -> Settings:
    return resolve({"store": str(store), **more}).settings


def untimed(data: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in data.items() if name not in ("seconds_per_claim", "remembered")}


@pytest.mark.parametrize("rerank", [None, "none"])
def test_evaluate(papers, files, monkeypatch, rerank):
    if rerank is not None:
        monkeypatch.setenv("CCHECK_RERANK", rerank)
    recipes = ("bm25", "default")
    ran = ccheck("evaluate", *recipes, *files.options, "--store", papers, "--json", "--metric", "R@5")
    assert ran.code == 0, ran.err
    data = read_evaluation_data(str(files.claims), str(files.qrels), metrics=["R@5"])
    with Runtime(settings(papers)) as runtime, open_session(runtime) as session:
        made = dict(session.evaluate_all(load_recipes(recipes), data))
    assert [untimed(one) for one in ran.objects] == [untimed(one.to_dict()) for one in made.values()]
    assert rerank is None or not made["default"].recipe.rerankers


def test_sweep(papers, files):
    grid = "retrievers.bm25.fields.title=1.0,3.0"
    arguments = ("--store", papers, "--json", "--metric", "R@5", "--grid", grid)
    ran = ccheck("sweep", "bm25", *files.options, *arguments)
    assert ran.code == 0, ran.err
    data = read_evaluation_data(str(files.claims), str(files.qrels), metrics=["R@5"])
    with Runtime(settings(papers)) as runtime, open_session(runtime) as session:
        points = list(sweep(session, load_recipes(["bm25"])["bm25"], parse_grid([grid]), data))
    *told, _ = ran.objects
    assert [untimed(one) for one in told] == [
        untimed({"settings": dict(point.settings), **point.evaluation.to_dict()}) for point in points
    ]


def test_mine(tmp_path):
    documents = jsonl(
        tmp_path / "corpus.jsonl", *({"_id": one.id, "title": one.title, "text": one.text} for one in corpus())
    )
    asked = jsonl(tmp_path / "claims.jsonl", *({"_id": one.id, "text": one.text} for one in claims()))
    judged = tmp_path / "qrels.tsv"
    rows = [f"{claim}\t{document}\t{grade}" for claim, own in qrels().items() for document, grade in own.items()]
    judged.write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    assert ccheck("ingest", documents, "--store", tmp_path / "store", "--no-dense").code == 0
    where = ("--claims", asked, "--qrels", judged, "--store", tmp_path / "store", *BM25, "--margin", "0")
    ran = ccheck("mine", *where, "--corpus", documents, "-o", tmp_path / "command.jsonl", "--json")
    assert ran.code == 0, ran.err
    mined = mine_from_store(
        Runtime(settings(tmp_path / "store", recipe="bm25")),
        str(asked),
        str(judged),
        tmp_path / "script.jsonl",
        MiningOptions(margin=None),
        corpus=str(documents),
    )
    assert ran.objects[0]["rows"] == mined.rows > 0
    assert (tmp_path / "command.jsonl").read_bytes() == (tmp_path / "script.jsonl").read_bytes()


def test_query_and_its_resume(papers, tmp_path):
    file = jsonl(tmp_path / "claims.jsonl", {"_id": "1", "text": "tea"}, "nonsense", {"_id": "3", "text": "sea level"})
    arguments = ("query", "--claims", file, "--store", papers, *BM25, "--verdict", "none", "-k", "2")
    ran = ccheck(*arguments)
    (tmp_path / "answers.jsonl").write_text(ran.out.split("\n")[0] + "\n")
    resumed = ccheck(*arguments, "--resume", tmp_path / "answers.jsonl")
    assert (ran.code, resumed.code) == (7, 7), resumed.err
    recipe = resolved(settings(papers, recipe="bm25"), Changes(verdict="none"))
    with Checker(settings(papers, recipe="bm25"), recipe=recipe) as checker:
        key = settings_key(checker.settings, recipe, checker.store.name, 2, (), strict=False)
        earlier = earlier_answers(str(tmp_path / "answers.jsonl"), key, {("1", "tea"), ("3", "sea level")})
        made = [one.answer for one in check_batch(checker, iter_claims(file), k=2, key=key, earlier=earlier)]
    assert list(earlier) == [("1", "tea")]
    for told in (ran.objects, resumed.objects):
        assert [{**one, "timings_ms": {}} for one in told] == [{**one, "timings_ms": {}} for one in made]


def test_doctor(papers):
    ran = ccheck("doctor", "--store", papers, "--json")
    found = [asdict(finding) for finding in findings(resolve({"store": str(papers)}))]
    assert [one for one in ran.objects if one["part"] != "setting"] == [
        one for one in found if one["part"] != "setting"
    ]
    assert ran.code == next((one["exit_code"] for one in found if one["exit_code"]), 0)


def test_ingest(papers, tmp_path):
    stores = {name: str(tmp_path / name) for name in ("command", "script")}
    recipe = tmp_path / "units.toml"
    recipe.write_text('extends = "bm25"\n[ingest.units.sentences]\ncut = "sentence"\n', encoding="utf-8")
    ran = ccheck("ingest", CORPUS, "--store", stores["command"], "--recipe", recipe, "--json")
    assert ran.code == 0, ran.err
    own = settings(Path(stores["script"]))
    with Runtime(own) as runtime, open_ingest(runtime, recipe_to_ingest(own, str(recipe))) as opened:
        report = ingest([str(CORPUS)], opened.store, opened.encoders, IngestOptions())
    assert ran.objects[0]["added"] == report.added > 0
    described = []
    for store in stores.values():
        with open_store(settings(Path(store))) as made:
            described.append((made.count(), made.info().layout))
    assert described[0] == described[1] and described[0][1].units


def test_stores_are_listed_checked_and_deleted(papers, monkeypatch, tmp_path):
    monkeypatch.setenv("CCHECK_DATA_DIR", str(tmp_path))
    for name in ("one", "two"):
        shutil.copytree(papers, tmp_path / name)
    (tmp_path / "two" / "notes.txt").write_text("mine")
    listed = [
        {"store": one.name, "documents": one.documents, "folder": str(one.folder)} for one in local_stores(tmp_path)
    ]
    assert ccheck("index", "list", "--json").objects == listed and len(listed) == 2
    checked = ccheck("index", "check", "--store", "local:one", "--json").objects
    with open_local_store(resolve({"store": "local:one"}).settings, "") as store:
        assert checked == [{"store": store.name, "damaged": False, "problems": store.check()}]
        assert store.removal() in ccheck("index", "delete", "--store", "local:one", stdin="n").err
        assert store.drop() == []
    ran = ccheck("index", "delete", "--store", "local:two", "--yes")
    assert ran.code == 0 and str(tmp_path / "two" / "notes.txt") in ran.err
    gone = ccheck("index", "delete", "--store", "local:one", "--yes")
    with pytest.raises(NotFound) as caught, open_store(resolve({"store": "local:one"}).settings) as store:
        store.removal()
    assert gone.code == 4 and str(caught.value) in gone.err


def test_what_only_local_stores_can_do(monkeypatch):
    with pytest.raises(UsageError, match=r"papers is not a local store\. Elasticsearch checks its own files"):
        open_local_store(resolve({"store": "http://127.0.0.1:9/papers"}).settings, "Elasticsearch checks its own files")


def test_serve_has_the_defaults_of_the_function(monkeypatch):
    load = pytest.importorskip("ccheck.rerank.server.load")
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(load.load_app).parameters.items()
        if parameter.default is not inspect.Parameter.empty and name != "notify"
    }
    given = {}

    def load_app(models, runtime, stage, **options):
        given.update(options, stage=stage)
        raise NotFound("not loaded here")

    monkeypatch.setattr(load, "load_app", load_app)
    assert ccheck("serve", "rerank", "--model", "some-model", "--port", "0").code == 4
    assert given.pop("limits") == load.Limits() and given.pop("access") == load.Access(None, ("127.0.0.1",))
    assert {name: given[name] for name in defaults if name in given} == {
        name: default for name, default in defaults.items() if name in given
    }
    assert given["stage"] == ModelStage()


# -- claims have one reader


@pytest.mark.parametrize(
    "record",
    [
        {"_id": "1", "text": "tea is healthy"},
        {"id": 1, "claim": "tea is healthy"},
        {"claim_id": "1", "claim": "tea is healthy"},
        {"qid": "1", "query": "tea is healthy"},
        {"topic": 1, "tweet_text": " tea is healthy "},
    ],
)
def test_claims_have_the_same_fields_everywhere(papers, tmp_path, record):
    file = jsonl(tmp_path / "claims.jsonl", record)
    (claim,) = read_claims(file)
    ran = ccheck("query", "--claims", file, "--store", papers, *BM25, "--verdict", "none")
    assert ran.code == 0, ran.err
    (answer,) = ran.objects
    assert answer["claim"] == {"id": claim.id, "text": claim.text} == {"id": "1", "text": "tea is healthy"}


def test_claims_come_in_any_format_that_evaluations_read(papers, tmp_path):
    (tmp_path / "topics.tsv").write_text("1\ttea is healthy\n2\tcoffee is healthy\n")
    ran = ccheck("query", "--claims", tmp_path / "topics.tsv", "--store", papers, *BM25, "--verdict", "none")
    assert ran.code == 0, ran.err
    assert [one["claim"]["id"] for one in ran.objects] == ["1", "2"]


def test_bad_claims_have_the_same_reasons_everywhere(papers, tmp_path):
    file = tmp_path / "claims.jsonl"
    file.write_text('nonsense\n{"_id": "1"}\n{"_id": "2", "text": "a"}\n{"_id": "2", "text": "b"}\n')
    problems = [record.problem for record in iter_claims(file)]
    ran = ccheck("query", "--claims", file, "--store", papers, *BM25, "--verdict", "none")
    assert ran.code == 7, ran.err
    assert [answer.get("error") for answer in ran.objects] == problems
    with pytest.raises(CcheckError) as caught:
        read_claims(file)
    assert all(problem in str(caught.value) for problem in problems if problem)


def test_the_sample_claims_are_read_alike():
    told = [json.loads(line)["text"] for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
    assert [claim.text for claim in read_claims(CLAIMS)] == told


# -- exit codes


@pytest.mark.parametrize(("lines", "code"), [(["x", "y"], 5), (["x", '{"_id": "1", "text": "tea"}'], 7)])
def test_nothing_done_is_not_done_in_part(papers, tmp_path, lines, code):
    file = tmp_path / "claims.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    ran = ccheck("query", "--claims", file, "--store", papers, *BM25, "--verdict", "none")
    assert ran.code == code, ran.err


@pytest.mark.parametrize("command", [("evaluate", "bm25"), ("sweep", "bm25", "--grid", "retrievers.bm25.depth=5,9")])
def test_no_claim_that_can_be_checked(papers, files, command):
    jsonl(files.claims, *({"_id": claim.id, "text": "a" * 200_000} for claim in read_claims(files.claims)))
    assert ccheck(*command, *files.options, "--store", papers).code == 5
    asked = ccheck("query", "--claims", files.claims, "--store", papers, *BM25, "--verdict", "none")
    assert asked.code == 5, asked.err
