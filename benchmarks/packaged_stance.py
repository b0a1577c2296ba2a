"""Make the stance model that ccheck carries, and measure it on claims and documents that nothing has seen.

    OMP_NUM_THREADS=1 python benchmarks/packaged_stance.py FOLDER --output verdict/packaged

FOLDER contains `scifact/`, `climate-fever/`, `fever/` and `clinical/`. Everything is drawn with fixed seeds, so the
same data, library versions and kind of processor give the same files. `--cache FILE` keeps the embeddings,
`--work FOLDER` the adapters, which take 25 to 45 minutes of CPU time together. `packaged_elsewhere.py` then measures
the model on other kinds of claims.

The measurement is nested. In each of three outer folds, a third of the claims is held out, and training pairs that
share a document with them are dropped. Regularisation, class weights, the weight of FEVER, temperature and threshold
of the counts are chosen in two inner folds of what is left; of the adapter, nothing is chosen. The two weights that put
both together are fitted to the answers about the other two folds, which come from models that had the held-out fold in
training. `without it` leaves the
whole data set out of training.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from stance_card import write_card
from stance_pairs import first_pairs, judged_rows, nearest_others
from stance_together import OPEN_ABOVE, Answered, Reading, adapter, fit_together, read_out

from ccheck.core.analysis import clean
from ccheck.core.models import find_model
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import Document
from ccheck.encode.dense import Embedder
from ccheck.lab.measure.rows import StanceRow, read_rows
from ccheck.verdict.features import COUNTS, counts_and_nearest
from ccheck.verdict.labels import STANCES
from ccheck.verdict.packaged_model import ADAPTER, WIDTH, PackagedWeights, Together, design, probabilities, put_together

EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
SENTENCES = 4
LARGEST = 4.0
FEVER_PAIRS, FEVER_OPEN = 1600, 800
GRID = tuple(itertools.product((0.03, 0.1), (0.3, 0.5), (0.3,)))
"""Regularisation C, how far label frequencies are balanced (0 to 1), weight of FEVER's pairs.

FEVER is always there: without SciFact, only its pairs have documents of several sentences."""
THRESHOLDS = (0.0, 0.4, 0.45, 0.5, 0.55)
ELSEWHERE = "elsewhere"
"""The kind of figures that `packaged_elsewhere.py` adds."""
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

    def answered(self, counted: NDArray[np.float64], read: NDArray[np.float32]) -> Answered:
        """With the probabilities that the counts gave, and the outputs of an adapter."""
        return Answered(counted, read, self.labels)


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
@click.option(
    "--work", type=click.Path(path_type=Path), default=Path("build/stance"), help="Keep the adapters in this folder."
)
def main(folder: Path, output: Path | None, cache: Path | None, work: Path) -> None:
    parts, reading = read_parts(folder, cache, work)
    held = out_of_fold(parts, reading)
    figures = {"held out": held_out(held), "without it": left_out(parts, reading, held)}
    choice = choose(parts)
    weights = fit(parts, choice, figures["held out"]["SciFact"]["weighted_f1"])
    lowest = min(one["weighted_f1"] for kind in figures.values() for one in kind.values())
    weights = weights.model_copy(update={"lowest_f1": round(lowest, 2)})
    together = fit_together(both(held))
    weights = weights.model_copy(update={"together": together})
    print(json.dumps({**figures, "chosen": vars(choice)}, indent=1))
    if output is not None:
        everything = [np.ones(len(part.labels), bool) for part in parts[:2]]
        write_model(output, weights, adapter(reading, "all", everything))
        made = (
            vars(choice)
            | reading.first.counts
            | {
                "features": WIDTH,
                "counts": COUNTS,
                "first": sum(map(len, reading.first[:3])),
                "findings": len(reading.first.findings),
                "fever_pairs": FEVER_PAIRS,
                "fever_open": FEVER_OPEN,
                "open_above": OPEN_ABOVE,
                "together": together.model_dump(),
                "pool": "abstracts of trials (open access, PMC)",
                "leaks": [],
                "run": f"{commit()} {datetime.now(UTC).date()}",
            }
        )
        (output / "figures.json").write_text(json.dumps(figures | {"made": made}, indent=1) + "\n", encoding="utf-8")
        write_card(output)


def commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def write_model(folder: Path, weights: PackagedWeights, file: Path) -> None:
    """What `PackagedStances` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / ADAPTER)
    (folder / "model.json").write_text(weights.model_dump_json() + "\n", encoding="utf-8")


# -- data


def read_parts(folder: Path, cache: Path | None, work: Path) -> tuple[list[Part], Reading]:
    """The counts of all pairs, and what adapters are made from; `work` is where they are kept."""
    rows = [
        list(read_rows(folder / "scifact/verdicts.jsonl", folder / "scifact/corpus.jsonl.gz").rows),
        list(read_rows(folder / "climate-fever/claims.jsonl.gz").rows),
        fever_rows(folder),
    ]
    found = find_model(EMBEDDING)
    embedder = Embedder(found, Runtime(Settings(device="cpu")))
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

    parts, judged = [], []
    for some in rows:
        pairs = [(row.claim, Document(row.doc_id, row.title, row.text)) for row in some]
        counts, near = counts_and_nearest(pairs, embed, read=SENTENCES)
        labels = np.array([STANCES.index(row.label) for row in some])
        claims = np.array([" ".join(clean(row.claim).casefold().split()) for row in some])
        parts.append(Part(counts.astype(np.float64), labels, claims, np.array([row.doc_id for row in some])))
        judged.append(judged_rows(some, near))
    return parts, Reading((judged[0], judged[1]), first_pairs(folder), found.path, work)


