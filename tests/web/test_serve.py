"""`ccheck serve web` as a program: who is let in, and how it stops."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from cli_runs import ccheck, jsonl
from web_servers import CLAIM, PAPERS, serving

from ccheck import open as open_checker


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_let_in_only_with_keys(host, monkeypatch):
    said = ccheck("serve", "web", "--host", host, "--port", 0)
    assert said.code == 2 and "CCHECK_API_KEYS=" in said.err
    monkeypatch.setenv("CCHECK_API_KEYS", "desk:read:short")
    said = ccheck("serve", "web", "--host", host, "--port", 0)
    assert said.code == 2 and "at least 16" in said.err and "short" not in said.err


def test_it_serves_and_stops(tmp_path: Path):
    ccheck("ingest", jsonl(tmp_path / "papers.jsonl", *PAPERS), "--store", tmp_path / "store", "--no-dense")
    asked = ("serve", "web", "--store", tmp_path / "store", "--recipe", "bm25", "--port", 0)
    with serving(tmp_path / "log", *asked) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert client.post("/v1/checks", json={"claim": CLAIM, "wait": 60}).json()["status"] == "done"
        # It is stopped with an open connection.


def test_the_reranker_that_is_served_is_the_one_that_checks_use(tmp_path: Path, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    from tiny_rerankers import make_encoder

    from ccheck.cli.serve import _reranker_of

    monkeypatch.setattr("ccheck.rerank.server.canary.check_scorer", lambda *_: None)  # its weights are random
    model = make_encoder(tmp_path / "model")
    with open_checker(str(tmp_path / "store"), recipe="bm25", rerank=str(model), device="cpu") as checker:
        checker.ingest(PAPERS, dense=False)
        app = _reranker_of(checker)
        ((_, reranker),) = checker.plan().rerankers.values()
        assert app.state.service.scorer is reranker.scorer
    said = ccheck("serve", "web", "--serve-reranker", "--store", tmp_path / "store", "--recipe", "bm25", "--port", 0)
    assert said.code == 2 and "Name one with --rerank" in said.err
