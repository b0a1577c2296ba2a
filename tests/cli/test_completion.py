"""Completion: through click's own interface, and once through bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import CORPUS, ccheck

from ccheck.cli import cli
from ccheck.cli.completion import Bash, Fish, Zsh


def completions(*arguments: str) -> list[tuple[str, str]]:
    """What is offered for the last argument: (type, value)."""
    shell = Bash(cli, {}, "ccheck", "_CCHECK_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions([*arguments[:-1]], arguments[-1])]


def values(*arguments: str) -> list[str]:
    return [value for kind, value in completions(*arguments) if kind == "plain"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CCHECK_DATA_DIR", str(tmp_path / "data"))
    assert ccheck("ingest", CORPUS, "--store", "local:seas", "--no-dense", "-q").code == 0
    return "local:seas"


def test_recipes_and_their_ablations() -> None:
    assert values("query", "--recipe", "bm") == ["bm25"]
    assert "default" in values("evaluate", "bm25", "") and "bm25" in values("recipes", "show", "b")
    assert "climatecheck-hybrid:bm25-dense" in values("query", "--recipe", "climatecheck-hybrid:bm25-d")


def test_stores_and_fields(store: str) -> None:
    assert values("query", "--store", "") == values("index", "info", "--store", "lo") == [store]
    fields = values("query", "--store", store, "--filter", "")
    assert {"year=", "year>=", "year<=", "journal="} <= set(fields) and "journal>=" not in fields
    assert values("index", "sample", "--store", store, "--filter", "jou") == ["journal="]
    assert values("query", "--store", "local:nothing", "--filter", "") == []
    assert values("query", "--store", "http://127.0.0.1:9/papers", "--filter", "") == []  # nobody is asked


@pytest.mark.parametrize("kind", [Bash, Zsh, Fish])
def test_everything_else_is_a_file(kind: type) -> None:
    shell = kind(cli, {}, "ccheck", "_CCHECK_COMPLETE")
    for arguments, typed in ((["query", "--claims"], "my"), (["ingest"], "pap"), (["query", "--recipe"], "./mine")):
        (item,) = shell.get_completions(arguments, typed)
        assert (item.type, item.value) == ("file", typed)
    assert shell.get_completions(["query"], "--nothing") == []


def test_a_wrong_setting_is_no_error_of_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCHECK_LLM_CONCURRENCY", "many")
    assert values("query", "--store", "") == []


def test_bash(store: str, tmp_path: Path) -> None:
    """bash itself cuts words at : and =, and completes file names with blanks in them."""
    program = tmp_path / "bin" / "ccheck"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ccheck "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_CCHECK_COMPLETE=bash_source ccheck)"
        compopt() { printf 'compopt %s %s\\n' "$@"; }
        typed() {
            COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2)) COMPREPLY=()
            _ccheck_completion ccheck
            printf '%s\\n' "${COMPREPLY[@]}"
        }
        typed "ccheck query --store local:se" ccheck query --store local : se
        typed "ccheck query --store local:seas --filter jou" ccheck query --store local : seas --filter jou
        typed "ccheck query --claims 'my cl" ccheck query --claims "'my cl"
        complete -p ccheck
    """
    environ = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "--norc", "-c", script], env=environ, capture_output=True, text=True, timeout=120)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "seas",
        *("compopt -o nospace", "journal="),
        *("compopt -o default", ""),
        "complete -o nosort -F _ccheck_completion ccheck",
    ]
