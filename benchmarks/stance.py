"""Local stance methods on labelled pairs, next to baselines that need no model.

    python benchmarks/stance.py FOLDER [--stance NAME|FOLDER]... [--local-llm NAME|FOLDER]... [--half first|second]

FOLDER contains `scifact/` (corpus.jsonl.gz, verdicts.jsonl: claims with whole abstracts) and `climate-fever/`
(claims.jsonl.gz: claims with five evidence sentences each). For each method the script prints label-weighted and macro
F1, accuracy, the expected calibration error (10 bins) as it is and with a temperature fitted on other claims, and the
confusion matrix. For Climate-FEVER it also prints the claim's verdict that ccheck's rule derives from the five stances.

The baselines are the most frequent label, and TF-IDF of claim and document with logistic regression (balanced), out of
fold. `by claim`: five folds by claim. `unseen documents`: the same, but the training data has no document of the fold.

To measure a model that was trained on these claims, use the half it was not trained on. The first byte of the SHA-256
of the claim's id is even in the first half and odd in the second.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import click
import numpy as np
from data import documents, rows
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import GroupKFold

from ccheck.core.errors import CcheckError
from ccheck.core.types import Claim, Document, Evidence, Hit, Stance
from ccheck.verdict.calibration import fit_calibration, reliability
from ccheck.verdict.classifier import StanceClassifier
from ccheck.verdict.conclude import conclude
from ccheck.verdict.judge import Case, StanceMethod
from ccheck.verdict.labels import LABELS, STANCES, parse_label
from ccheck.verdict.local_llm import LocalLlm

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim and a document with the true stance, and the claim's verdict if it is known."""

    claim: Claim
    document: Document
    label: str
    source: str
    verdict: str | None


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--stance", "classifiers", multiple=True, help="Sequence classifier to measure.")
@click.option("--local-llm", "models", multiple=True, help="Causal language model to measure.")
@click.option("--half", type=click.Choice(["first", "second"]), help="Use only the claims in one half.")
@click.option("--limit", type=int, help="Draw this many pairs of each at random. The baselines use all pairs.")
@click.option("--data", type=click.Choice(["scifact", "climate-fever"]), help="Use only one of the two data sets.")
def main(
    folder: Path,
    classifiers: tuple[str, ...],
    models: tuple[str, ...],
    half: str | None,
    limit: int | None,
    data: str | None,
) -> None:
    for name, read in (("scifact", read_scifact), ("climate-fever", read_climate_fever)):
        if data not in (None, name):
            continue
        pairs = list(read(folder / name))
        chosen = np.array([half is None or is_first(pair.claim) == (half == "first") for pair in pairs])
        asked = [pair for pair, wanted in zip(pairs, chosen, strict=True) if wanted]
        print(f"\n{name}: {len(asked)} of {len(pairs)} pairs" + (f", claims of the {half} half" if half else ""))
        print(f"{'':<34}F1 weighted   macro  accuracy     ECE  with temperature")
        truth = [pair.label for pair in asked]
        most = max(STANCES, key=truth.count)
        show("most frequent label", truth, [most] * len(asked))
        for disjoint in (False, True):
            said = [stance for stance, wanted in zip(tfidf(pairs, disjoint), chosen, strict=True) if wanted]
            report(f"TF-IDF, {'unseen documents' if disjoint else 'by claim'}", asked, said)
        if limit is not None and limit < len(asked):
            picks = np.random.default_rng(0).permutation(len(asked))[:limit]
            asked = [asked[number] for number in sorted(picks)]
            print(f"of these {len(asked)} pairs, drawn at random:")
        methods = [*((StanceClassifier, model) for model in classifiers), *((LocalLlm, model) for model in models)]
        for kind, model in methods:
            method = kind(model)
            started, used = time.perf_counter(), time.process_time()
            said = judge(method, asked)
            wall, cpu = time.perf_counter() - started, time.process_time() - used
            report(f"{method.name.partition(':')[0]}:{Path(model).name}", asked, said)
            print(f"    {1000 * wall / len(asked):.0f} ms a pair, {1000 * cpu / len(asked):.0f} ms of CPU time")


def is_first(claim: Claim) -> bool:
    return hashlib.sha256(str(claim.id).encode()).digest()[0] % 2 == 0


def read_scifact(folder: Path) -> Iterator[Pair]:
    corpus = documents(folder / "corpus.jsonl.gz")
    for row in rows(folder / "verdicts.jsonl"):
        document = corpus[row["doc_id"]]
        yield Pair(Claim(row["claim"], row["claim_id"]), document, parse_label(row["label"]), document.id, None)


