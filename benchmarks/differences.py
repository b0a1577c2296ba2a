"""How often a difference between claim and sentence is told (`verdict/differences.py`).

    python benchmarks/differences.py FOLDER

FOLDER contains `scifact/` and `fever/`. A claim is compared with itself after one thing was changed: a number, a word
that became its opposite, a denial that was put in, another condition, or its two sides turned round. The last line is
about claims that their evidence supports as published: where something is told there, it is mostly another way of
saying the same.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import click
from stance_data import SUPPORTS, fever_rows, read_rows
from stance_pairs import _NUMBER, _opposite, _other_number, _with_not

from ccheck.core.analysis import sentence_spans
from ccheck.verdict.differences import differences
from ccheck.verdict.labels import STANCES


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
def main(folder: Path) -> None:
    draw = random.Random(1)
    scifact = list(read_rows(folder / "scifact/verdicts.jsonl", folder / "scifact/corpus.jsonl.gz").rows)
    rows = [row for row in (*scifact, *fever_rows(folder)[:4000]) if row.label == STANCES[SUPPORTS]]
    claims = sorted({row.claim for row in rows})
    changed = {
        "number": [(claim, _with_other_number(claim, draw)) for claim in claims],
        "direction": [(claim, _opposite(claim, draw)) for claim in claims],
        "negation": [(claim, _with_not(claim)) for claim in claims],
        "condition": [(claim, _of_others(claim)) for claim in claims],
        "order": [(claim, _turned(claim)) for claim in claims],
    }
    for kind, pairs in changed.items():
        told = Counter(
            tuple({one.kind for one in differences(claim, other)}) for claim, other in pairs if other and other != claim
        )
        count = sum(told.values())
        told_at_all = sum(number for kinds, number in told.items() if kinds)
        right = sum(number for kinds, number in told.items() if kind in kinds)
        print(f"{kind}: {count:,} pairs, told {told_at_all / count:.3f}, as what it is {right / count:.3f}")
    kinds = [
        {one.kind for start, end in sentence_spans(row.text) for one in differences(row.claim, row.text[start:end])}
        for row in rows
    ]
    opposed = sum(bool(some - {"certainty", "word"}) for some in kinds) / len(kinds)
    unsure = sum("certainty" in some for some in kinds) / len(kinds)
    print(
        f"supported as published: {len(kinds):,} pairs, certainty told {unsure:.3f}, another difference {opposed:.3f}"
    )


def _of_others(claim: str) -> str:
    others = {
        "human": "murine",
        "humans": "mice",
        "patients": "mice",
        "women": "men",
        "men": "women",
        "adults": "children",
    }
    return re.sub(rf"\b(?:{'|'.join(others)})\b", lambda word: others[word[0]], claim)


def _turned(claim: str) -> str | None:
    verb = r"causes|prevents|leads to|induces|promotes|inhibits|activates|(?:is|are) (?:more \w+|\w+er) than"
    sides = re.fullmatch(rf"([\w -]+?) ({verb}) ([\w -]+?)\.?", claim)
    return f"{sides[3]} {sides[2]} {sides[1]}." if sides else None


def _with_other_number(claim: str, draw: random.Random) -> str | None:
    found = list(_NUMBER.finditer(claim))
    if not found:
        return None
    one = draw.choice(found)
    return claim[: one.start()] + _other_number(one.group(), draw) + claim[one.end() :]


if __name__ == "__main__":
    main()
