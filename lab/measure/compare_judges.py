"""Compares judges that were measured on the same labelled pairs, and tests whether the differences could be chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.errors import InvalidData, UsageError
from .compare import PERMUTATIONS, holm
from .metrics import RESAMPLES, SEED
from .pairs import PairsMeasured
from .types import Comparison, Difference
from .verdicts import label_figures, resampled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

METRICS = ("weighted_f1", "macro_f1")


def compare_judges(measured: Mapping[str, PairsMeasured]) -> Comparison:
    """Each judge but the first against the first, in weighted and macro F1.

    Paired over claims, since the pairs of one claim go together: a two-sided randomisation test, in which the two
    judges' answers about a claim change places (Yeh, COLING 2000), its p-values corrected for all tests (Holm 1979),
    and a bootstrap interval of the difference. A win is a claim for which a judge got more pairs right.

    Raises UsageError for fewer than two judges, InvalidData for judges that were measured on different pairs.
    """
    if len(measured) < 2:
        raise UsageError("give at least two judges to compare")
    baseline, *others = measured
    first = measured[baseline].by_claim
    differences: list[Difference] = []
    for name in others:
        own = measured[name].by_claim
        if own.shape != first.shape or (own.sum(axis=2) != first.sum(axis=2)).any():
            raise InvalidData(f"{name} and {baseline} were not measured on the same pairs")
        differences += _differences(name, first, own)
    corrected = holm([one.p for one in differences])
    return Comparison(
        baseline, {}, tuple(replace(one, p_holm=p) for one, p in zip(differences, corrected, strict=True))
    )


def _differences(name: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> list[Difference]:
    import numpy as np

    claims = len(before)
    rows = np.hstack([before.reshape(claims, -1), after.reshape(claims, -1)])
    drawn = _apart(resampled(rows, RESAMPLES)) if claims > 1 else {}
    exchanged, exact = _exchanged(before, after)
    chance = _apart(exchanged)
    values = _figures(rows.sum(axis=0)[None])
    right = np.trace(after, axis1=1, axis2=2) - np.trace(before, axis1=1, axis2=2)
    made = []
    for metric, (old, new) in values.items():
        found = float(new[0] - old[0])
        far = int((np.abs(chance[metric]) >= abs(found) - 1e-9).sum())
        # A drawn sample has the pairs as they are too; all exchanges have them already.
        p = far / len(exchanged) if exact else (far + 1) / (len(exchanged) + 1)
        ends = np.percentile(drawn[metric], (2.5, 97.5)) if drawn else None
        made.append(
            Difference(
                run=name,
                metric=metric,
                baseline=float(old[0]),
                value=float(new[0]),
                difference=found,
                interval=None if ends is None else (float(ends[0]), float(ends[1])),
                p=p,
                p_holm=p,
                exact=exact,
                wins=int((right > 0).sum()),
                losses=int((right < 0).sum()),
                ties=int((right == 0).sum()),
                claims=claims,
            )
        )
    return made


def _exchanged(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
    """The sums over claims, [exchanges, 2 * 12], where the judges' answers about some claims change places: all ways to
    do so if they do not exceed PERMUTATIONS, and whether they are all."""
    import numpy as np

    moved = (before != after).any(axis=(1, 2))
    apart = (after - before)[moved].reshape(int(moved.sum()), before[0].size)
    exact = 2 ** len(apart) <= PERMUTATIONS
    if exact:
        places = np.arange(2 ** len(apart))[:, None] >> np.arange(len(apart)) & 1
    else:
        places = np.random.default_rng(SEED).integers(0, 2, size=(PERMUTATIONS, len(apart)))
    shift = places @ apart
    return np.hstack([before.sum(axis=0).reshape(-1) + shift, after.sum(axis=0).reshape(-1) - shift]), exact


def _apart(sums: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """How far the second judge is above the first, by metric, [samples]."""
    return {metric: new - old for metric, (old, new) in _figures(sums).items()}


def _figures(sums: NDArray[np.float64]) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Each metric of both judges, from sums of [samples, 2 * 12]."""
    both = sums.reshape(len(sums), 2, 3, 4)
    old, new = label_figures(both[:, 0]), label_figures(both[:, 1])
    return {metric: (old[metric], new[metric]) for metric in METRICS}