def read_climate_fever(folder: Path) -> Iterator[Pair]:
    for row in rows(folder / "claims.jsonl.gz"):
        for piece in row["evidences"]:
            document = Document(piece["evidence_id"], piece["article"], piece["evidence"])
            claim = Claim(row["claim"], row["claim_id"])
            verdict = parse_label(row["claim_label"])
            yield Pair(claim, document, parse_label(piece["evidence_label"]), piece["article"], verdict)


def judge(method: StanceMethod, pairs: Sequence[Pair]) -> list[Stance]:
    """The stance of each pair; those of a claim side by side are one case."""
    cases = [
        Case(claim, tuple(Evidence(Hit(rank, pair.document, 1 / rank)) for rank, pair in enumerate(group, 1)))
        for claim, group in groupby(pairs, key=lambda pair: pair.claim)
    ]
    return [stance for judged in method(cases) for stance in judged.stances]


def tfidf(pairs: Sequence[Pair], disjoint: bool) -> list[Stance]:
    """Out-of-fold stances of TF-IDF and logistic regression."""
    truth = np.array([STANCES.index(pair.label) for pair in pairs])
    sources = np.array([pair.source for pair in pairs])
    texts = [[pair.claim.text for pair in pairs], [f"{p.document.title} {p.document.text}" for p in pairs]]
    probabilities = np.zeros((len(pairs), 3))
    for train, test in GroupKFold(FOLDS).split(truth, groups=[str(pair.claim.id) for pair in pairs]):
        learned = train[~np.isin(sources[train], sources[test])] if disjoint else train
        parts = []
        for column in texts:
            vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2).fit([column[i] for i in learned])
            parts.append([vectorizer.transform([column[i] for i in rows]) for rows in (learned, test)])
        model = LogisticRegression(max_iter=2000, class_weight="balanced").fit(
            hstack([part[0] for part in parts]), truth[learned]
        )
        probabilities[test] = model.predict_proba(hstack([part[1] for part in parts]))
    return [
        Stance(STANCES[row.argmax()], float(row.max()), probabilities=dict(zip(STANCES, row.tolist(), strict=True)))
        for row in probabilities
    ]


def report(name: str, pairs: Sequence[Pair], stances: Sequence[Stance]) -> None:
    failed = [stance.error for stance in stances if stance.label is None]
    truth = [pair.label for pair in pairs]
    # A pair that could not be judged counts as wrong.
    show(name, truth, [stance.label or "failed" for stance in stances], stances)
    if failed:
        print(f"    {len(failed)} pairs could not be judged: {failed[0]}")
    print(f"    {'said':<21}" + "".join(f"{label[:3]:>6}" for label in STANCES))
    for label in STANCES:
        row = [sum(t == label and s.label == other for t, s in zip(truth, stances, strict=True)) for other in STANCES]
        print(f"    true {label:<16}" + "".join(f"{count:>6}" for count in row) + f"   of {truth.count(label)}")
    claims = [list(group) for _, group in groupby(zip(pairs, stances, strict=True), key=lambda item: item[0].claim)]
    if pairs[0].verdict is not None and all(len(group) == 5 for group in claims):
        verdicts = [
            conclude([Evidence(Hit(i, p.document, 1.0), (), s) for i, (p, s) in enumerate(group, 1)], name).label
            or "failed"
            for group in claims
        ]
        true = [str(group[0][0].verdict) for group in claims]
        macro = f1_score(true, verdicts, labels=LABELS, average="macro", zero_division=0)
        most = max(LABELS, key=true.count)
        print(
            f"    verdicts of {len(true)} claims: accuracy {accuracy_score(true, verdicts):.3f}, macro F1 {macro:.3f}"
            f" (always {most}: {true.count(most) / len(true):.3f})"
        )


def show(
    name: str,
    truth: Sequence[str],
    said: Sequence[str],
    stances: Sequence[Stance] | None = None,
) -> None:
    figures = [
        f1_score(truth, said, labels=STANCES, average="weighted", zero_division=0),
        f1_score(truth, said, labels=STANCES, average="macro", zero_division=0),
        accuracy_score(truth, said),
    ]
    cells = [f"{figure:>10.3f}" for figure in figures]
    if stances is not None:
        cells += [f"{reliability(stances, truth).error:>8.3f}", f"{_calibrated(stances, truth):>12.3f}"]
    print(f"{name:<34}" + "".join(cells), flush=True)


def _calibrated(stances: Sequence[Stance], truth: Sequence[str]) -> float:
    """The calibration error, each half with a temperature fitted on the other half of the pairs."""
    middle = len(stances) // 2
    after: list[Stance] = []
    try:
        for learn, use in ((slice(middle, None), slice(middle)), (slice(middle), slice(middle, None))):
            calibration = fit_calibration(stances[learn], truth[learn], "benchmark")  # type: ignore[arg-type]
            after += map(calibration.apply, stances[use])
    except CcheckError:
        return float("nan")
    return reliability(after, truth).error


if __name__ == "__main__":
    main()
