"""Every measured figure in README, docs and model cards, with the script that measured it, its commit and its date.

    python scripts/claims_of_docs.py           # one line for each: page:line, figures, script, commit, date

A comment stands before the paragraph, list or table that it covers, up to the next blank line after its text:

    <!-- measured: benchmarks/scifact.py a07701b 2026-11-23 -->
    <!-- measured: by row -->                          each row of the table names script, commit and date
    <!-- published: https://arxiv.org/abs/2104.08663 -->
    <!-- example -->                                    invented figures that explain something

The script fails if a figure stands outside such a block, or if the script that a block names does not exist. It looks
for decimals and times. A setting or constant that is a decimal stands in backticks, which it skips.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
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
ROW = re.compile(rf"`?(?P<script>\w+\.py)\b.*{RUN}")
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
            yield number, found, f"{script} {run['commit']} {run['date']}", problem
        else:
            yield number, found, mark["source"] or "example", ""


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
