"""Run benchmarks, keep their figures, and write the page's rows from what was kept.

    python benchmarks/run.py                                    # the benchmarks it knows, and the age of their figures
    python benchmarks/run.py startup local_search               # with the arguments of their last figures
    python benchmarks/run.py embedding --with "--documents 128" # with others
    python benchmarks/run.py --tables                           # only writes the rows

It knows the benchmarks with `ROWS` (`common.Row`). The others print what they measure. Each benchmark has a process of
its own and runs its sides in random order, round after round (`common.in_rounds`). What each side took in each round
goes into results/NAME.json, with the arguments, the commit, the date and the machine. From these files come the rows in
README's table of speeds: the median of the rounds' ratios, and their spread. † marks a row whose figures are older than
the code that its script measures (`age` in scripts/claims_of_docs.py), whichever script it is. A benchmark that makes a
table of its own has it on the page after its `<!-- measured: … -->`.

pyperf measures the wall-clock time of one function or command. It has neither rounds of several sides nor CPU time of
whole programs, so it is not used here.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import common

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from claims_of_docs import ROW, age  # noqa: E402

MARK = "†"
PAGE = "benchmarks/README.md"
TABLE = re.compile(r"(?<=<!-- measured: by row -->\n)(?P<head>\|.*\n\|.*\n)(?P<rows>(?:\|.*\n)+)")


def known(root: Path) -> list[str]:
    """The benchmarks that say which rows the page has of them."""
    files = sorted((root / "benchmarks").glob("*.py"))
    return [file.stem for file in files if re.search(r"^ROWS = ", file.read_text(encoding="utf-8"), re.MULTILINE)]


def kept(root: Path, name: str) -> dict[str, Any] | None:
    file = root / "benchmarks" / "results" / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def run(root: Path, name: str, arguments: list[str]) -> None:
    """Run a benchmark at the commit that is checked out, and keep what it measured."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "results.json")
        command = [sys.executable, str(root / "benchmarks" / f"{name}.py"), *arguments]
        done = subprocess.run(command, env=os.environ | {common.RESULTS: str(file)})
        if done.returncode or not file.exists():
            raise click.ClickException(f"{name}.py failed (exit code {done.returncode}). Its last figures stay.")
        found = json.loads(file.read_text(encoding="utf-8"))
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    said = {
        "arguments": arguments,
        "commit": git(root, "rev-parse", "--short=8", "HEAD").strip(),
        "date": date,
        **found,
    }
    to = root / "benchmarks" / "results" / f"{name}.json"
    to.parent.mkdir(exist_ok=True)
    # A list of figures stands in one line, so that a change can be read.
    text = re.sub(r"\[[^][]*\]", lambda found: " ".join(found[0].split()), json.dumps(said, indent=1))
    to.write_text(text + "\n", encoding="utf-8")


def rows(root: Path, name: str) -> list[str]:
    """The rows of a benchmark, from what was kept."""
    said = kept(root, name)
    if said is None:
        return []
    shown = [common.Row(**row) for row in said["rows"]]
    # The first row has the arguments of all.
    commands = itertools.chain([" ".join([f"{name}.py", *said["arguments"]])], itertools.repeat(f"{name}.py"))
    cells = [[f"`{next(commands)}`{row.what}", *row.cells(said["taken"])] for row in shown]
    return [f"| {' | '.join(some)} | {said['commit']} {said['date']} |" for some in cells]


def marked(root: Path, line: str) -> str:
    """The row with the mark if its figures are older than what they measure or nobody can tell, and else without it."""
    line, run = line.replace(MARK, ""), ROW.search(line)
    if run is None or not age(root, f"benchmarks/{run['script']}", run["commit"]):
        return line
    return line[: run.end()] + MARK + line[run.end() :]


def page(root: Path, text: str) -> str:
    """The page with the rows of what was kept in the place of those that it had."""
    table = TABLE.search(text)
    if table is None:
        raise click.ClickException(f"{PAGE} has no table that is measured by row")
    lines = table["rows"].splitlines()
    for name in known(root):
        new, own = rows(root, name), [line for line in lines if line.startswith(f"| `{name}.py")]
        if new:
            place = lines.index(own[0]) if own else len(lines)
            lines = [line for line in lines if line not in own]
            lines[place:place] = new
    start, end = table.span("rows")
    text = text[:start] + "".join(f"{marked(root, line)}\n" for line in lines) + text[end:]
    for name in known(root):
        said = kept(root, name) or {}
        if said.get("table"):
            mark = f"<!-- measured: benchmarks/{name}.py"
            new = "\n".join([f"{mark} {said['commit']} {said['date']} -->", *said["table"], ""])
            text = re.sub(rf"{re.escape(mark)} .*\n(?:\|.*\n)*", lambda _, new=new: new, text)
    return text


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout


@click.command()
@click.argument("names", nargs=-1)
@click.option("--with", "given", help="Arguments for the benchmarks.  [default: those of their last figures]")
@click.option("--tables", is_flag=True, help="Only write the rows of the page.")
def main(names: tuple[str, ...], given: str | None, tables: bool) -> None:
    """Run benchmarks in turn, keep what they measured, and write the page's rows."""
    knows = known(ROOT)
    if unknown := sorted(set(names) - set(knows)):
        raise click.UsageError(f"not known: {', '.join(unknown)}. Known: {', '.join(knows)}. Others run by themselves.")
    if not names and not tables:
        for name in knows:
            said = kept(ROOT, name)
            old = age(ROOT, f"benchmarks/{name}.py", said["commit"]) if said else ""
            told = f"{said['commit']} {said['date']}, {said['machine']}" if said else "no figures"
            click.echo(f"{name}: {told}{old and f', {old}'}")
        return
    if names and git(ROOT, "status", "--porcelain", "--", "*.py").strip():
        raise click.ClickException("commit the code first: figures name the commit that they were measured at")
    for name in names:
        last = kept(ROOT, name)
        run(ROOT, name, shlex.split(given) if given is not None else last["arguments"] if last else [])
    file = ROOT / PAGE
    file.write_text(page(ROOT, file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
