"""How sure a document must be to decide a verdict: right, wrong and open verdicts of the packaged stance model.

    OMP_NUM_THREADS=1 python benchmarks/verdict_rule.py FOLDER [--claims N] [--cache FILE] [--work FOLDER]

FOLDER contains `scifact/`, `climate-fever/` and `fever/`. SciFact is measured end to end: the ten best of all abstracts
by BM25 and late interaction, most of which are not about the claim, are judged. Climate-FEVER's claims come with their
five sentences. The stances of each claim are those of a model that was made without it and its documents, as in
`benchmarks/packaged_stance.py`, whose `--cache` and adapters it shares. A verdict is open if it is NOT_ENOUGH_INFO and
should be another.

It prints the lowest value with at most half as many wrong verdicts as 0, which counts every guess, on the first half of
SciFact's claims, which is `DECISIVE`. The second half tests it.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import common
from packaged_stance import Held, judged_by, out_of_fold, read_parts, together_of_others, write_model

from ccheck.core.analysis import clean
from ccheck.core.runtime import Runtime
from ccheck.core.settings import resolve
from ccheck.core.types import Document, Evidence, Hit, Label, Stance
from ccheck.ingest.rows import read_records
from ccheck.pipeline.checker import Checker
from ccheck.verdict import judge as rule
from ccheck.verdict.judge import Case as JudgeCase
from ccheck.verdict.judge import likeliest
from ccheck.verdict.labels import parse_label
from ccheck.verdict.packaged_model import PackagedStances

VALUES = (0.0, 0.5, 0.55, *(round(0.6 + number / 100, 2) for number in range(16)))
RECIPE = """name = "words"
extends = "bm25"
[rerankers.late]
before = "retrievers"
[verdict]
method = "none"
"""
Case = tuple[Label, list[Evidence]]
"""A claim's true verdict, and its judged evidence."""


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--claims", default=160, show_default=True, type=click.IntRange(2), help="Number of SciFact's claims.")
@click.option("--cache", type=click.Path(path_type=Path), help="Keep the embeddings of the pairs in this file.")
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/stance"), help="Where adapters are kept.")
def main(folder: Path, claims: int, cache: Path | None, work: Path) -> None:
    held = out_of_fold(*read_parts(folder, cache, work))
    scifact, climate = found(folder, claims, held), given(folder, held)
    first, second = scifact[::2], scifact[1::2]
    before = counted(first, 0.0)[1]
    chosen = next(value for value in VALUES if value and counted(first, value)[1] <= before / 2)
    print(f"chosen on the first half: {chosen}; on the other: right, wrong, open {counted(second, chosen)}, ", end="")
    print(f"and with every guess {counted(second, 0.0)}\n")
    print(
        f"{'at least':<10}{'SciFact, ' + str(len(scifact)) + ' claims':^26}{'Climate-FEVER, ' + str(len(climate)):^26}"
    )
    print(f"{'':<10}" + f"{'right  wrong   open':^26}" * 2)
    for value in VALUES:
        cells = ["".join(f"{one:>7}" for one in counted(cases, value)) for cases in (scifact, climate)]
        print(f"{value:<10}" + "".join(f"{cell:^26}" for cell in cells))


def counted(cases: Sequence[Case], value: float) -> tuple[int, int, int]:
    """Right, wrong and open verdicts, by ccheck's own rule with another number."""
    before, rule.DECISIVE = rule.DECISIVE, value
    try:
        said = [(truth, rule.conclude(evidence, "").label) for truth, evidence in cases]
    finally:
        rule.DECISIVE = before
    right = sum(truth == label for truth, label in said)
    left = sum(truth != label == "NOT_ENOUGH_INFO" for truth, label in said)
    return right, len(said) - right - left, left


def found(folder: Path, most: int, held: Sequence[Held]) -> list[Case]:
    """SciFact's claims with what is found for them."""
    labels: dict[str, set[Label]] = {}
    for row in common.rows(folder / "scifact/verdicts.jsonl"):
        labels.setdefault(row["claim"], set()).add(parse_label(row["label"]))
    asked = sorted(labels)
    random.Random(5).shuffle(asked)
    asked = asked[:most]
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as scratch:
        judges: dict[str, PackagedStances] = {}
        for number, fold in enumerate(held):
            together = together_of_others(held, fold)
            write_model(
                Path(scratch, str(number)), fold.weights.model_copy(update={"together": together}), fold.adapter
            )
            judges |= dict.fromkeys(fold.parts[0].claims, PackagedStances(Runtime(), Path(scratch, str(number))))
        recipe = Path(scratch, "words.toml")
        recipe.write_text(RECIPE, encoding="utf-8")
        settings = resolve({"store": f"local:{scratch}/store", "recipe": str(recipe)}).settings
        with Checker(settings) as checker:
            checker.ingest(folder / "scifact/corpus.jsonl.gz")
            for claim, result in zip(asked, checker.check_many(asked), strict=True):
                (answer,) = judges[_key(claim)]([JudgeCase(result.claim, result.evidence)])
                judged = [
                    replace(piece, stance=stance) for piece, stance in zip(result.evidence, answer.stances, strict=True)
                ]
                cases.append((true_verdict(labels[claim]), judged))
    return cases


def given(folder: Path, held: Sequence[Held]) -> list[Case]:
    """Climate-FEVER's claims with their sentences."""
    stances: dict[str, list[Stance]] = {}
    for fold in held:
        values = judged_by(fold.answered[1], together_of_others(held, fold))
        for claim, row in zip(fold.parts[1].claims, values, strict=True):
            stances.setdefault(claim, []).append(likeliest(row, fold.weights.threshold))
    cases: list[Case] = []
    for record in read_records(folder / "climate-fever/claims.jsonl.gz", frozenset()):
        some = stances.get(_key(record.data["claim"]), [])
        evidence = [
            Evidence(Hit(rank, Document(str(rank), "", ""), 1.0), (), stance) for rank, stance in enumerate(some, 1)
        ]
        if evidence:
            truth = {parse_label(one["evidence_label"]) for one in record.data["evidences"]}
            cases.append((true_verdict(truth), evidence))
    return cases


def true_verdict(labels: set[Label]) -> Label:
    """Climate-FEVER's own rule."""
    sides = labels - {"NOT_ENOUGH_INFO"}
    return "CONFLICTING" if len(sides) > 1 else next(iter(sides), "NOT_ENOUGH_INFO")


def _key(claim: str) -> str:
    return " ".join(clean(claim).casefold().split())


if __name__ == "__main__":
    main()
