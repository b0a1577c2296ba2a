"""What a further claim costs in a process that has answered before, beside its vector alone, and what a batch costs.

    python benchmarks/claims.py FOLDER

FOLDER contains SciFact's queries.jsonl (default: scifact in $CCHECK_SHARED_DATA). The claims are ranked, or checked,
over the sample corpus. Each round has claims of its own, and each side a model of its own. Goals: 20 ms of CPU for a
further ranking, 10 ms for each claim of a batch. Rankings must be the same in a batch.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the program ccheck does: its other threads would only wait

import click
import numpy as np
from common import Row, in_rounds, spent, told

import ccheck
from ccheck.core.runtime import Runtime
from ccheck.demo import CORPUS
from ccheck.encode.dense import DEFAULT_MODEL, load_embedder

ALONE, TOGETHER = "the claim's vector alone, CPU time", "the claims' vectors alone, CPU time"
ROWS = (
    Row(", a further ranking", "ranking", "vector", ALONE, "cpu", goal=0.02, seconds=True),
    Row(", a further check with its verdict", "check", "vector", ALONE, "cpu"),
    Row(", each claim of a batch, ranked", "batch", "vectors", TOGETHER, "cpu", goal=0.01, seconds=True),
)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
def main(folder: Path | None, rounds: int) -> None:
    folder = folder or Path(os.environ["CCHECK_SHARED_DATA"]) / "scifact"
    with (folder / "queries.jsonl").open(encoding="utf-8") as lines:
        claims: list[str] = [json.loads(line)["text"] for line in lines]
    shares = [claims[number :: rounds + 1] for number in range(rounds + 1)]
    with tempfile.TemporaryDirectory() as scratch:
        store = f"{scratch}/store"
        with ccheck.open(store) as checker:
            checker.ingest(str(CORPUS))
        with (
            ccheck.open(store, verdict="none") as ranking,
            ccheck.open(store, verdict="none") as batch,
            ccheck.open(store) as check,
        ):
            one, all_ = (load_embedder(DEFAULT_MODEL, Runtime()) for _ in range(2))
            found: dict[int, list[list[str]]] = {}

            def ranked(number: int, results: Sequence[Any]) -> None:
                ids = [[piece.document.id for piece in result.evidence] for result in results]
                assert ids == found.setdefault(number, ids), "a batch ranks in another way"

            def each(work: Callable[[str], Any], number: int) -> list[Any]:
                return [work(claim) for claim in shares[number]]

            sides: dict[str, Callable[[int], list[Any]]] = {
                "vector": partial(each, lambda claim: one.encode_queries([claim])),
                "ranking": partial(each, ranking.check),
                "check": partial(each, check.check),
                "vectors": lambda number: list(all_.encode_queries(shares[number])),
                "batch": lambda number: list(batch.check_many(shares[number])),
            }

            def measured(name: str, number: int) -> dict[str, float]:
                took = spent(partial(sides[name], number))
                if "vector" not in name:
                    ranked(number, took.answer)
                count = len(shares[number])
                return {"cpu": took.cpu / count, "wall": took.wall / count}

            taken = in_rounds({name: partial(measured, name) for name in sides}, rounds + 1, warm=1)
    told(taken, ROWS, np)


if __name__ == "__main__":
    main()
