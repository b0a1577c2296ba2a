"""Compares runs, and judges, claim by claim, and tests whether the differences could be chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import InvalidData
from ...core.text import counted
from .metrics import DEFAULT_METRICS, SEED, bootstrap, check_metrics, coverage, cutoffs, measure, only, scipy_stats
from .pairs import PairsMeasured
from .types import Change, Comparison, Difference, Interval, Qrels, Run
from .verdicts import intervals_of, label_figures

PERMUTATIONS = 10_000
"""Random sign flips in the randomisation test. A p-value is exact to about 2 * sqrt(p / PERMUTATIONS)."""
CHANGES = 10
_EQUAL = 1e-9
"""Smaller differences are rounding errors."""


def compare(
    runs: Mapping[str, Run],
    qrels: Qrels,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    changes: int = CHANGES,
    common: bool = False,
) -> Comparison:
    """Each run but the first against the first, the baseline, in each metric.

    The means are over all claims that have judgements, and one that a run lacks counts as 0 there, as trec_eval does
    with `-c`: a run has no line of a claim for which nothing was found. With `common` they are over the claims that all
    runs have, where a run is of a part of them.

    Paired over claims: a two-sided randomisation test of the mean difference (Smucker, Allan and Carterette, CIKM
    2007, section 3), its p-values corrected for all tests of the comparison (Holm 1979), and a bootstrap interval of
    the difference. Raises InvalidData where no judged claim is in all runs, and what `measure` raises.
    """
    names = check_metrics(metrics)
    said = []
    if common:
        shared = [claim for claim in qrels if all(claim in run for run in runs.values())]
        if not shared:
            raise InvalidData("no claim that has judgements is in all runs: do the files belong together?")
        if len(shared) < len(qrels):
            said.append(f"compared over the {len(shared):,} of {len(qrels):,} judged claims that are in all runs")
        outside = qrels.keys() - set(shared)
        qrels = only(qrels, shared)
        runs = {name: {claim: run[claim] for claim in run if claim not in outside} for name, run in runs.items()}
    measured = {name: measure(run, qrels, names) for name, run in runs.items()}
    depths = {name: max(len(run.get(claim, ())) for claim in qrels) for name, run in runs.items()}
    shallow = {name: _shallow(depth, max(depths.values()), names) for name, depth in depths.items()}
    baseline, *others = runs
    differences = [
        _of_claims((name, metric), measured[baseline].by_claim[metric], measured[name].by_claim[metric], changes)
        for name in others
        for metric in names
    ]
    return Comparison(
        baseline,
        measured,
        with_holm(differences),
        (*said, *_messages({name: coverage(None, run, qrels, names) + shallow[name] for name, run in runs.items()})),
    )


def randomisation_test(differences: Sequence[float]) -> float:
    """The two-sided p-value of a mean difference of pairs.

    Under the null hypothesis each difference could as well have the other sign. All sign flips are tried where they
    do not exceed `PERMUTATIONS`, else that many at random.
    """
    # A zero has no sign to flip: without these more tests are exact, with the same p-value.
    moved = np.asarray([one for one in differences if abs(one) > _EQUAL], np.float64)
    if len(moved) < 2:
        return 1.0  # turned round it is as far from zero
    return permutation_p((moved,), lambda values, axis: values.sum(axis=axis))


def permutation_p(samples: Sequence[Any], statistic: Callable[..., Any]) -> float:
    """The two-sided p-value of a statistic of paired samples, by scipy."""
    found = scipy_stats().permutation_test(
        samples,
        statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        batch=max(1, 200_000 // len(samples[0])),
        rng=np.random.default_rng(SEED),
    )
    return min(1.0, float(found.pvalue))


def with_holm(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    """The same, with p-values corrected for all tests."""
    corrected = holm([one.p for one in differences])
    return tuple(replace(one, p_holm=p) for one, p in zip(differences, corrected, strict=True))


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for as many tests (Holm, Scandinavian Journal of Statistics 1979), in the order given."""
    corrected = [0.0] * len(p)
    highest = 0.0
    for place, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        highest = max(highest, min(1.0, p[index] * (len(p) - place)))
        corrected[index] = highest
    return corrected


