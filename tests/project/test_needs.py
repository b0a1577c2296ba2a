"""A run can't be green because next to nothing ran: what a CI machine lacks, and how many tests passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NEEDY = f"{TESTS}/measure/test_datasets.py::test_climate_fever_and_averitec"
PLAIN = f"{TESTS}/project/test_lock.py"


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "CCHECK_CI_WITHOUT")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=TESTS.parent,
        env=environment | variables,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CI": "true"}, "climate-fever is missing on this CI machine"),
        ({"CI": "true", "CCHECK_CI_WITHOUT": "browser scifact"}, "climate-fever is missing on this CI machine"),
        ({"CI": "true", "CCHECK_CI_WITHOUT": "browser climate-fever"}, ""),
        ({}, ""),
    ],
)
def test_what_a_ci_machine_lacks_fails_the_run_unless_it_says_so(tmp_path, variables, said):
    done = run(NEEDY, CCHECK_SHARED_DATA=str(tmp_path), **variables)
    if said:
        assert done.returncode == 1 and said in done.stdout and "skipped" not in done.stdout, done.stdout
    else:
        assert done.returncode == 0 and "1 skipped" in done.stdout, done.stdout


def test_files_that_come_first_are_there():
    from order import LONGEST, TESTS

    assert [name for name in LONGEST if not (TESTS / name).exists()] == [] and len(LONGEST) == len(set(LONGEST))


def test_a_name_that_is_none_is_refused(tmp_path):
    done = run(NEEDY, CCHECK_SHARED_DATA=str(tmp_path), CCHECK_CI_WITHOUT="elastic")
    assert done.returncode != 0
    assert "CCHECK_CI_WITHOUT names elastic; it can name elasticsearch, browser, scifact" in done.stdout + done.stderr


def test_too_few_tests_are_a_failure_before_the_closing_line():
    done = run(PLAIN, "--at-least", "1000")
    assert done.returncode == 1 and "fewer than the 1000 that --at-least asks for" in done.stdout
    assert " passed in " in done.stdout.splitlines()[-1]
    assert run(PLAIN, "--at-least", "10").returncode == 0
