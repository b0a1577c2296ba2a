"""Make the stance model that ccheck carries, and measure it on claims and documents that nothing has seen.

    OMP_NUM_THREADS=1 python benchmarks/packaged_stance.py FOLDER --output verdict/packaged

FOLDER contains `scifact/`, `climate-fever/` and `fever/`. Everything is drawn with fixed seeds, so the same data,
library versions and kind of processor give the same file. `--cache FILE` keeps the embeddings, which take nearly all
the time.

The measurement is nested. In each of three outer folds, a third of the claims is held out, and training pairs that
share a document with them are dropped. Regularisation, class weights, the weight of FEVER, temperature and threshold
are chosen in two inner folds of what is left. `without it` leaves the whole data set out of training.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from ccheck.analysis import clean
from ccheck.encode.dense import Embedder
from ccheck.models import find_model
from ccheck.training.stance_rows import StanceRow, read_rows
from ccheck.types import Document
from ccheck.verdict.features import COUNTS, pair_counts
from ccheck.verdict.labels import STANCES
from ccheck.verdict.packaged_model import WIDTH, PackagedWeights, design, probabilities

EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
SENTENCES = 4
LARGEST = 4.0
FEVER_PAIRS, FEVER_OPEN = 1600, 800
GRID = tuple(itertools.product((0.03, 0.1), (0.3, 0.5), (0.3,)))
"""Regularisation C, how far label frequencies are balanced (0 to 1), weight of FEVER's pairs.

