"""A script that calls the functions behind the commands gets what the commands print."""

from __future__ import annotations

import shutil

import pytest
from cli_runs import BM25, ccheck

from ccheck.core.errors import NotFound
from ccheck.core.settings import resolve
from ccheck.core.stages import ModelStage
from ccheck.search import open_local_store, open_store
from ccheck.search.open import local_stores


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


# -- exit codes


@pytest.mark.parametrize(("lines", "code"), [(["x", "y"], 5), (["x", '{"_id": "1", "text": "tea"}'], 7)])
def test_nothing_done_is_not_done_in_part(papers, tmp_path, lines, code):
    file = tmp_path / "claims.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    ran = ccheck("query", "--claims", file, "--store", papers, *BM25, "--verdict", "none")
    assert ran.code == code, ran.err
