"""How much training on SciFact's claims helps, on claims about documents that were not trained on.

    python benchmarks/training.py FOLDER --work WORK [--part embedder|reranker] [--seed N] [--quick]

FOLDER contains `corpus.jsonl.gz`, `queries.jsonl` and `qrels.tsv` in BEIR's format. Every training starts from the
packaged all-MiniLM-L6-v2, and the data is split by document, as `ccheck train` does. WORK keeps the store, the rankings
and the models. The script reuses what is there and resumes what was interrupted.

For each variant the script prints the development metric before and after, with 95% intervals, for both groups of
claims. For rerankers it also measures a mix of their scores with the retrieval's, w * reranker + (1 - w) * retrieval,
both scaled to 0..1 over a claim's candidates. It chooses w on the claims held out by claim and measures on the others.
Each variant changes one thing in the previous one, to show what helps.

A split has few claims. Draw others with --seed: a real gain shows in most of them.

On two cores the embedder takes about ten minutes and each reranker about an hour. --quick takes a twentieth of that and
only shows that everything runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import ccheck
from ccheck.core.errors import UsageError
from ccheck.core.recipe import load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.stages import EvidenceStage, ModelStage, VerdictStage
from ccheck.core.types import Claim
from ccheck.ingest import IngestOptions, Record, read
from ccheck.ingest.documents import make_document
from ccheck.lab.measure.datasets import read_qrels
from ccheck.lab.measure.metrics import bootstrap, measure, only
from ccheck.lab.train.embedder import train_embedder
from ccheck.lab.train.loop import Output
from ccheck.lab.train.options import EmbedderOptions, RerankerOptions, TrainingOptions
from ccheck.lab.train.reranker import train_reranker
from ccheck.lab.train.retrieval_data import SEEN, UNSEEN, RetrievalData, retrieval_data
from ccheck.pipeline.claims import read_claims
from ccheck.rerank.load import load_scorer

METRIC = "nDCG@10"
EMBEDDERS = {
    "multiple negatives": {"epochs": 2, "batch": 64, "learning_rate": 2e-5},
    "multiple negatives, LoRA": {"epochs": 2, "batch": 64, "learning_rate": 2e-4, "lora": {}},
    "triplet, random negatives": {"epochs": 2, "batch": 16, "learning_rate": 2e-5, "loss": "triplet"},
    "multiple negatives, one epoch of 128 tokens": {"epochs": 1, "max_tokens": 128},
}
_COMMON = {"max_tokens": 256, "depth": 50, "batch": 16, "learning_rate": 5e-5, "epochs": 2, "eval_claims": 80}
RERANKERS = {
    "bce, hard negatives": {**_COMMON, "hard": 3, "random": 0},
    "softmax, hard negatives": {**_COMMON, "loss": "softmax", "batch": 4, "hard": 3, "random": 0},
}
_QUICK = {"epochs": 1, "max_tokens": 64}


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--work", type=click.Path(path_type=Path), required=True, help="Folder for the store, rankings and models."
)
@click.option("--part", type=click.Choice(["embedder", "reranker"]), help="Train only this one.")
@click.option("--variant", "only_variant", help="Train only the variant whose name starts with this.")
@click.option("--seed", default=0, help="Random seed for the split and all else drawn.")
@click.option("--pool", default=6000, help="Number of documents that embedders rank.")
@click.option("--quick", is_flag=True, help="Only check that it runs. The figures mean nothing.")
def main(
    folder: Path, work: Path, part: str | None, only_variant: str | None, seed: int, pool: int, quick: bool
) -> None:
    work.mkdir(parents=True, exist_ok=True)
    data = retrieval_data(
        [
            make_document(one.data).document
            for one in read([str(folder / "corpus.jsonl.gz")])
            if isinstance(one, Record)
        ],
        read_claims(folder / "queries.jsonl"),
        read_qrels(folder / "qrels.tsv"),
        TrainingOptions(seed=seed),
    )
    print(f"{len(data.documents):,} documents; {'; '.join(data.messages)}; {os.cpu_count()} cores")
    for kind, variants in (("embedder", EMBEDDERS), ("reranker", RERANKERS)):
        if part not in (None, kind):
            continue
        for name, settings in variants.items():
            if only_variant is None or name.startswith(only_variant):
                print(f"\n{kind}: {name}", flush=True)
                run(kind, name, {**settings, "seed": seed}, data, folder, work, quick, pool)


def run(
    kind: str,
    name: str,
    settings: Mapping[str, Any],
    data: RetrievalData,
    folder: Path,
    work: Path,
    quick: bool,
    pool: int,
) -> None:
    drawn = f"-{settings['seed']}" if settings["seed"] else ""
    output = work / f"{kind}{drawn}-{''.join(c if c.isalnum() else '-' for c in name)}{'-quick' if quick else ''}"
    if output.exists():
        raise UsageError(f"{output} is there already: remove it to train it again")
    how = Output(output, resume=output.with_name(f"{output.name}.training").exists())
    started, cpu = time.perf_counter(), time.process_time()
    with Runtime(notify=lambda said: print(f"    {said}", flush=True)) as runtime:
        if kind == "embedder":
            small = {**_QUICK, "pool": 200, "final_pool": 300} if quick else {"pool": pool // 4, "final_pool": pool}
            report = train_embedder(EmbedderOptions(**{**settings, **small}), data, how, runtime)
        else:
            found = Found(folder, work)
            small = {**_QUICK, "eval_claims": 5, "eval_depth": 5} if quick else {}
            report = train_reranker(RerankerOptions(**{**settings, **small}), data, how, runtime, found.candidates)
    for figure in report.figures:
        low, high = figure.difference_interval or (float("nan"),) * 2
        change = f"{figure.after - figure.before:+.4f} [{low:+.3f}, {high:+.3f}]"
        print(f"  {figure.group} ({figure.claims}) {figure.metric:<8} {figure.describe()}  {change}")
    if kind == "reranker" and not quick:
        mixed(output, data, found)
    print(f"  {time.perf_counter() - started:.0f} s, {time.process_time() - cpu:.0f} s of CPU", flush=True)


class Found:
    """The default recipe's rankings. The store is created once, and rankings are kept by claim."""

    def __init__(self, folder: Path, work: Path) -> None:
        self._store, self._file = work / "store", work / "found.json"
        self._corpus = folder / "corpus.jsonl.gz"
        self._kept: dict[str, dict[str, float]] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def candidates(self, claims: Sequence[Claim], depth: int) -> dict[str, dict[str, float]]:
        missing = [claim for claim in claims if f"{claim.id}\t{claim.text}" not in self._kept]
        if missing:
            settings = ccheck.open(str(self._store)).settings
            recipe = load_recipe("default").model_copy(
                update={"rerankers": {}, "evidence": EvidenceStage(sentences=0), "verdict": VerdictStage(method="none")}
            )
            with ccheck.Checker(settings, recipe=recipe) as checker:
                checker.ingest(str(self._corpus), options=IngestOptions(cache_dir=settings.cache_dir))
                for claim, result in zip(missing, checker.check_many(missing, k=200, details=False), strict=True):
                    scores = {one.document.id: one.hit.score for one in result.evidence}
                    self._kept[f"{claim.id}\t{claim.text}"] = scores
            self._file.write_text(json.dumps(self._kept))
        return {str(claim.id): dict(list(self._kept[f"{claim.id}\t{claim.text}"].items())[:depth]) for claim in claims}


