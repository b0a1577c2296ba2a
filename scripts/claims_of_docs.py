"""Every measured figure in README, docs and model cards, with the script that measured it, its commit and its date.

    python scripts/claims_of_docs.py           # one line for each: page:line, figures, script, commit, date

A comment stands before the paragraph, list or table that it covers, up to the next blank line after its text:

    <!-- measured: benchmarks/scifact.py a07701b 2026-11-23 -->
    <!-- measured: by row -->                          each row of the table names script, commit and date
    <!-- published: https://arxiv.org/abs/2104.08663 -->
    <!-- example -->                                    invented figures that explain something

A figure is older than what it measures if code of its script, or of what that imports of ccheck, has changed since the
commit: comments and docstrings don't count. The script says so beside the figure.

The script fails if a figure stands outside such a block, or if the script that a block names does not exist. It looks
for decimals and times. A setting or constant that is a decimal stands in backticks, which it skips.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURE = re.compile(
    r"(?<![\w.])[-+]?\.\d{2,4}\b"
    r"|\b0\.\d{3,4}\b"
    r"|(?<![\d.])(?<!Python )[0-3]\.\d\d\b(?!\.)"
    r"|\d[\d,.]* times (?:as|faster|longer|slower)\b"
    r"|\d[\d.]* ms\b"
    r"|\b(?:took|takes?) (?:about |at most )?\d[\d,.]*(?: to \d+)? (?:s|minutes|seconds)\b"
    r"|\babout an? (?:second|minute|hour)\b"
)
RUN = r"(?P<commit>[0-9a-f]{7,}) (?P<date>\d{4}-\d\d-\d\d)"
MARK = re.compile(
    rf"<!-- (?:measured: (?:(?P<row>by row)|(?P<script>\S+) {RUN})|published: (?P<source>\S+)|example) -->$"
)
ROW = re.compile(rf"`?(?P<script>\w+\.py)\b.*\b{RUN}")
COMMENT = re.compile(r"<!-- (?:measured|published|example)\b.*-->")


def pages(root: Path) -> list[Path]:
    found = [root / "README.md", root / "CONTRIBUTING.md", *root.glob("docs/*.md"), root / "benchmarks" / "README.md"]
    found += root.glob("*/packaged/README.md")
    return [page for page in sorted(found) if page.exists()]


def figures(page: Path, root: Path) -> Iterator[tuple[int, list[str], str, str]]:
    """Line number, figures, source and problem ("" for none) of each line with figures or a comment that is wrong."""
    mark: re.Match[str] | None = None
    begun = code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        if COMMENT.search(line):
            mark, begun = MARK.search(line.strip()), False
            if mark is None:
                yield number, [], "", f"not understood: {line.strip()}"
            continue
        if not line.strip():
            mark = None if begun else mark
            continue
        begun = True
        found = [] if code or line.startswith("    ") else FIGURE.findall(re.sub(r"`[^`]*`", "", line))
        if not found:
            continue
        if mark is None:
            yield number, found, "", "no script: name it in a comment before the block, or drop the figure"
        elif mark["row"] or mark["script"]:
            run = ROW.search(line) if mark["row"] else mark
            if run is None:
                yield number, found, "", "the row names no script, commit and date"
                continue
            script = f"benchmarks/{run['script']}" if mark["row"] else run["script"]
            problem = "" if (root / script).is_file() else f"{script} does not exist"
            old = "" if problem else age(root, script, run["commit"])
            yield number, found, f"{script} {run['commit']} {run['date']}{old and f', {old}'}", problem
        else:
            yield number, found, mark["source"] or "example", ""


@lru_cache
def age(root: Path, script: str, commit: str) -> str:
    """What is wrong with the age of figures: code that the script measures has changed since, or the commit is unknown.

    Outside a git repository nothing is.
    """

    def git(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        return None if done.returncode else done.stdout

    if git("rev-parse") is None:
        return ""
    listed = git("diff", "--name-only", "--no-renames", "-z", commit, "--", *measured_code(root, script))
    if listed is None:
        return "its commit is unknown here"
    for name in listed.split("\0")[:-1]:
        then, now = git("show", f"{commit}:{name}"), root / name
        same = name.endswith(".md")
        if name.endswith(".py") and then is not None and now.exists():
            same = code_of(then) == code_of(now.read_text(encoding="utf-8"))
        if not same:
            return "older than the code it measures"
    return ""


def measured_code(root: Path, script: str) -> list[str]:
    """The script, and the modules and packages of ccheck that it imports: all rooms but the laboratory if it has none.

    `import ccheck` alone stands for all rooms as well.
    """
    found = {script}
    file = root / script
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8") if file.exists() else "")):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{name.name}" for name in node.names]
        else:
            continue
        found |= {_place(root, name.split(".")[1:]) for name in names if name.split(".")[0] == "ccheck"}
    if found == {script} or "." in found:
        found |= {room.parent.name for room in root.glob("*/__init__.py")} - {"lab"}
    return sorted(found - {"."})


def _place(root: Path, parts: list[str]) -> str:
    """Where the longest part of a dotted name lies that is a module or a package; "." if none is."""
    for length in range(len(parts), 0, -1):
        place = "/".join(parts[:length])
        if (root / f"{place}.py").is_file():
            return f"{place}.py"
        if (root / place).is_dir():
            return place
    return "."


def code_of(source: str) -> str:
    """The syntax tree without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ]
    return ast.dump(tree)


def main(root: Path = ROOT) -> int:
    wrong = 0
    for page in pages(root):
        for number, found, source, problem in figures(page, root):
            wrong += bool(problem)
            print(f"{page.relative_to(root)}:{number}: {' '.join(found)}  {problem or source}")
    if wrong:
        print(f"{wrong} lines have figures without a script", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
