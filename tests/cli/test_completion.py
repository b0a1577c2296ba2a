"""Completion: through click's own interface, as shells ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import CORPUS, ccheck
from click.shell_completion import BashComplete

from ccheck.cli import cli


def completions(*arguments: str) -> list[tuple[str, str]]:
    """What is offered for the last argument: (type, value)."""
    shell = BashComplete(cli, {}, "ccheck", "_CCHECK_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions([*arguments[:-1]], arguments[-1])]


def values(*arguments: str) -> list[str]:
    return [value for kind, value in completions(*arguments) if kind == "plain"]


def test_recipes_and_their_ablations() -> None:
    assert values("query", "--recipe", "bm") == ["bm25"]
    assert "default" in values("evaluate", "bm25", "") and "bm25" in values("recipes", "show", "b")
    assert "climatecheck-hybrid:bm25-dense" in values("query", "--recipe", "climatecheck-hybrid:bm25-d")
    assert completions("query", "--recipe", "./mine") == [("file", "./mine")]


def test_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCHECK_DATA_DIR", str(tmp_path / "data"))
    assert ccheck("ingest", CORPUS, "--store", "local:seas", "--no-dense", "-q").code == 0
    assert values("query", "--store", "") == values("index", "info", "--store", "lo") == ["local:seas"]
    monkeypatch.setenv("CCHECK_LLM_CONCURRENCY", "many")  # a wrong setting is no error
    assert values("query", "--store", "") == []


def test_files_and_choices() -> None:
    for words in (["query", "--claims"], ["ingest"], ["figures"], ["report"], ["calibrate"], ["compare", "a.run"]):
        assert completions(*words, "my") == [("file", "my")], words
    assert values("query", "--verdict", "l") == ["llm"] and completions("query", "--nothing") == []
