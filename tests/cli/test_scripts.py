"""A script that calls the functions behind the commands gets what the commands print."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, jsonl

from ccheck import Checker
from ccheck.core.adjust import Changes, resolved
from ccheck.core.errors import NotFound
from ccheck.core.settings import Settings, resolve
from ccheck.core.stages import ModelStage
from ccheck.pipeline.batch import check_batch, settings_key
from ccheck.pipeline.claims import iter_claims, read_claims
from ccheck.search import open_local_store, open_store
from ccheck.search.open import local_stores


def settings(store: Path, **more: object) -> Settings:
    return resolve({"store": str(store), **more}).settings


def test_query_of_a_file(papers, tmp_path):
    file = jsonl(tmp_path / "claims.jsonl", {"_id": "1", "text": "tea"}, "nonsense", {"_id": "3", "text": "sea level"})
    arguments = ("query", "--claims", file, "--store", papers, *BM25, "--verdict", "none", "-k", "2")
    ran, resumed = ccheck(*arguments), ccheck(*arguments, "--resume")
    assert (ran.code, resumed.code) == (7, 7), resumed.err
    recipe = resolved(settings(papers, recipe="bm25"), Changes(verdict="none"))
    with Checker(settings(papers, recipe="bm25"), recipe=recipe) as checker:
        key = settings_key(checker.settings, recipe, checker.store.name, 2, (), strict=False)
        made = [one.answer for one in check_batch(partial(checker.check_many, k=2), iter_claims(file), key=key)]
    for told in (ran.objects, resumed.objects):
        assert [{**one, "timings_ms": {}} for one in told] == [{**one, "timings_ms": {}} for one in made]


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


def test_serve_has_the_defaults_of_the_function(monkeypatch):
    app = pytest.importorskip("ccheck.rerank.server.app")
    given = []

    def load_app(name, runtime, *options):
        given.extend(options)
        raise NotFound("not loaded here")

    monkeypatch.setattr(app, "load_app", load_app)
    assert ccheck("serve", "rerank", "--model", "some-model", "--port", "0", "--device", "cpu").code == 4
    assert given == [ModelStage(model="some-model"), app.Limits(), app.Access(None, ("127.0.0.1",)), "order"]


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


# -- exit codes


@pytest.mark.parametrize(("lines", "code"), [(["x", "y"], 5), (["x", '{"_id": "1", "text": "tea"}'], 7)])
def test_nothing_done_is_not_done_in_part(papers, tmp_path, lines, code):
    file = tmp_path / "claims.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    ran = ccheck("query", "--claims", file, "--store", papers, *BM25, "--verdict", "none")
    assert ran.code == code, ran.err
