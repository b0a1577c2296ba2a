"""A run can't be green because next to nothing ran: what a CI machine lacks, and how many tests ran."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NEEDY = f"{TESTS}/measure/test_datasets.py::test_climate_fever_and_averitec"


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


PROJECT = """
import pytest
from needs import does_not_apply

@pytest.mark.skipif(True, reason="another system")
def test_of_another_system(): ...

def test_of_other_versions():
    does_not_apply("has no such thing")

def test_passes(): ...

def test_of_a_package():
    pytest.importorskip("surely_not_installed")
"""
MODULE = """
import pytest
pytest.importorskip("surely_not_installed")
def test_passes(): ...
"""


def test_skips_that_no_part_explains_fail_on_ci_alone(tmp_path):
    tests = pytest_folder(tmp_path, test_some=PROJECT)
    here, on_ci = run(*tests), run(*tests, CI="1")
    assert here.returncode == 0 and "1 passed, 3 skipped" in here.stdout, here.stdout
    assert on_ci.returncode == 1 and "1 failed, 1 passed, 2 skipped" in on_ci.stdout, on_ci.stdout
    tests = pytest_folder(tmp_path / "modules", test_whole=MODULE)
    assert run(*tests, CI="1").returncode == 2 and run(*tests).returncode == 5


def test_marks_skip_for_other_systems_and_on_demand_alone():
    """A program or package that is missing goes through tests/needs.py."""
    marks = [
        f"{file.relative_to(TESTS)}: {condition}"
        for file in TESTS.rglob("test_*.py")
        for condition in re.findall(r"mark\.skipif\((.*)", file.read_text(encoding="utf-8"))
        if re.search(r"which\(|find_spec|import_module", condition)
    ]
    assert marks == []


def pytest_folder(folder, **modules):
    """Arguments that run these modules as a room, with the plugins that are tested."""
    room = folder / "tests" / "some"
    room.mkdir(parents=True)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS}\n")
    for name, text in modules.items():
        (room / f"{name}.py").write_text(text)
    return ["-c", str(folder / "pytest.ini"), f"--rootdir={folder}", "-p", "needs", "-p", "count", str(room)]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_tests_that_vanish_are_a_failure_before_the_closing_line(tmp_path, processes):
    many = "import pytest\n@pytest.mark.parametrize('n', range(60))\ndef test_it(n): ...\n"
    tests = [*pytest_folder(tmp_path, test_many=many), f"--count-file={tmp_path / 'count.txt'}"]
    assert run(*tests, "--collect-only", "--record-count").returncode == 0
    assert (tmp_path / "count.txt").read_text() == "some 60\n"
    tests += ["--compare-count", "-n", processes]
    assert run(*tests).returncode == 0
    (tmp_path / "count.txt").write_text("gone 5\nsome 61\n")
    done = run(*tests)
    assert done.returncode == 1 and "gone ran 0 of 5 tests; some ran 60 of 61 tests" in done.stdout
    assert " passed in " in done.stdout.splitlines()[-1]
    (tmp_path / "count.txt").write_text("some 59\n")
    done = run(*tests)
    assert done.returncode == 0 and "1 more tests ran" in done.stdout
    (tmp_path / "count.txt").write_text("some 50\n")
    assert run(*tests).returncode == 1
