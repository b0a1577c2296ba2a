"""Every measured figure in README, docs and model cards, with the script that measured it, its commit and its date.

    python scripts/claims_of_docs.py           # one line for each: page:line, figures, script, commit, date

A comment stands before the paragraph, list or table that it covers, up to the next blank line after its text:

    <!-- measured: benchmarks/scifact.py a07701b 2026-11-23 -->
    <!-- measured: by row -->                          each row of the table names script, commit and date
    <!-- published: https://arxiv.org/abs/2104.08663 -->
    <!-- example -->                                    invented figures that explain something

A figure is older than what it measures if its script has changed since the commit, or a module of ccheck that this one
imports, directly or through others, or a file of data beside one. Comments and docstrings don't count. The script says
so beside the figure.

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
    code = measured_code(root, script)
    places = {script, *(name.partition("/")[0] for name in code - {script})}
    listed = git("diff", "--name-only", "--no-renames", "-z", commit, "--", *sorted(places))
    if listed is None:
        return "its commit is unknown here"
    for name in listed.split("\0")[:-1]:
        if name.endswith(".md") or (name.endswith(".py") and name not in code):
            continue
        then, now = git("show", f"{commit}:{name}"), root / name
        if not (name.endswith(".py") and then is not None and now.exists()):
            return "older than the code it measures"
        if code_of(then) != code_of(now.read_text(encoding="utf-8")):
            return "older than the code it measures"
    return ""


@lru_cache
def measured_code(root: Path, script: str) -> frozenset[str]:
    """The script and the modules of ccheck that it reaches; all but the laboratory's if it imports none, or ccheck."""
    found, left = {script}, _imports(root, script)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left |= _imports(root, name)
    if found == {script} or "" in found:
        rooms = {room.parent for room in root.glob("*/__init__.py")} - {root / "lab"}
        found |= {file.relative_to(root).as_posix() for room in rooms for file in room.rglob("*.py")}
    return frozenset(found - {""})


def _imports(root: Path, name: str) -> set[str]:
    """The files of the modules that a file imports; "" for all of ccheck."""
    file = root / name
    if not file.is_file():
        return set()
    folder, found = name.split("/")[:-1], set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            asked = [(one.name.split("."), None) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = ["ccheck", *folder[: len(folder) - node.level + 1]] if node.level else []
            asked = [([*start, *(node.module or "").split(".")], one.name) for one in node.names]
        else:
            continue
        for parts, one in asked:
            if parts[0] == "ccheck":
                found.add(_file(root, [part for part in parts[1:] if part], one))
    return found - {name}


def _file(root: Path, parts: list[str], name: str | None) -> str:
    """The file that has a name of a module, which a package may have from another one; "" for ccheck itself."""
    for place in ("/".join([*parts, name or ""]).rstrip("/"), "/".join(parts)):
        if place and (root / f"{place}.py").is_file():
            return f"{place}.py"
    if name and (root.joinpath(*parts, name) / "__init__.py").is_file():
        return "/".join([*parts, name, "__init__.py"])
    package = root.joinpath(*parts, "__init__.py")
    if not parts or not package.is_file():
        return ""
    for node in ast.walk(ast.parse(package.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level and any(name in (a.name, a.asname) for a in node.names):
            above = parts[: len(parts) - node.level + 1]
            return _file(root, [*above, *(node.module.split(".") if node.module else [])], name)
    return "/".join([*parts, "__init__.py"])


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