FEVER is always there: without SciFact, only its pairs have documents of several sentences."""
THRESHOLDS = (0.0, 0.4, 0.45, 0.5, 0.55)
NAMES = ("SciFact", "Climate-FEVER", "FEVER")


@dataclass(frozen=True)
class Part:
    """The pairs of a data set: counts [pairs, COUNTS], labels by their place in STANCES, claims and documents."""

    counts: NDArray[np.float64]
    labels: NDArray[np.int64]
    claims: NDArray[np.str_]
    documents: NDArray[np.str_]

    def of(self, mask: NDArray[np.bool_]) -> Part:
        return Part(self.counts[mask], self.labels[mask], self.claims[mask], self.documents[mask])


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the mean weighted F1 by which."""

    strength: float
    balanced: float
    fever: float
    temperature: float
    threshold: float
    value: float


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Write model.json and figures.json to this folder.")
@click.option("--cache", type=click.Path(path_type=Path), help="Keep the embeddings in this file.")
def main(folder: Path, output: Path | None, cache: Path | None) -> None:
    parts = read_parts(folder, cache)
    figures = {"held out": held_out(parts), "without it": left_out(parts)}
    choice = choose(parts)
    weights = fit(parts, choice, figures["held out"]["SciFact"]["weighted_f1"])
    print(json.dumps({**figures, "chosen": vars(choice)}, indent=1))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "model.json").write_text(weights.model_dump_json() + "\n", encoding="utf-8")
        (output / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        (output / "README.md").write_text(card(figures, choice), encoding="utf-8")


# -- the model card

CARD = """# The packaged stance model

It says what a document says about a claim: SUPPORTS, REFUTES or NOT_ENOUGH_INFO. ccheck uses it where no better judge
is set up. It is multinomial logistic regression over {features} features, in a JSON file, and needs only the packaged
embedding model (all-MiniLM-L6-v2), which numpy runs.

## How it was made

`benchmarks/packaged_stance.py` makes it. [docs/training.md](../../docs/training.md) has the command.

- **Data**: 919 claim-abstract pairs of SciFact (claims and labels CC BY 4.0, abstracts ODC-By 1.0), 5,140
  claim-sentence pairs of Climate-FEVER (as published by its authors), {fever_pairs:,} claim-evidence pairs of FEVER
  (CC BY-SA 3.0), and {fever_open:,} open pairs made from FEVER: a claim with the evidence of another claim that shares
  words with it. The file contains weights only, neither texts nor labels.
- **Features**: the {counts} counts of `ccheck/verdict/features.py`, and each of them once more for documents of one
  sentence. Of an abstract, up to four sentences that share most words with the claim are read.
- **Choices**: regularisation C = {strength}, class weights to the power of {balanced}, weight of FEVER {fever},
  temperature {temperature}, threshold {threshold}. They were chosen in two folds of the training pairs.

## Figures

*Held out*: claims and documents that neither training nor the choices above have seen, in three folds. *Without it*:
the whole data set was left out, as when you use the model in another field. Intervals (95%) are from a bootstrap over
claims.

The figures flatter a little. Which features are counted, how many sentences are read, that documents of one sentence
have weights of their own, and the weight of FEVER were chosen on earlier splits of the same pairs. The last was fixed
after a trial in which it could also be 0: SciFact without its own pairs then came to 0.366.

| data | weighted F1 | always the most frequent label | macro F1 | expected calibration error |
| --- | --- | --- | --- | --- |
{rows}

How reliable the confidences are, on held-out pairs:

| confidence | {names} |
| --- | {lines} |
{reliability}

## What it can't do

- It compares words. It doesn't know what they mean: that a lower mortality is a better survival, for example.
- REFUTES is its weakest label. It needs a negation, an opposite direction or another number to notice it.
- It adds nothing up, neither numbers nor several sentences.
- On subjects and kinds of text that are unlike its data, expect the figures of *without it*, and confidences that are
  too high.
- It reads English only.
"""


def card(figures: dict[str, dict[str, dict[str, Any]]], choice: Choice) -> str:
    rows = [
        f"| {name}, {kind} | {one['weighted_f1']:.3f} [{one['interval'][0]:.3f}, {one['interval'][1]:.3f}] "
        f"| {one['most_frequent_label']:.3f} | {one['macro_f1']:.3f} | {one['calibration_error']:.3f} |"
        for kind, found in figures.items()
        for name, one in found.items()
    ]
    held = figures["held out"]
    bins = {name: {row[0]: row for row in one["reliability"]} for name, one in held.items()}
    reliability = []
    for low in sorted({low for found in bins.values() for low in found}):
        cells = []
        for found in bins.values():
            row = found.get(low)
            cells.append(f"{row[3]:.2f} right of {row[1]:,}, mean confidence {row[2]:.2f}" if row else "–")
        reliability.append(f"| {low:.1f} to {low + 0.1:.1f} | {' | '.join(cells)} |")
    return CARD.format(
        features=WIDTH,
        counts=COUNTS,
        fever_pairs=FEVER_PAIRS,
        fever_open=FEVER_OPEN,
        rows="\n".join(rows),
        names=" | ".join(held),
        lines=" | ".join("---" for _ in held),
        reliability="\n".join(reliability),
        **{name: getattr(choice, name) for name in ("strength", "balanced", "fever", "temperature", "threshold")},
    )


# -- data


def read_parts(folder: Path, cache: Path | None) -> list[Part]:
    rows = [
        list(read_rows(folder / "scifact/verdicts.jsonl", folder / "scifact/corpus.jsonl.gz").rows),
        list(read_rows(folder / "climate-fever/claims.jsonl.gz").rows),
        fever_rows(folder),
    ]
    embedder = Embedder(find_model(EMBEDDING), "cpu")
    known: dict[str, NDArray[np.float32]] = {}
    if cache is not None and cache.exists():
        with np.load(cache) as kept:
            known = dict(zip(json.loads(str(kept["texts"])), kept["vectors"], strict=True))

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            known.update(zip(missing, embedder.encode_queries(missing), strict=True))
            if cache is not None:
                np.savez(cache, texts=json.dumps(list(known)), vectors=np.stack(list(known.values())))
        return np.stack([known[text] for text in texts])

    return [
        Part(
            pair_counts(
                [(row.claim, Document(row.doc_id, row.title, row.text)) for row in some], embed, read=SENTENCES
            ).astype(np.float64),
            np.array([STANCES.index(row.label) for row in some]),
            np.array([" ".join(clean(row.claim).casefold().split()) for row in some]),
            np.array([row.doc_id for row in some]),
        )
        for some in rows
    ]


def fever_rows(folder: Path) -> list[StanceRow]:
    """Pairs of FEVER, and claims with evidence of another claim that shares words but not the names: these are open."""
    rows = list(read_rows(folder / "fever/pairs.jsonl.gz").rows)
    draw = random.Random(0)
    draw.shuffle(rows)
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english")
    texts = vectorizer.fit_transform([row.text for row in rows])
    asked = rows[FEVER_PAIRS : FEVER_PAIRS + 2 * FEVER_OPEN]
    near = vectorizer.transform([row.claim for row in asked]) @ texts.T
    made: list[StanceRow] = []
    for number, row in enumerate(asked):
        found = near[[number]].tocoo()
        order = found.col[np.lexsort((found.col, -found.data))][:40]
        names = {*re.findall(r"[A-Z][\w'-]+|\d+", row.claim[1:]), row.claim.split()[0]}
        others = [
            rows[place]
            for place in order
            if rows[place].text[:60] not in row.text
            and row.text[:60] not in rows[place].text
            and sum(name in rows[place].text for name in names) <= 0.6 * len(names)
        ]
        if others and len(made) < FEVER_OPEN:
            other = draw.choice(others[:8])
            made.append(StanceRow(row.claim, other.text, "NOT_ENOUGH_INFO", row.claim_id, other.doc_id))
    return rows[:FEVER_PAIRS] + made


# -- learning


def folds(part: Part, count: int, seed: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Masks of pairs to learn from and to measure on, of other claims and other documents."""
    claims = sorted(set(part.claims))
    random.Random(seed).shuffle(claims)
    for number in range(count):
        held = set(claims[number::count])
        asked = np.array([claim in held for claim in part.claims])
        documents = set(part.documents[asked])
        yield ~asked & np.array([document not in documents for document in part.documents]), asked


def learned(parts: Sequence[Part], strength: float, balanced: float, fever: float) -> PackagedWeights:
    used = [
        (part, weight) for part, weight in zip(parts, (1.0, 1.0, fever), strict=True) if weight and len(part.labels)
    ]
    counts = np.concatenate([part.counts for part, _ in used])
    labels = np.concatenate([part.labels for part, _ in used])
    each = []
    for part, weight in used:
        frequent = np.bincount(part.labels, minlength=len(STANCES))
        each.append(weight * (len(part.labels) / len(STANCES) / np.maximum(1, frequent[part.labels])) ** balanced)
    scale = counts.std(0)
    start = PackagedWeights(
        embedding=EMBEDDING,
        sentences=SENTENCES,
        threshold=0,
        temperature=1,
        largest=LARGEST,
        weighted_f1=0,
        mean=tuple(counts.mean(0).round(4).tolist()),
        scale=tuple(np.where(scale > 0.001, scale, 1.0).round(4).tolist()),
        coefficients=((0.0,) * (2 * counts.shape[1] + 1),) * len(STANCES),
        intercept=(0.0,) * len(STANCES),
    )
    model = LogisticRegression(C=strength, max_iter=300, tol=1e-3)
    model.fit(design(counts, start), labels, sample_weight=np.concatenate(each))
    return start.model_copy(
        update={
            "coefficients": tuple(map(tuple, model.coef_.round(4).tolist())),
            "intercept": tuple(model.intercept_.round(4).tolist()),
        }
    )


def said(values: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """The labels: the likeliest, or open where it is below the threshold."""
    given = values.argmax(1)
    given[values.max(1) < threshold] = STANCES.index("NOT_ENOUGH_INFO")
    return given


def weighted(truth: NDArray[np.int64], given: NDArray[np.int64]) -> float:
    return float(f1_score(truth, given, average="weighted", zero_division=0))


def choose(parts: Sequence[Part]) -> Choice:
    """Choose on SciFact and Climate-FEVER, those that are there, in two folds each."""
    asked = [number for number in (0, 1) if len(parts[number].labels)]
    splits = {number: list(folds(parts[number], 2, 7)) for number in asked}
    best: tuple[float, tuple[float, float, float], list[tuple[NDArray[np.float64], NDArray[np.int64]]]] | None = None
    for strength, balanced, fever in GRID:
        values: list[list[NDArray[np.float64]]] = [[] for _ in asked]
        truth: list[list[NDArray[np.int64]]] = [[] for _ in asked]
        for fold in range(2):
            some = [part.of(splits[number][fold][0]) if number in asked else part for number, part in enumerate(parts)]
            weights = learned(some, strength, balanced, fever)
            for place, number in enumerate(asked):
                held = parts[number].of(splits[number][fold][1])
                values[place].append(probabilities(held.counts, weights))
                truth[place].append(held.labels)
        pairs = [(np.concatenate(v), np.concatenate(t)) for v, t in zip(values, truth, strict=True)]
        value = float(np.mean([weighted(t, v.argmax(1)) for v, t in pairs]))
        if best is None or value > best[0]:
            best = value, (strength, balanced, fever), pairs
    assert best is not None
    _, (strength, balanced, fever), pairs = best

    def loss(logarithm: float) -> float:
        total = 0.0
        for values, truth in pairs:  # each data set counts the same
            logs = np.log(np.clip(values, 1e-6, None)) / np.exp(logarithm)
            logs -= np.log(np.exp(logs).sum(1, keepdims=True))
            total -= float(logs[np.arange(len(truth)), truth].mean())
        return total

    temperature = round(float(np.exp(minimize_scalar(loss, bounds=(-1.5, 1.5), method="bounded").x)), 3)
    tempered = []
    for values, truth in pairs:
        powers = np.clip(values, 1e-6, None) ** (1 / temperature)
        tempered.append((powers / powers.sum(1, keepdims=True), truth))
    scores = {one: float(np.mean([weighted(t, said(v, one)) for v, t in tempered])) for one in THRESHOLDS}
    # The highest that costs next to nothing: a guess is worth less than an open answer.
    threshold = max(one for one in THRESHOLDS if scores[one] >= max(scores.values()) - 0.005)
    return Choice(strength, balanced, fever, temperature, threshold, round(scores[threshold], 4))


def fit(parts: Sequence[Part], choice: Choice, weighted_f1: float = 0.0) -> PackagedWeights:
    weights = learned(parts, choice.strength, choice.balanced, choice.fever)
    chosen = {"temperature": choice.temperature, "threshold": choice.threshold, "weighted_f1": round(weighted_f1, 2)}
    return weights.model_copy(update=chosen)


# -- measuring


def held_out(parts: Sequence[Part]) -> dict[str, dict[str, Any]]:
    values: list[list[NDArray[np.float64]]] = [[], []]
    given: list[list[NDArray[np.int64]]] = [[], []]
    truth: list[list[NDArray[np.int64]]] = [[], []]
    claims: list[list[NDArray[np.str_]]] = [[], []]
    for first, second in zip(folds(parts[0], 3, 1), folds(parts[1], 3, 1), strict=True):
        some = [parts[0].of(first[0]), parts[1].of(second[0]), parts[2]]
        choice = choose(some)
        weights = fit(some, choice)
        print("outer fold:", vars(choice), flush=True)
        for number, mask in enumerate((first[1], second[1])):
            held = parts[number].of(mask)
            made = probabilities(held.counts, weights)
            values[number].append(made)
            given[number].append(said(made, choice.threshold))
            truth[number].append(held.labels)
            claims[number].append(held.claims)
    return {
        NAMES[number]: measured(*(np.concatenate(one[number]) for one in (truth, values, given, claims)))
        for number in range(2)
    }


def left_out(parts: Sequence[Part]) -> dict[str, dict[str, Any]]:
    """Each data set by a model that was made without it."""
    found = {}
    for number in range(2):
        some = [
            part.of(np.zeros(len(part.labels), bool)) if place == number else part for place, part in enumerate(parts)
        ]
        choice = choose(some)
        made = probabilities(parts[number].counts, fit(some, choice))
        given = said(made, choice.threshold)
        found[NAMES[number]] = measured(parts[number].labels, made, given, parts[number].claims)
    return found


def measured(
    truth: NDArray[np.int64], values: NDArray[np.float64], given: NDArray[np.int64], claims: NDArray[np.str_]
) -> dict[str, Any]:
    """The figures, with a table of reliability: for each bin of confidence, pairs, mean confidence, share right."""
    confidence, right = values[np.arange(len(given)), given], given == truth
    bins = np.clip(np.ceil(confidence * 10).astype(int) - 1, 0, 9)
    table = [
        [round(number / 10, 1), int((bins == number).sum()), float(confidence[bins == number].mean().round(3)),
         float(right[bins == number].mean().round(3))]
        for number in range(10)
        if (bins == number).any()
    ]  # fmt: skip
    places = {claim: np.flatnonzero(claims == claim) for claim in sorted(set(claims))}
    draw = np.random.default_rng(42)
    names = list(places)
    drawn = [
        np.concatenate([places[names[place]] for place in draw.integers(len(names), size=len(names))])
        for _ in range(500)
    ]
    ends = np.percentile([weighted(truth[some], given[some]) for some in drawn], (2.5, 97.5))
    most = np.full(len(truth), np.bincount(truth).argmax())
    return {
        "pairs": len(truth),
        "weighted_f1": round(weighted(truth, given), 3),
        "interval": [float(one) for one in ends.round(3)],
        "most_frequent_label": round(weighted(truth, most), 3),
        "macro_f1": round(float(f1_score(truth, given, average="macro", zero_division=0)), 3),
        "calibration_error": round(float(sum(abs(row[2] - row[3]) * row[1] for row in table) / len(truth)), 3),
        "reliability": table,
    }


if __name__ == "__main__":
    main()
