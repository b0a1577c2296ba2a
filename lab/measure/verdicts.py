"""How good stances and verdicts are: precision, recall, F1 and confusion by scikit-learn, and calibration error.

What could not be labelled is counted apart: it is in no confusion matrix and in no score, and is never a label. The
same holds for true labels that nothing was said about, as of documents that were not retrieved. So the scores are over
the pairs that were both judged and labelled, as the second subtask of ClimateCheck has it (its score adds `R@10`).
Verdicts that were made although some of their documents could not be judged are in the scores, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.errors import InvalidData, require
from ...core.types import Label, Stance, Verdict
from ...verdict.labels import LABELS
from .metrics import RESAMPLES, SEED
from .types import Classified, Interval, Scores

Key = TypeVar("Key", str, tuple[str, str])
"""A claim's id, or those of a claim and a document."""


def classify(predicted: Mapping[Key, Stance | Verdict], truth: Mapping[Key, Label]) -> Classified:
    """Labels against the true ones, over the keys that both have. What is predicted without a true label is left out.

    Means are over the labels that occur, as truth or as prediction, weighted by how often they are true or all alike
    (macro). Intervals are percentiles of a bootstrap over claims, since the pairs of one claim go together; with one
    claim there are none. Raises MissingExtra without scikit-learn, and InvalidData where no label can be compared.
    """
    require("evaluation", "evaluation", "sklearn")
    from sklearn.metrics import classification_report

    answered = {key: predicted[key] for key in truth if key in predicted}
    made = {key: one.label for key, one in answered.items() if one.label is not None}
    if not made:
        failed = next((one.error for one in answered.values() if one.error), None)
        why = (
            f"none of {len(answered):,} could be labelled: {failed or 'nobody judged'}"
            if answered
            else f"none of the {len(truth):,} true labels is for anything labelled: do the ids belong together?"
        )
        raise InvalidData(f"labels can't be measured: {why}")
    expected = [truth[key] for key in made]
    given = list(made.values())
    labels = tuple(label for label in LABELS if label in expected or label in given)
    report = classification_report(expected, given, labels=labels, output_dict=True, zero_division=0)
    counts = tally([key if isinstance(key, str) else key[0] for key in made], expected, given, labels)
    said = [Stance(answered[key].label, answered[key].confidence) for key in made]
    sure = any(one.confidence is not None for one in said)
    return Classified(
        labels=labels,
        count=len(made),
        failed=len(answered) - len(made),
        missing=len(truth) - len(answered),
        partial=sum(one.failed > 0 for key in made if isinstance(one := answered[key], Verdict)),
        accuracy=float(report["accuracy"]),
        weighted=_scores(report["weighted avg"]),
        macro=_scores(report["macro avg"]),
        by_label={label: _scores(report[label]) for label in labels},
        confusion=tuple(tuple(map(int, row[:-1])) for row in counts.sum(axis=0)),
        intervals=intervals_of(counts),
        calibration_error=reliability(said, expected).error if sure else None,
    )


def _scores(found: Mapping[str, float]) -> Scores:
    return Scores(float(found["precision"]), float(found["recall"]), float(found["f1-score"]), int(found["support"]))


def tally(
    claims: Sequence[str], truth: Sequence[Label], given: Sequence[Label | None], labels: Sequence[Label]
) -> NDArray[np.float64]:
    """For each claim the confusion matrix, shape [claims, true, given]: the last column is for what has no label."""
    place = {claim: number for number, claim in enumerate(dict.fromkeys(claims))}
    counts = np.zeros((len(place), len(labels), len(labels) + 1))
    for claim, true, label in zip(claims, truth, given, strict=True):
        counts[place[claim], labels.index(true), len(labels) if label is None else labels.index(label)] += 1
    return counts


def intervals_of(counts: NDArray[np.float64], above: NDArray[np.float64] | None = None) -> dict[str, Interval]:
    """95% intervals of `label_figures` by a bootstrap over claims; none of one claim.

    With `above`, other answers on the same claims: of how far the figures are above theirs, in the same resamples.
    """
    if len(counts) < 2:
        return {}
    figures, *others = (
        label_figures(resampled(one.reshape(len(one), -1)).reshape(-1, *one.shape[1:]))
        for one in (counts, above)
        if one is not None
    )
    values = {name: value - sum(other[name] for other in others) for name, value in figures.items()}
    ends = {name: np.percentile(value, (2.5, 97.5)) for name, value in values.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def resampled(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of as many rows as there are, drawn with replacement: shape [RESAMPLES, columns]."""
    rng = np.random.default_rng(SEED)
    drawn = []
    block = max(1, 2_000_000 // len(rows))
    for start in range(0, RESAMPLES, block):
        # How often each row is in a resample, times the rows.
        times = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=min(block, RESAMPLES - start))
        drawn.append(times @ rows)
    return np.concatenate(drawn)


def label_figures(confusions: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Accuracy, F1 and weighted precision of many confusion matrices, shape [resamples, true, given].

    Given labels beyond the true ones do not count as labels: what was not judged is wrong.
    """
    right = np.diagonal(confusions, axis1=1, axis2=2)
    true = confusions.sum(axis=2)
    given = confusions.sum(axis=1)[:, : true.shape[1]]
    occurs = true + given > 0
    f1 = np.divide(2 * right, true + given, out=np.zeros_like(right), where=occurs)
    precision = np.divide(right, given, out=np.zeros_like(right), where=given > 0)
    total = true.sum(axis=1)
    return {
        "weighted_f1": (f1 * true).sum(axis=1) / total,
        "weighted_precision": (precision * true).sum(axis=1) / total,
        "macro_f1": f1.sum(axis=1) / occurs.sum(axis=1),
        "accuracy": right.sum(axis=1) / total,
    }


BINS = 10


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the confidences of stances can be trusted, a share `accuracy` of which is right.

    `error` is the expected calibration error: the mean over stances of the difference between their bin's mean
    confidence and its share of right ones (Guo et al. 2017, equation 3). `brier` is the mean squared difference of
    confidence and right (1) or wrong (0).
    """

    error: float
    brier: float
    accuracy: float


def reliability(stances: Sequence[Stance], labels: Sequence[Label]) -> Reliability:
    """How the confidences of stances compare with how often they are right, in bins of equal width.

    Stances without a label or confidence are left out. Raises InvalidData if none is left.
    """
    given = [
        (stance.confidence, stance.label == label)
        for stance, label in zip(stances, labels, strict=True)
        if stance.label is not None and stance.confidence is not None
    ]
    if not given:
        raise InvalidData("nothing to compare: no stance has both a label and a confidence")
    gaps = [0.0] * BINS  # of each bin the sum of confidences less the number of right ones
    for confidence, right in given:
        gaps[min(BINS - 1, max(0, math.ceil(confidence * BINS) - 1))] += confidence - right
    return Reliability(
        error=sum(map(abs, gaps)) / len(given),
        brier=sum((confidence - right) ** 2 for confidence, right in given) / len(given),
        accuracy=sum(right for _, right in given) / len(given),
    )
