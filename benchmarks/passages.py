"""Does cutting abstracts into passages help? Dense and hybrid nDCG@10 and R@100 for several cuts.

    python benchmarks/passages.py FOLDER

FOLDER is the same as for `scifact.py`. Next to each figure, the script prints its difference from whole abstracts (the
model reads only their start), with the 95% interval of a paired bootstrap over claims. It reuses cached embeddings.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
from common import rows
from scifact import metrics, read_qrels

import ccheck
from ccheck.core.layout import Chunking
from ccheck.core.recipe import Recipe, load_recipe
from ccheck.core.stages import EvidenceStage, VerdictStage
from ccheck.ingest import IngestOptions

CUTS = {
    "whole": Chunking(1_000_000, 254, 0),
    "over 254: 254, overlap 31": Chunking(254, 254, 31),
    "over 128: 128, overlap 16": Chunking(128, 128, 16),
}


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
def main(folder: Path) -> None:
    claims = [ccheck.Claim(row["text"], row["_id"]) for row in rows(folder / "queries.jsonl")]
    qrels = read_qrels(folder)
    whole: dict[str, list[list[float]]] = {}
    for name, cut in CUTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            settings = ccheck.open(f"{scratch}/store").settings
            cutting = patch("ccheck.pipeline.ingest.default_chunking", return_value=cut)
            with ccheck.Checker(settings) as checker, cutting:
                options = IngestOptions(cache_dir=settings.cache_dir)
                report = checker.ingest(str(folder / "corpus.jsonl.gz"), options=options)
            print(f"{name}: {report.passages:,} passages of {report.read:,} abstracts, {report.seconds:.0f} s")
            for recipe in ("dense", "default"):
                with ccheck.Checker(settings, recipe=retrieval(recipe)) as checker:
                    rankings = {
                        str(result.claim.id): [evidence.document.id for evidence in result.evidence]
                        for result in checker.check_many(claims, k=100, details=False)
                    }
                values = metrics(rankings, qrels)
                base = whole.setdefault(recipe, values)
                cells = [f"{np.mean(a):.4f} ({_difference(a, b)})" for a, b in zip(values, base, strict=True)]
                print(f"  {recipe:<8} nDCG@10 {cells[0]}   R@100 {cells[1]}", flush=True)


def retrieval(name: str) -> Recipe:
    """A recipe without evidence sentences, which cost time and do not change the ranking."""
    alone = {"rerankers": {}, "evidence": EvidenceStage(sentences=0), "verdict": VerdictStage(method="none")}
    return load_recipe(name).model_copy(update=alone)


def _difference(values: list[float], base: list[float], rounds: int = 2000) -> str:
    differences = np.asarray(values) - np.asarray(base)
    picks = np.random.default_rng(0).integers(0, len(differences), (rounds, len(differences)))
    low, high = np.percentile(differences[picks].mean(axis=1), [2.5, 97.5])
    return f"{differences.mean():+.4f} [{low:+.4f}, {high:+.4f}]"


if __name__ == "__main__":
    main()
