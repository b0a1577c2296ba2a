"""`make check-fast` runs something of every room, and `make check` everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import fast
import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def collected(*arguments: str) -> set[str]:
    """The tests that pytest finds."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    return {line for line in ran.stdout.splitlines() if "::" in line}


def test_it_runs_something_of_every_room():
    rooms = {folder.name for folder in (ROOT / "tests").iterdir() if any(folder.glob("test_*.py"))}
    found = collected("--fast")
    assert {test.split("/")[1] for test in found} == rooms
    assert not {test.partition("[")[0] for test in found} & fast.recorded()


def test_slow_tests_are_recorded_and_others_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(fast, "RECORDED", tmp_path / "slow")
    monkeypatch.setattr(fast, "recorded", lambda: frozenset({"b::was_slow", "other::not_run"}))
    recorder = fast.Recorder()
    recorder.seconds = {"a::slow": 1.0, "b::was_slow": 0.01, "c::never": 0.0}
    recorder.pytest_sessionfinish()
    assert (tmp_path / "slow").read_text() == "a::slow\nother::not_run\n"


def test_without_it_nothing_is_left_out():
    one = "tests/cli/test_commands.py"
    few, all_ = collected("--fast", one), collected(one)
    assert few < all_ and any("shell_finds_it" in test for test in all_ - few)
    addopts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert not {"--fast", "-m", "-k", "--deselect", "--ignore"} & {option.split("=")[0] for option in addopts}
    recipes = re.findall(r"\$\(BIN\)/pytest (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    fast = "--fast -q --numprocesses 3 -o tmp_path_retention_policy=failed $(PYTEST)"
    count = "--collect-only -q --record-count >/dev/null"
    assert recipes == ["$(PYTEST)", count, fast]
