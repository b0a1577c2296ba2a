"""The packaged stance model on kinds of claims that it was not made from.

    OMP_NUM_THREADS=1 python benchmarks/packaged_elsewhere.py FOLDER [--most N] [--output verdict/packaged]

FOLDER contains `clinical/`: COVID-Fact (claims and counter-claims that differ in a word or two), CliniFact (hypotheses
of trials) and PubMedQA (questions), as JSON Lines with claim, evidence and label. Of each, N pairs are drawn. With
`--output`, the figures go into its `figures.json`, and into its card.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import click
import numpy as np
from packaged_stance import ELSEWHERE, measured
from stance_card import write_card

from ccheck.core.runtime import Runtime
from ccheck.core.types import Claim, Document, Evidence, Hit
from ccheck.lab.measure.rows import StanceRow, read_rows
from ccheck.verdict.judge import Case
from ccheck.verdict.labels import STANCES
from ccheck.verdict.packaged_model import PackagedStances

FILES = {"COVID-Fact": "covidfact.jsonl", "CliniFact": "clinifact.jsonl", "PubMedQA": "pubmedqa.jsonl"}


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--most", default=300, show_default=True, type=click.IntRange(10), help="Pairs of each data set.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder of figures.json.")
def main(folder: Path, most: int, output: Path | None) -> None:
    judge, found = PackagedStances(Runtime()), {}
    for name, file in FILES.items():
        rows = list(read_rows(folder / "clinical" / file).rows)
        rows = random.Random(0).sample(rows, min(most, len(rows)))
        found[name] = figures_of(judge, rows)
        print(name, {key: value for key, value in found[name].items() if key != "reliability"}, flush=True)
    if output is not None:
        path = output / "figures.json"
        figures = json.loads(path.read_text(encoding="utf-8")) | {ELSEWHERE: found}
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        write_card(output)
        model = json.loads((output / "model.json").read_text(encoding="utf-8"))
        model["lowest_f1"] = min(model["lowest_f1"], *(round(one["weighted_f1"], 2) for one in found.values()))
        (output / "model.json").write_text(json.dumps(model, separators=(",", ":")) + "\n", encoding="utf-8")


def figures_of(judge: PackagedStances, rows: list[StanceRow]) -> dict[str, Any]:
    """The figures of `packaged_stance.measured`, and what is said of claims that the evidence refutes."""
    cases = [
        Case(Claim(row.claim), (Evidence(Hit(1, Document(str(n), row.title, row.text), 1.0)),))
        for n, row in enumerate(rows)
    ]
    stances = [judged.stances[0] for judged in judge(cases)]
    values = np.array([[(one.probabilities or {}).get(label, 1 / 3) for label in STANCES] for one in stances])
    given = np.array([STANCES.index(one.label or "NOT_ENOUGH_INFO") for one in stances])
    truth = np.array([STANCES.index(row.label) for row in rows])
    refuted = truth == STANCES.index("REFUTES")
    supported = refuted & (given == STANCES.index("SUPPORTS"))
    return measured(truth, values, given, np.array([row.claim for row in rows])) | {
        "refuted": int(refuted.sum()),
        "refuted_said_supported": int(supported.sum()),
    }


if __name__ == "__main__":
    main()
