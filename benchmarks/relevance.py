"""Fit and measure the estimate that something in the collection bears on a claim (`pipeline/relevance.py`).

    python benchmarks/relevance.py FOLDER

FOLDER has `scifact/` (BEIR), `climate-fever/claims.jsonl.gz` and `fever/pairs.jsonl.gz`. Three collections: SciFact's
abstracts, the evidence sentences of Climate-FEVER, those of 3,000 claims of FEVER. Each claim is searched for in its
own collection, in that without its documents, and in the two others, where nothing bears on it. Half of the claims, by
a hash of their ids, are fitted on; the figures are those of the other half.

Documents that other claims cite can bear on a claim, too, and nobody judged them: what is counted as a miss in the
collection without a claim's own documents is sometimes right.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import common
import numpy as np

import ccheck
from ccheck.core.fusion import fuse, places_in, ranking_of
from ccheck.core.models import find_model, fingerprint
from ccheck.core.recipe import load_recipe
from ccheck.core.stages import VerdictStage
from ccheck.core.types import Query
from ccheck.encode.dense import DEFAULT_MODEL
from ccheck.pipeline import relevance
from ccheck.search import Search

SHARES = {"there": 0.5, "taken out": 0.4, "elsewhere": 0.1}
"""What each case counts for in the fit, of each data set the same."""
FITTED = {
    "BOTH": ("cosine", "cosine_gap", "bm25_gap", "words", "sentence_words", "agreement"),
    "COSINES": ("cosine", "cosine_gap", "words", "sentence_words"),
    "WORDS": ("bm25_gap", "words", "sentence_words"),
}
RESAMPLES = 2_000
PRECISION = 0.94
"""How often "nothing bears" must be right on each data set: the limit is the largest for which it is."""
RECIPES = {"BOTH": "default", "COSINES": "dense", "WORDS": "bm25"}


@dataclass(frozen=True)
class DataSet:
    documents: Sequence[Mapping[str, str]]
    claims: Sequence[tuple[str, str, frozenset[str]]]
    """Id, text, and the ids of its documents."""


@dataclass(frozen=True)
class Case:
    data_set: str
    claim: str
    kind: str
    features: Mapping[str, Mapping[str, float]]
    """By the name of the model."""

    @property
    def fitted(self) -> bool:
        return hashlib.sha256(f"{self.data_set} {self.claim}".encode()).digest()[0] < 128


# The same documents are read for many claims.
relevance.terms = functools.lru_cache(None)(relevance.terms)  # type: ignore[assignment]
relevance.sentence_spans = functools.lru_cache(None)(relevance.sentence_spans)  # type: ignore[assignment]


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
def main(folder: Path) -> None:
    sets = {"scifact": scifact(folder), "climate-fever": climate_fever(folder), "fever": fever(folder)}
    cases = [case for name in sets for case in cases_of(name, sets)]
    print(f"{len(cases):,} cases: " + ", ".join(f"{kind} {n:,}" for kind, n in Counter(c.kind for c in cases).items()))
    known = relevance.calibrated(fingerprint(find_model(DEFAULT_MODEL).path))
    assert known is not None
    packaged = {"BOTH": known.both, "COSINES": known.cosines, "WORDS": relevance.WORDS}
    for model, names in FITTED.items():
        fitted = fit([case for case in cases if case.fitted], model, names)
        chosen = limit(model, packaged[model], [case for case in cases if case.fitted])
        print(f"{model}: the limit of the packaged one is {packaged[model].least}, chosen here {chosen}")
        print(f"{model} = Model({fitted.intercept:.3f}, { {name: round(w, 3) for name, w in fitted.weights.items()} })")
        measure("packaged", model, packaged[model], [case for case in cases if not case.fitted])
        measure("fitted here", model, fitted, [case for case in cases if not case.fitted])
        for name in sets:
            others = [case for case in cases if case.fitted and case.data_set != name]
            apart = [case for case in cases if not case.fitted and case.data_set == name]
            measure(f"fitted without {name}", model, fit(others, model, names), apart)


def scifact(folder: Path) -> DataSet:
    documents = list(common.rows(folder / "scifact" / "corpus.jsonl.gz"))
    gold: dict[str, set[str]] = {}
    for line in (folder / "scifact" / "qrels.tsv").read_text().splitlines()[1:]:
        claim, document, grade = line.split("\t")
        if int(grade) > 0:
            gold.setdefault(claim, set()).add(document)
    rows = common.rows(folder / "scifact" / "queries.jsonl")
    return DataSet(documents, [(row["_id"], row["text"], frozenset(gold[row["_id"]])) for row in rows])


def climate_fever(folder: Path) -> DataSet:
    documents: dict[str, Mapping[str, str]] = {}
    claims = []
    for row in common.rows(folder / "climate-fever" / "claims.jsonl.gz"):
        for one in row["evidences"]:
            text = {"_id": one["evidence_id"], "title": one["article"], "text": one["evidence"]}
            documents[one["evidence_id"]] = text
        if any(one["evidence_label"] != "NOT_ENOUGH_INFO" for one in row["evidences"]):
            ids = frozenset(one["evidence_id"] for one in row["evidences"])
            claims.append((row["claim_id"], row["claim"], ids))
    return DataSet(list(documents.values()), claims)


def fever(folder: Path) -> DataSet:
    rows = random.Random(0).sample(list(common.rows(folder / "fever" / "pairs.jsonl.gz")), 3_000)
    ids = {row["evidence"]: hashlib.sha256(row["evidence"].encode()).hexdigest()[:12] for row in rows}
    documents = [{"_id": id_, "title": "", "text": text[:2_000]} for text, id_ in ids.items()]
    claims = [(row["id"], row["claim"], frozenset([ids[row["evidence"]]])) for row in rows[:1_200]]
    return DataSet(documents, claims)


def cases_of(name: str, sets: Mapping[str, DataSet]) -> Iterator[Case]:
    """The claims of all data sets in the collection of one."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus.jsonl"
        corpus.write_text("".join(json.dumps(one) + "\n" for one in sets[name].documents))
        with ccheck.open(f"{scratch}/store") as checker:
            checker.ingest(str(corpus))
            plans = {model: _checker(checker, recipe).plan() for model, recipe in RECIPES.items()}
            embedder = plans["BOTH"].embedder
            assert embedder is not None
            for other, data_set in sets.items():
                claims = list(data_set.claims)
                if other != name:
                    claims = random.Random(1).sample(claims, 300)
                vectors = embedder.encode_queries([text for _, text, _ in claims])
                queries = [Query(text, vector) for (_, text, _), vector in zip(claims, vectors, strict=True)]
                rankings = checker.store.rank(Search(queries, plans["BOTH"].retrievers))
                for (id_, text, gold), ranks in zip(claims, rankings, strict=True):
                    assert not isinstance(ranks, Exception)
                    ranked = ranks.rankings
                    kinds = ("there", "taken out") if other == name else ("elsewhere",)
                    for kind in kinds:
                        left = gold if kind == "taken out" else frozenset()
                        kept = {r: [pair for pair in some if pair[0] not in left] for r, some in ranked.items()}
                        yield Case(other, id_, kind, {model: _features(checker, text, kept, model) for model in FITTED})