def fever_rows(folder: Path) -> list[StanceRow]:
    """Pairs of FEVER, and claims with evidence of another claim that shares words but not the names: these are open."""
    rows = list(read_rows(folder / "fever/pairs.jsonl.gz").rows)
    draw = random.Random(0)
    draw.shuffle(rows)
    asked = rows[FEVER_PAIRS : FEVER_PAIRS + 2 * FEVER_OPEN]
    made = []
    for row, others in itertools.islice(nearest_others(asked, rows), FEVER_OPEN):
        other = draw.choice(others)
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
        lowest_f1=0,
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
    """The labels: the likeliest, or open if it is below the threshold."""
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


@dataclass(frozen=True)
class Held:
    """What a fold's model, which was made without these pairs, says of them; one of each for a data set. `weights` are
    those of its counts."""

    parts: list[Part]
    answered: list[Answered]
    weights: PackagedWeights
    adapter: Path


def out_of_fold(parts: Sequence[Part], reading: Reading) -> list[Held]:
    found = []
    splits = zip(folds(parts[0], 3, 1), folds(parts[1], 3, 1), strict=True)
    for number, (first, second) in enumerate(splits):
        some = [parts[0].of(first[0]), parts[1].of(second[0]), parts[2]]
        choice = choose(some)
        weights = fit(some, choice)
        print("outer fold:", vars(choice), flush=True)
        asked = [part.of(mask) for part, mask in zip(parts, (first[1], second[1]), strict=False)]
        file = adapter(reading, f"fold-{number}", (first[0], second[0]))
        read = read_out(reading, file, (first[1], second[1]))
        answered = [
            one.answered(probabilities(one.counts, weights), made) for one, made in zip(asked, read, strict=True)
        ]
        found.append(Held(asked, answered, weights, file))
    return found


def both(held: Sequence[Held]) -> list[Answered]:
    """The answers of several folds, for each data set."""
    return [
        Answered(*(np.concatenate(values) for values in zip(*(one.answered[number] for one in held), strict=True)))
        for number in range(2)
    ]


def together_of_others(held: Sequence[Held], fold: Held) -> Together:
    return fit_together(both([other for other in held if other is not fold]))


def judged_by(answered: Answered, together: Together) -> NDArray[np.float64]:
    """The probabilities as ccheck gives them."""
    made = answered.counted.copy()
    read = made[:, STANCES.index("NOT_ENOUGH_INFO")] <= together.open_above
    made[read] = put_together(made[read], answered.read[read], together)
    return made


def held_out(held: Sequence[Held]) -> dict[str, dict[str, Any]]:
    """Figures; `counts alone` and the difference to them are of the same pairs."""
    figures = {}
    for number in range(2):
        values, given, counted = [], [], []
        for fold in held:
            answered = fold.answered[number]
            together = together_of_others(held, fold)
            values.append(judged_by(answered, together))
            given.append(said(values[-1], fold.weights.threshold))
            counted.append(said(answered.counted, fold.weights.threshold))
        truth = np.concatenate([fold.parts[number].labels for fold in held])
        claims = np.concatenate([fold.parts[number].claims for fold in held])
        figures[NAMES[number]] = measured(truth, np.concatenate(values), np.concatenate(given), claims) | compared(
            truth, np.concatenate(given), np.concatenate(counted), claims
        )
    return figures


def compared(
    truth: NDArray[np.int64], given: NDArray[np.int64], counted: NDArray[np.int64], claims: NDArray[np.str_]
) -> dict[str, Any]:
    """Weighted F1 of the counts alone, and how much more the whole has, with its interval."""
    more = [weighted(truth[some], given[some]) - weighted(truth[some], counted[some]) for some in resampled(claims)]
    ends = [float(one) for one in np.percentile(more, (2.5, 97.5)).round(3)]
    return {"counts_alone": round(weighted(truth, counted), 3), "difference": ends}


def left_out(parts: Sequence[Part], reading: Reading, held: Sequence[Held]) -> dict[str, dict[str, Any]]:
    """Each data set by a model that was made without it: counts, adapter, and the two weights, which are fitted to the
    held-out answers about the other one."""
    found = {}
    for number in range(2):
        used = [np.full(len(parts[place].labels), place != number) for place in range(2)]
        some = [part.of(mask) for part, mask in zip(parts, used, strict=False)] + [parts[2]]
        choice = choose(some)
        counted = probabilities(parts[number].counts, fit(some, choice))
        file = adapter(reading, f"without-{NAMES[number]}", used)
        read = read_out(reading, file, [~mask for mask in used])[number]
        values = judged_by(parts[number].answered(counted, read), fit_together([both(held)[1 - number]]))
        truth, claims = parts[number].labels, parts[number].claims
        given = said(values, choice.threshold)
        found[NAMES[number]] = measured(truth, values, given, claims) | compared(
            truth, given, said(counted, choice.threshold), claims
        )
    return found


def resampled(claims: NDArray[np.str_]) -> Iterator[NDArray[np.int64]]:
    """Places of pairs, of claims drawn with replacement, 500 times."""
    places = [np.flatnonzero(claims == claim) for claim in sorted(set(claims))]
    draw = np.random.default_rng(42)
    for _ in range(500):
        yield np.concatenate([places[number] for number in draw.integers(len(places), size=len(places))])


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
    ends = np.percentile([weighted(truth[some], given[some]) for some in resampled(claims)], (2.5, 97.5))
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