def mixed(model: Path, data: RetrievalData, found: Found, depth: int = 50) -> None:
    """What the reranker adds to the retrieval that it reorders, as `ccheck query` would score it."""
    scorer = load_scorer(str(model), Runtime(), ModelStage(max_tokens=256))
    parts = {}
    for group, claims in data.groups.items():
        parts[group] = {}
        for claim_id, before in found.candidates(claims, depth).items():
            claim = next(claim for claim in claims if str(claim.id) == claim_id)
            encoded = scorer.encode(claim.text, [data.documents[id_].content for id_ in before])
            parts[group][claim_id] = (list(before), scaled(list(before.values())), scaled(scorer.score(encoded)))

    def values(group: str, weight: float) -> list[float]:
        run = {
            claim: dict(zip(ids, ((1 - weight) * first + weight * second).tolist(), strict=True))
            for claim, (ids, first, second) in parts[group].items()
        }
        return list(measure(run, only(data.qrels, run), [METRIC]).by_claim[METRIC].values())

    weights = [step / 10 for step in range(11)]
    best = max(weights, key=lambda weight: sum(values(SEEN, weight)))
    print(
        "  mix, by document: " + "  ".join(f"{weight:.1f} {np.mean(values(UNSEEN, weight)):.4f}" for weight in weights)
    )
    changes = [after - before for before, after in zip(values(UNSEEN, 0), values(UNSEEN, best), strict=True)]
    low, high = bootstrap(changes)
    print(
        f"  mix chosen on the other claims, {best:.1f}: {np.mean(changes):+.4f} [{low:+.3f}, {high:+.3f}] by document"
    )


def scaled(scores: Sequence[float]) -> np.ndarray:
    array = np.asarray(scores, np.float64)
    return (array - array.min()) / max(float(np.ptp(array)), 1e-12)


if __name__ == "__main__":
    main()
