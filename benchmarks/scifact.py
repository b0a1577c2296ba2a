"""Retrieval on SciFact's training claims: nDCG@10, R@100 and CPU time of each recipe, with 95% bootstrap intervals.

    python benchmarks/scifact.py FOLDER                                 # the local store
    python benchmarks/scifact.py FOLDER --store http://127.0.0.1:9200/scifact

FOLDER contains `corpus.jsonl.gz`, `queries.jsonl` and `qrels.tsv` in BEIR's format. BEIR's published figures for the
other 300 claims: BM25 .679, all-MiniLM-L6-v2 .645.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click
import common
import numpy as np

import ccheck
from ccheck.core.recipe import Recipe, load_recipe
from ccheck.core.stages import Bm25, Dense, EvidenceStage, Fusion, LateStage, VerdictStage
from ccheck.ingest import IngestOptions

RECIPES = {
    "bm25": load_recipe("bm25"),
    "dense": load_recipe("dense"),
    "rrf, k = 20": load_recipe("default").model_copy(update={"rerankers": {}}),
    "rrf, k = 60": load_recipe("default").model_copy(update={"rerankers": {}, "fusion": Fusion(k=60)}),
    "minmax": load_recipe("minmax"),
    "default": load_recipe("default"),
    "late": load_recipe("late"),
}
BASELINE = "rrf, k = 20"
"""What the later recipes are compared with: the default without its reranker."""
UNEQUAL_DEPTHS: Recipe = Recipe(
    name="client-side fusion",
    # Elasticsearch's rrf can't express different depths. One more document changes next to nothing else.
    retrievers={"bm25": Bm25(depth=100), "dense": Dense(depth=101)},
    fusion=load_recipe("default").fusion,
)


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--store", help="Where to ingest and search.  [default: a local store in a temporary folder]")
@click.option("--recipe", "chosen", multiple=True, help="Only these of the recipes.  [default: all]")
def main(folder: Path, store: str | None, chosen: tuple[str, ...]) -> None:
    claims = [ccheck.Claim(row["text"], row["_id"]) for row in common.rows(folder / "queries.jsonl")]
    qrels = read_qrels(folder)
    with tempfile.TemporaryDirectory() as scratch:
        settings = ccheck.open(store or f"{scratch}/store").settings
        with ccheck.Checker(settings) as checker:
            report = checker.ingest(
                str(folder / "corpus.jsonl.gz"), options=IngestOptions(cache_dir=settings.cache_dir)
            )
            print(f"{report.read:,} abstracts, {report.passages:,} passages, {report.seconds:.0f} s")
        print(common.machine(checker.store.name, f"{len(claims)} claims"))
        print(f"{'recipe':<20} nDCG@10              R@100                CPU ms per claim")
        baseline: list[float] | None = None
        for name, whole in {**RECIPES, **({UNEQUAL_DEPTHS.name: UNEQUAL_DEPTHS} if store else {})}.items():
            if chosen and name not in chosen:
                continue
            # Retrieval only, whichever models are installed.
            alone = {
                # Late interaction uses the embedding model. Other rerankers need models that may not be installed.
                "rerankers": {key: stage for key, stage in whole.rerankers.items() if isinstance(stage, LateStage)},
                "evidence": EvidenceStage(sentences=0),
                "verdict": VerdictStage(method="none"),
            }
            recipe = whole.model_copy(update=alone)
            with ccheck.Checker(settings, recipe=recipe) as checker:
                checker.check(claims[0], k=1)
                started = time.process_time()
                rankings = {
                    str(result.claim.id): [evidence.document.id for evidence in result.evidence]
                    for result in checker.check_many(claims, k=100)
                }
                seconds = time.process_time() - started
            values = metrics(rankings, qrels)
            cells = [_interval(some) for some in values]
            print(f"{name:<20} {cells[0]}  {cells[1]}  {1000 * seconds / len(claims):.1f}", flush=True)
            if name == BASELINE:
                baseline = values[0]
            elif baseline is not None:
                print(f"{'':<20} {_difference(values[0], baseline)}", flush=True)


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


def _difference(values: list[float], baseline: list[float], rounds: int = 10_000) -> str:
    """The mean difference of nDCG@10 with its bootstrap interval, and a paired randomisation test (two-sided)."""
    gains = np.asarray(values) - np.asarray(baseline)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (rounds, len(gains)))
    p = (1 + np.count_nonzero(np.abs((signs * gains).mean(1)) >= abs(gains.mean()) - 1e-12)) / (rounds + 1)
    better, worse = np.count_nonzero(gains > 0), np.count_nonzero(gains < 0)
    return f"{_interval(list(gains))} over {BASELINE}, p = {p:.4f}, {better} claims better, {worse} worse"


def _interval(values: list[float], rounds: int = 2000) -> str:
    """The mean with its 95% bootstrap interval over claims."""
    array = np.asarray(values)
    means = array[np.random.default_rng(0).integers(0, len(array), (rounds, len(array)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{array.mean():.4f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
