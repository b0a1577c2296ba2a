"""Compares judges that were measured on the same labelled pairs, and tests whether the differences could be chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.errors import InvalidData, UsageError
from .compare import PERMUTATIONS, permutation_p, with_holm
from .metrics import RESAMPLES
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
        differences += [_difference(name, metric, first, own) for metric in METRICS]
    return Comparison(baseline, {}, with_holm(differences))


def _difference(name: str, metric: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> Difference:
    import numpy as np

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
    interval = None
    if claims > 1:
        drawn = resampled(flat.reshape(2, claims, -1).swapaxes(0, 1).reshape(claims, -1), RESAMPLES)
        old, new = np.split(drawn, 2, axis=1)
        low, high = np.percentile(values(new) - values(old), (2.5, 97.5))
        interval = float(low), float(high)
    value, baseline = (float(values(counts.sum(axis=0))[0]) for counts in (after, before))
    right = np.trace(after - before, axis1=1, axis2=2)
    return Difference(
        run=name,
        metric=metric,
        baseline=baseline,
        value=value,
        difference=value - baseline,
        interval=interval,
        p=p,
        p_holm=p,
        exact=2 ** len(moved) <= PERMUTATIONS,
        wins=int((right > 0).sum()),
        losses=int((right < 0).sum()),
        ties=int((right == 0).sum()),
        claims=claims,
    )