def _checker(checker: ccheck.Checker, recipe: str) -> ccheck.Checker:
    alone = {"rerankers": {}, "verdict": VerdictStage(method="none")}
    return ccheck.Checker(checker.settings, recipe=load_recipe(recipe).model_copy(update=alone), store=checker.store)


def _features(
    checker: ccheck.Checker, text: str, ranked: Mapping[str, Sequence[tuple[str, float]]], model: str
) -> Mapping[str, float]:
    fusion = load_recipe("default").fusion
    own = {name: ranked[name] for name in (["bm25", "dense"] if model == "BOTH" else [RECIPES[model]])}
    top = fuse(own, dict.fromkeys(own, 1.0), fusion) if len(own) > 1 else list(*own.values())
    top = top[: relevance.HITS]
    documents = checker.store.get([id_ for id_, _ in top])
    hits = ranking_of(top, places_in(own), documents, fusion if len(own) > 1 else None, {}).hits
    bm25, dense = ("bm25" if "bm25" in own else None), ("dense" if "dense" in own else None)
    return relevance.features(text, hits, bm25, dense) if hits else dict.fromkeys(FITTED["BOTH"], 0.0)


def fit(cases: Sequence[Case], model: str, names: Sequence[str]) -> relevance.Model:
    from sklearn.linear_model import LogisticRegression

    sizes = Counter((case.data_set, case.kind) for case in cases)
    weights = [1_000 * SHARES[case.kind] / sizes[case.data_set, case.kind] for case in cases]
    values = np.array([[case.features[model][name] for name in names] for case in cases])
    scale = values.std(axis=0)
    made = LogisticRegression(max_iter=1_000)
    made.fit(values / scale, [case.kind == "there" for case in cases], sample_weight=weights)
    return relevance.Model(float(made.intercept_[0]), dict(zip(names, (made.coef_[0] / scale).tolist(), strict=True)))


