"""The runner of the benchmarks: rows of the page from figures that were kept, and the age of figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from paths import ROOT

sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]

import common  # noqa: E402
import run  # noqa: E402
from claims_of_docs import age, measured_code  # noqa: E402

TOY = '''"""What it measures."""
import sys
import common
from ccheck.core import words
ROWS = (
    common.Row(", sorted", "ours", "plain", "a plain side", "cpu", goal=1.3),
    common.Row("", "ours", "plain", "it", "cpu", throughput=True),
)
ours, plain = ({"cpu": float(one)} for one in sys.argv[1:])
common.told(common.in_rounds({"plain": lambda n: plain, "ours": lambda n: ours}, 3), ROWS, table=["| one |", "| --- |"])
'''
PAGE = """<!-- measured: by row -->
| script | plain side | ratio | goal | measured at |
| --- | --- | --- | --- | --- |
| `other.py` | theirs | 1.50 | – | {} 2026-11-20{} |

After it.

<!-- measured: benchmarks/toy.py {} -->
| one |
{}
The end.
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A repository with a benchmark that the runner knows and one that it doesn't."""
    _write(tmp_path / "benchmarks/toy.py", TOY)
    _write(tmp_path / "benchmarks/other.py", "from ccheck.search import Found\n")
    _write(tmp_path / "benchmarks/whole.py", "import subprocess\n")
    _write(tmp_path / "benchmarks/README.md", PAGE.format("0" * 8, "", f"{'0' * 8} 2026-11-20", "| +++ |\n"))
    for name in ("core/words.py", "core/other.py", "core/__init__.py", "search/other.py", "lab/__init__.py"):
        _write(tmp_path / name, '"""A room."""\n\nONE = 1\n')
    _write(tmp_path / "search/__init__.py", "from .find import Found\n")
    _write(tmp_path / "search/find.py", "def find():\n    from ..core import words\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks"))
    monkeypatch.setenv("CCHECK_BENCHMARK_RESULTS", "")
    return tmp_path


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=Who", "-c", "user.email=who@example.org")
    return subprocess.run(["git", "-C", root, *who, *words], capture_output=True, text=True, check=True).stdout


def commit(root: Path) -> str:
    git(root, "add", ".")
    git(root, "commit", "-q", "--allow-empty", "-m", "why")
    return git(root, "rev-parse", "--short=8", "HEAD").strip()


def forget() -> None:
    age.cache_clear()
    measured_code.cache_clear()


def test_the_page_has_the_rows_that_were_kept():
    page = (ROOT / run.PAGE).read_text(encoding="utf-8")
    assert run.page(ROOT, page).replace(run.MARK, "") == page.replace(run.MARK, "")


def test_a_run_is_kept_and_shown_and_marked_when_the_code_changes(root):
    def ran(*words: str) -> tuple[int, str, str]:
        forget()
        done = CliRunner().invoke(run.main, words)
        return done.exit_code, done.output, (root / run.PAGE).read_text(encoding="utf-8")

    assert "toy: no figures" in ran()[1] and "other" not in ran()[1]
    code, said, page = ran("toy", "--with", "3 2")
    at = git(root, "rev-parse", "--short=8", "HEAD").strip()
    assert code == 0, said
    kept = json.loads((root / "benchmarks/results/toy.json").read_text(encoding="utf-8"))
    assert kept["taken"]["ours"] == {"cpu": [3, 3, 3]} and kept["commit"] == at and kept["arguments"] == ["3", "2"]
    row = f"| `toy.py 3 2`, sorted | a plain side | 1.50 (1.50 to 1.50) | 1.3 at most, missed | {at} {kept['date']} |\n"
    row += f"| `toy.py` | it | 0.67 (0.67 to 0.67) | – | {at} {kept['date']} |\n"
    # Nobody can tell the age of the other figure, whose commit is unknown.
    own = PAGE.format("0" * 8, "†", f"{at} {kept['date']}", "| --- |\n")
    assert page == own.replace("\n\nAfter", f"\n{row}\nAfter")

    _write(root / "core/words.py", '"""A room."""\n\nONE = 2\n')
    code, said, _ = ran("toy")
    assert code == 1 and "commit the code first" in said
    assert row.replace(" |\n", "† |\n") in ran("--tables")[2] and "older than the code" in ran()[1]
    again = commit(root)
    code, said, page = ran("toy")
    assert code == 0 and row.replace(at, again) in page, said
    code, said, page = ran("toy", "--with", "wrong")
    assert code == 1 and "Its last figures stay" in said and row.replace(at, again) in page
    code, said, _ = ran("other")
    assert code == 2 and "Known: toy" in said


@pytest.mark.parametrize(
    ("file", "text", "script", "old"),
    [
        ("core/words.py", '"""A room, said anew."""\nONE = 1  # one\n', "toy", False),
        ("core/words.py", "ONE = 1.0\n", "toy", True),
        ("core/other.py", "ONE = 2\n", "toy", False),
        ("search/find.py", "ONE = 2\n", "other", True),
        ("search/other.py", "ONE = 2\n", "other", False),
        ("core/words.py", "ONE = 2\n", "other", True),
        ("search/words.txt", "one", "other", True),
        ("search/README.md", "one", "other", False),
        ("benchmarks/toy.py", TOY.replace(", 3)", ", 4)"), "toy", True),
        # Without imports it measures all but the laboratory.
        ("core/other.py", "ONE = 2\n", "whole", True),
        ("lab/__init__.py", "ONE = 2\n", "whole", False),
    ],
)
def test_a_figure_is_old_when_the_code_that_its_script_imports_has_changed(root, file, text, script, old):
    at = commit(root)
    _write(root / file, text)
    commit(root)
    forget()
    assert bool(age(root, f"benchmarks/{script}.py", at)) == old


def test_each_round_has_every_side_once_and_a_ratio_its_spread_and_goal():
    went: list[str] = []

    def side(name):
        return lambda number: went.append(f"{number}{name}") or {"cpu": number}

    taken = common.in_rounds({name: side(name) for name in "abc"}, 30, warm=2)
    orders = {"".join(one[-1] for one in went[start : start + 3]) for start in range(0, 90, 3)}
    assert taken["b"]["cpu"] == list(range(2, 30)) and len(orders) > 1
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    taken = {"ours": {"cpu": [2.0, 4.0, 9.0]}, "plain": {"cpu": [1.0, 4.0, 3.0]}}
    row = common.Row("", "ours", "plain", "theirs", "cpu", goal=2)
    assert row.cells(taken) == ["theirs", "2.00 (1.00 to 3.00)", "2 at most"]
    assert row._replace(goal=1.9).cells(taken)[-1] == "1.9 at most, missed"
    assert row._replace(throughput=True, goal=0.9).cells(taken)[1:] == ["0.50 (0.33 to 1.00)", "0.9 at least, missed"]
    seconds = row._replace(seconds=True, goal=4).cells(taken)
    assert seconds[1:] == ["2.00 (1.00 to 3.00); 4.00 s against 3.00 s", "4 s at most"]
    assert common.spread_of(range(1, 21)) == (5.25, 10.5, 15.75)
