"""How reliable a verdict is if some of its documents could not be judged, with the rule of `verdict/judge.py`.

    python benchmarks/failed_judgements.py FOLDER [--seed N] [--json]

FOLDER contains `climate-fever/claims.jsonl.gz`: 1,028 claims with five evidence sentences each and their true labels.
The rule derives the claim's verdict from these labels. A random share of the stances fails. The others are the true
ones, with confidence 1. A verdict is right if it matches the verdict from all five stances.

For each share of failures, the script prints how many verdicts were made, how many of them are right, the mean
confidence that the rule gave them, what it would be if failures weighed nothing (always 1), and the Brier scores of
both. Then it prints the same by the number of failures among the five.

`UNREAD` is the value with the lowest Brier score on the first half of the claims (first byte of the SHA-256 of their id
even). The figures are for the other half.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import common
import numpy as np

from ccheck.core.types import Document, Evidence, Hit, Label, Stance
from ccheck.verdict import judge as rule
from ccheck.verdict.labels import parse_label

SHARES = (0.1, 0.2, 0.4, 0.6, 0.8)
FAILED = Stance(None, error="the server failed")
Answer = tuple[int, Label | None, float, Label]
"""How many failed, the verdict and its confidence, and the true one."""


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--seed", default=13, show_default=True)
@click.option("--draws", default=5, show_default=True, help="Number of random draws of failures for each claim.")
@click.option("--json", "as_json", is_flag=True)
def main(folder: Path, seed: int, draws: int, as_json: bool) -> None:
    first, second = halves(folder / "climate-fever" / "claims.jsonl.gz")
    fitted = best_value(first, seed, draws)
    figures: dict[str, Any] = {"fitted_on_the_other_half": fitted, "used": rule.UNREAD}
    answers = {share: list(verdicts(second, share, seed, draws)) for share in SHARES}
    figures["by_share"] = {str(share): measured(some) for share, some in answers.items()}
    everything = [answer for some in answers.values() for answer in some]
    figures["by_failed"] = {str(n): measured([a for a in everything if a[0] == n]) for n in range(6)}
    figures["all"] = measured(everything)
    if as_json:
        click.echo(json.dumps(figures))
        return
    click.echo(f"{len(second)} claims; UNREAD is {rule.UNREAD}, and {fitted} on the other half\n")
    click.echo("failed        verdicts  none   right  confidence  Brier  Brier if failures weighed nothing")
    for kind in ("by_share", "by_failed"):
        for name, one in figures[kind].items():
            label = f"{float(name):.0%} of stances" if kind == "by_share" else f"{name} of 5"
            click.echo(
                f"{label:<14}{one['verdicts']:>8}{one['none']:>6}{one['right']:>8.3f}{one['confidence']:>12.3f}"
                f"{one['brier']:>7.3f}{one['brier_unweighed']:>10.3f}"
            )


def halves(path: Path) -> tuple[list[list[Label]], list[list[Label]]]:
    """The stances of each claim, of claims in the first and in the second half."""
    parts: tuple[list[list[Label]], list[list[Label]]] = [], []
    for row in common.rows(path):
        odd = hashlib.sha256(str(row["claim_id"]).encode()).digest()[0] % 2
        parts[odd].append([parse_label(piece["evidence_label"]) for piece in row["evidences"]])
    return parts


def verdicts(claims: Sequence[Sequence[Label]], share: float, seed: int, draws: int) -> Iterator[Answer]:
    for stances, true in drawn(claims, share, seed, draws):
        verdict = rule.conclude(stances, "gold")
        yield verdict.failed, verdict.label, verdict.confidence or 0.0, true


def drawn(
    claims: Sequence[Sequence[Label]], share: float, seed: int, draws: int
) -> Iterator[tuple[list[Evidence], Label]]:
    """Each claim some times, with failures, and what all of its stances say."""
    rng = random.Random(f"{seed} {share}")
    for labels in claims:
        true = rule.conclude(as_evidence([Stance(label, 1.0) for label in labels]), "gold").label
        for _ in range(draws):
            yield as_evidence([FAILED if rng.random() < share else Stance(label, 1.0) for label in labels]), true


def as_evidence(stances: Sequence[Stance]) -> list[Evidence]:
    return [Evidence(Hit(rank, Document("", "", ""), 1.0), (), stance) for rank, stance in enumerate(stances, 1)]


def measured(answers: Sequence[Answer]) -> dict[str, float | int]:
    made = [(label == true, confidence) for _, label, confidence, true in answers if label is not None]
    right, given = np.array([r for r, _ in made], float), np.array([c for _, c in made])
    return {
        "verdicts": len(made),
        "none": len(answers) - len(made),
        "right": round(float(right.mean()), 4) if made else 0.0,
        "confidence": round(float(given.mean()), 4) if made else 0.0,
        "brier": round(float(((given - right) ** 2).mean()), 4) if made else 0.0,
        "brier_unweighed": round(float(((1 - right) ** 2).mean()), 4) if made else 0.0,
    }


def best_value(claims: Sequence[Sequence[Label]], seed: int, draws: int) -> float:
    """The value of UNREAD, in hundredths, under which the confidences are worth most.

    Over all that have a stance, also those that the rule makes no verdict of: else a value that makes none would win.
    """
    rows: list[tuple[list[float], bool]] = []
    for share in SHARES:
        for evidence, true in drawn(claims, share, seed, draws):
            read = [piece for piece in evidence if piece.stance != FAILED]
            if read:
                label = rule.conclude(read, "gold").label
                sides = {"CONFLICTING": 0, "NOT_ENOUGH_INFO": 2}.get(label, 1)
                weights = [0.5 ** ((p.hit.rank - 1) / rule.HALF_LIFE) for p in evidence if p.stance == FAILED] * sides
                rows.append((weights, label == true))
    values = [hundredths / 100 for hundredths in range(21)]
    brier = [
        np.mean([(math.prod(1 - value * w for w in weights) - right) ** 2 for weights, right in rows])
        for value in values
    ]
    return values[int(np.argmin(brier))]


if __name__ == "__main__":
    main()
