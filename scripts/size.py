"""The size of the repository: lines of Python in the rooms and tests, and words of hand-written documents.

    python scripts/size.py            # prints each figure with its limit
    python scripts/size.py --check    # also fails if one is above its limit

It counts the files that git tracks, with blank lines, comments and docstrings.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = {"rooms": 40_000, "lab": 9_000, "tests": 34_000, "documents": 30_000}
GENERATED = {"verdict/packaged/README.md"}
"""benchmarks/stance_card.py writes the card."""
APART = {"tests", "benchmarks", "scripts", "docs"}


def tracked(pattern: str) -> list[str]:
    done = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def lines(name: str) -> int:
    return len((ROOT / name).read_text(encoding="utf-8").splitlines())


def words(name: str) -> int:
    return len((ROOT / name).read_text(encoding="utf-8").split())


def counts() -> dict[str, int]:
    """Lines of each room and of what lies apart; words of the documents."""
    found: dict[str, int] = {}
    for name in tracked("*.py"):
        room = name.split("/")[0] if "/" in name else "(root)"
        found[room] = found.get(room, 0) + lines(name)
    found["rooms"] = sum(number for room, number in found.items() if room not in APART)
    found["documents"] = sum(words(name) for name in tracked("*.md") if name not in GENERATED)
    return found


def main() -> int:
    found = counts()
    for room in sorted(set(found) - LIMITS.keys()):
        print(f"{room:14} {found[room]:>8,} lines")
    print()
    above = [name for name, limit in LIMITS.items() if found[name] > limit]
    for name, limit in LIMITS.items():
        unit = "words" if name == "documents" else "lines"
        print(f"{name:14} {found[name]:>8,} {unit}, limit {limit:,}{'   ABOVE' if name in above else ''}")
    return 1 if above and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
