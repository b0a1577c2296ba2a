"""Retrieval on SciFact's development claims: nDCG@10 and R@100 of each recipe, with 95% bootstrap intervals.

    python benchmarks/scifact.py FOLDER                                 # the local store
    python benchmarks/scifact.py FOLDER --store http://127.0.0.1:9200/scifact

FOLDER contains `corpus.jsonl.gz`, `queries.jsonl` and `qrels.tsv` in BEIR's format. BEIR's published figures for the
other 300 claims: BM25 .679, all-MiniLM-L6-v2 .645.
"""

from __future__ import annotations

import platform
import tempfile
import time
from pathlib import Path

import click
import numpy as np

import ccheck
from ccheck.ingest import IngestOptions
from ccheck.recipe import Recipe, load_recipe
from ccheck.stages import Bm25, Dense, EvidenceStage, Fusion, VerdictStage

RECIPES = {
    "bm25": load_recipe("bm25"),
    "dense": load_recipe("dense"),
    "default": load_recipe("default"),
    "rrf, k = 60": load_recipe("default").model_copy(update={"fusion": Fusion(k=60)}),
    "minmax": load_recipe("minmax"),
    "late": load_recipe("late"),
}
UNEQUAL_DEPTHS: Recipe = Recipe(
    name="client-side fusion",
    # Elasticsearch's rrf can't express different depths. One more document changes next to nothing else.
    retrievers={"bm25": Bm25(depth=100), "dense": Dense(depth=101)},
    fusion=load_recipe("default").fusion,
)


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--store", help="Where to ingest and search.  [default: a local store in a temporary folder]")
def main(folder: Path, store: str | None) -> None:
    claims = [ccheck.Claim(text, id_) for id_, text in read_queries(folder)]
    qrels = read_qrels(folder)
    with tempfile.TemporaryDirectory() as scratch:
        settings = ccheck.open(store or f"{scratch}/store").settings
        with ccheck.Checker(settings) as checker:
            report = checker.ingest(
                str(folder / "corpus.jsonl.gz"), options=IngestOptions(cache_dir=settings.cache_dir)
            )
            print(f"{report.read:,} abstracts, {report.passages:,} passages, {report.seconds:.0f} s")
        print(f"{platform.machine()}, Python {platform.python_version()}, {checker.store.name}, {len(claims)} claims")
        print(f"{'recipe':<20} nDCG@10              R@100                claims/s")
        for name, whole in {**RECIPES, **({UNEQUAL_DEPTHS.name: UNEQUAL_DEPTHS} if store else {})}.items():
            # Retrieval only, whichever models are installed.
            alone = {
                # `late` uses the embedding model. Other rerankers need models that may not be installed.
                "rerankers": whole.rerankers if name == "late" else {},
                "evidence": EvidenceStage(sentences=0),
                "verdict": VerdictStage(method="none"),
            }
            recipe = whole.model_copy(update=alone)
            with ccheck.Checker(settings, recipe=recipe) as checker:
                checker.check(claims[0], k=1)
                started = time.perf_counter()
                rankings = {
                    str(result.claim.id): [evidence.document.id for evidence in result.evidence]
                    for result in checker.check_many(claims, k=100, details=False)
                }
                seconds = time.perf_counter() - started
            cells = [_interval(values) for values in metrics(rankings, qrels)]
            print(f"{name:<20} {cells[0]}  {cells[1]}  {len(claims) / seconds:.0f}", flush=True)


def read_queries(folder: Path) -> list[tuple[str, str]]:
    import json

    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["_id"], row["text"]) for row in map(json.loads, lines)]


def read_qrels(folder: Path) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        claim, document, grade = line.split("\t")
        qrels.setdefault(claim, {})[document] = int(grade)
    return qrels


def metrics(rankings: dict[str, list[str]], qrels: dict[str, dict[str, int]]) -> list[list[float]]:
    """nDCG@10 and R@100 of each judged claim, by ir-measures."""
    import ir_measures
    from ir_measures import R, nDCG

    run = {
        claim: {document: -float(rank) for rank, document in enumerate(ranking)} for claim, ranking in rankings.items()
    }
    scored = list(ir_measures.iter_calc([nDCG @ 10, R @ 100], qrels, run))
    return [[score.value for score in scored if score.measure == measure] for measure in (nDCG @ 10, R @ 100)]


def _interval(values: list[float], rounds: int = 2000) -> str:
    """The mean with its 95% bootstrap interval over claims."""
    array = np.asarray(values)
    means = array[np.random.default_rng(0).integers(0, len(array), (rounds, len(array)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{array.mean():.4f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
