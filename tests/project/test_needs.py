"""A run can't be green because next to nothing ran: what a CI machine lacks, and how many tests ran."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import fast
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
    ("variables", "fails", "said"),
    [
        ({"CI": "true"}, True, "climate-fever is missing on this CI machine"),
        ({"CI": "true", "CCHECK_CI_WITHOUT": "browser climate-fever"}, False, "1 skipped"),
        ({}, False, "1 skipped"),
        ({"CCHECK_CI_WITHOUT": "elastic"}, True, "names elastic; it can name elasticsearch, browser, scifact"),
    ],
)
def test_what_a_ci_machine_lacks_fails_the_run_unless_it_says_so(tmp_path, variables, fails, said):
    done = run(NEEDY, CCHECK_SHARED_DATA=str(tmp_path), **variables)
    assert (done.returncode != 0) == fails and said in done.stdout + done.stderr, done.stdout


def test_files_that_come_first_are_there_and_marks_skip_for_other_systems_alone():
    from conftest import LONGEST

    assert [name for name in LONGEST if not (TESTS / f"{name}.py").exists()] == [] and len(LONGEST) == len(set(LONGEST))
    # A program or package that is missing goes through tests/needs.py.
    marks = [
        f"{file.relative_to(TESTS)}: {condition}"
        for file in TESTS.rglob("test_*.py")
        for condition in re.findall(r"mark\.skipif\((.*)", file.read_text(encoding="utf-8"))
        if re.search(r"which\(|find_spec|import_module", condition)
    ]
    assert marks == []


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


# -- `make check-fast` runs something of every room, and `make check` everything


def collected(*arguments: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    ran = subprocess.run(command, cwd=TESTS.parent, env=os.environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    return {line for line in ran.stdout.splitlines() if "::" in line}


@pytest.mark.slow
def test_it_runs_something_of_every_room():
    rooms = {folder.name for folder in TESTS.iterdir() if any(folder.glob("test_*.py"))}
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


@pytest.mark.slow
def test_without_it_nothing_is_left_out():
    one = "tests/cli/test_commands.py"
    few, all_ = collected("--fast", one), collected(one)
    assert few < all_ and any("shell_finds_it" in test for test in all_ - few)
    addopts = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert not {"--fast", "-m", "-k", "--deselect", "--ignore"} & {option.split("=")[0] for option in addopts}
    recipes = re.findall(r"\$\(BIN\)/pytest (.*)$", (TESTS.parent / "Makefile").read_text(), re.MULTILINE)
    assert recipes[0] == "$(PYTEST)" and [one for one in recipes if "--fast" in one] == recipes[2:]