def limit(name: str, model: relevance.Model, cases: Sequence[Case]) -> float:
    """The largest limit, in hundredths, with this precision on each data set."""
    said = [(case, model.probability(case.features[name])) for case in cases]

    def precise(least: float) -> bool:
        counts = Counter((case.data_set, case.kind == "there") for case, chance in said if chance < least)
        return all(
            counts[one, True] <= (1 - PRECISION) * (counts[one, True] + counts[one, False])
            for one in {case.data_set for case in cases}
        )

    return next((least / 100 for least in range(50, 0, -1) if precise(least / 100)), 0.0)


def measure(said: str, name: str, model: relevance.Model, cases: Sequence[Case]) -> None:
    from sklearn.metrics import roc_auc_score

    least = model.least
    for data_set in dict.fromkeys(case.data_set for case in cases):
        own = {
            kind: np.array(
                [model.probability(c.features[name]) for c in cases if c.data_set == data_set and c.kind == kind]
            )
            for kind in SHARES
        }
        there, out, elsewhere = own.values()
        truth = [1] * len(there) + [0] * len(out)
        together = np.concatenate([there, out])
        brier = float(np.mean((together - truth) ** 2))
        print(
            f"  {said:<28} {data_set:<14} n {len(there)}/{len(out)}/{len(elsewhere)}  mean {there.mean():.2f}/"
            f"{out.mean():.2f}/{elsewhere.mean():.2f}  AUC {roc_auc_score(truth, together):.3f}, with elsewhere "
            f"{roc_auc_score(truth + [0] * len(elsewhere), np.concatenate([together, elsewhere])):.3f}  "
            f"Brier {brier:.3f}  "
            f"nothing (< {least}): precision {precision(there < least, out < least, elsewhere < least)}, "
            f"recall {share(out < least)} taken out, {share(elsewhere < least)} elsewhere; "
            f"wrongly {share(there < least)}",
            flush=True,
        )


def share(said: np.ndarray) -> str:
    """The share with its 95% interval, by a bootstrap over claims."""
    return _with_interval(lambda rng: float(rng.choice(said, len(said)).mean()), float(said.mean()))


def precision(*said: np.ndarray) -> str:
    """How often nothing bears on the claims of which it is said: `said` of those with documents, then of the others."""

    def value(wrong: np.ndarray, *right: np.ndarray) -> float:
        count = sum(int(some.sum()) for some in right)
        return count / max(1, count + int(wrong.sum()))

    return _with_interval(lambda rng: value(*(rng.choice(some, len(some)) for some in said)), value(*said))


def _with_interval(draw: Callable[[np.random.Generator], float], measured: float) -> str:
    rng = np.random.default_rng(0)
    low, high = np.quantile([draw(rng) for _ in range(RESAMPLES)], [0.025, 0.975])
    return f"{measured:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
