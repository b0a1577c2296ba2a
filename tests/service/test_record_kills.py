"""Processes that are killed while they check claims lose nothing that they said was kept; the benchmark does more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "record_kills.py"


@pytest.mark.parametrize("where", ["local", "elasticsearch"])
def test_killed_processes_lose_no_check_that_was_kept(request: pytest.FixtureRequest, where: str) -> None:
    checks = 200 if where == "local" else 50
    arguments = ["--checks", str(checks), "--threads", "8", "--processes", "2", "--seed", "3"]
    if where == "elasticsearch":
        index = request.getfixturevalue("elasticsearch_index")
        arguments += ["--store", f"{request.getfixturevalue('elasticsearch_url')}/{index}"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"([\d,]+) answers of ([\d,]+) checks .* (\d+) killed: 0 lost, 0 changed, 0 twice", done.stdout)
    assert said is not None and int(said[3]) >= 2, done.stdout
    assert int(said[2].replace(",", "")) >= checks