def _messages(said: Mapping[str, Sequence[str]]) -> list[str]:
    """Messages: once what holds for every run, and with the runs' names what holds for some."""
    of: dict[str, list[str]] = {}
    for run, messages in said.items():
        for message in messages:
            of.setdefault(message, []).append(run)
    return [message if len(runs) == len(said) else f"{', '.join(runs)}: {message}" for message, runs in of.items()]


def _shallow(depth: int, most: int, metrics: Sequence[str]) -> list[str]:
    """The metrics for which a run has too few documents a claim, where another run has `most`."""
    few = [metric for metric, cutoff in cutoffs(metrics).items() if depth < min(cutoff, most)]
    return [f"at most {counted(depth, 'document')} a claim, too few for {', '.join(few)}"] if few else []


def _of_claims(
    of: tuple[str, str], before: Mapping[str, float], after: Mapping[str, float], changes: int
) -> Difference:
    pairs = [Change(claim, before[claim], after[claim]) for claim in before]
    values = [pair.difference for pair in pairs]
    moved = [pair for pair in pairs if abs(pair.difference) > _EQUAL]
    largest = sorted(moved, key=lambda pair: -abs(pair.difference))[:changes]
    means = math.fsum(before.values()) / len(before), math.fsum(after.values()) / len(after)
    interval = bootstrap(values) if len(values) > 1 else None
    return _difference(of, means, interval, randomisation_test(values), values, tuple(largest))


def _difference(
    of: tuple[str, str],
    means: tuple[float, float],
    interval: Interval | None,
    p: float,
    gains: Sequence[float],
    changes: tuple[Change, ...] = (),
) -> Difference:
    """`of`: a run and a metric. `gains`: by how much each claim is better."""
    baseline, value = means
    wins, losses = sum(one > _EQUAL for one in gains), sum(one < -_EQUAL for one in gains)
    counts = wins, losses, len(gains) - wins - losses, len(gains)
    return Difference(*of, baseline, value, value - baseline, interval, p, p, *counts, changes)


# -- judges

JUDGED_BY = ("weighted_f1", "macro_f1")


def compare_judges(measured: Mapping[str, PairsMeasured]) -> Comparison:
    """Each judge but the first against the first, in weighted and macro F1.

    Paired over claims, since the pairs of one claim go together: a two-sided randomisation test, in which the two
    judges' answers about a claim change places (Yeh, COLING 2000), its p-values corrected for all tests (Holm 1979),
    and a bootstrap interval of the difference. A win is a claim for which a judge got more pairs right.
    All of them were measured on the same pairs.
    """
    baseline, *others = measured
    first = measured[baseline].by_claim
    differences = [_between(name, one, first, measured[name].by_claim) for name in others for one in JUDGED_BY]
    return Comparison(baseline, {}, with_holm(differences))


def _between(name: str, metric: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> Difference:
    claims, shape = len(before), before.shape[1:]

    def values(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return label_figures(sums.reshape(-1, *shape))[metric]

    flat = np.concatenate([before, after]).reshape(2 * claims, -1)
    moved = np.flatnonzero((before != after).any(axis=(1, 2)))
    same = np.delete(flat[:claims], moved, axis=0).sum(axis=0)

    def apart(first: NDArray[np.float64], second: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        """How far the second judge is above the first, where claims (the last axis) have the answers of such rows."""
        old, new = (same + flat[rows.astype(int)].sum(axis=-2) for rows in (first, second))
        return (values(new) - values(old)).reshape(first.shape[:-1])

    p = permutation_p((moved, moved + claims), apart) if len(moved) > 1 else 1.0
    interval = intervals_of(after, before).get(metric)
    baseline, value = (float(values(counts.sum(axis=0))[0]) for counts in (before, after))
    right = np.trace(after - before, axis1=1, axis2=2)
    return _difference((name, metric), (baseline, value), interval, p, right.tolist())
