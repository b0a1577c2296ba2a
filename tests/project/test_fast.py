"""`make check-fast` runs something of every room, and `make check` everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

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
    assert {test.split("/")[1] for test in collected("--fast")} == rooms


def test_without_it_nothing_is_left_out():
    one = "tests/cli/test_commands.py"
    fast, all_ = collected("--fast", one), collected(one)
    assert fast < all_ and any("shell_finds_it" in test for test in all_ - fast)
    addopts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert not {"--fast", "-m", "-k", "--deselect", "--ignore"} & {option.split("=")[0] for option in addopts}
    recipes = re.findall(r"^(\S+):.*\n\t\$\(BIN\)/pytest (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert dict(recipes) == {"check": "$(PYTEST)", "check-fast": "--fast -q --numprocesses 2 $(PYTEST)"}
