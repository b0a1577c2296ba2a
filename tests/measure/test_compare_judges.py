"""`compare_judges`, checked against figures that were calculated manually."""

from __future__ import annotations

import numpy as np
import pytest

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.types import Usage
from ccheck.lab.measure.compare import compare_judges
from ccheck.lab.measure.pairs import PairsMeasured
from ccheck.verdict.labels import STANCES


def judge(*given, true="SUPPORTS"):
    """A judge of one pair a claim, all with the same true label, by what it said."""
    counts = np.zeros((len(given), 3, 4))
    for place, label in enumerate(given):
        counts[place, STANCES.index(true), STANCES.index(label)] = 1
    return PairsMeasured("m", len(given), len(given), {}, {}, {}, {}, {}, (), Usage(), 0.0, counts)


def test_two_judges_by_hand():
    right, half = judge(*["SUPPORTS"] * 4), judge("SUPPORTS", "SUPPORTS", "REFUTES", "REFUTES")
    compared = compare_judges({"right": right, "half": half})
    weighted, macro = compared.differences
    # F1 of SUPPORTS with two of four found: 2 * 2 / (4 + 2). Macro has REFUTES too, which is never right.
    assert (weighted.metric, weighted.baseline, weighted.value) == ("weighted_f1", 1.0, pytest.approx(2 / 3))
    assert (macro.metric, macro.baseline, macro.value) == ("macro_f1", 1.0, pytest.approx(1 / 3))
    # Of the four ways to exchange the two claims on which they differ, none and both are as far apart.
    assert [(one.p, one.p_holm) for one in (weighted, macro)] == [(0.5, 1.0)] * 2
    assert (weighted.wins, weighted.losses, weighted.ties, weighted.claims) == (0, 2, 2, 4)
    low, high = weighted.interval
    assert low < weighted.difference < high <= 0


def test_many_claims_are_drawn_and_a_clear_difference_is_seen():
    good, bad = judge(*["SUPPORTS"] * 40), judge(*["SUPPORTS"] * 10, *["REFUTES"] * 30)
    (weighted, _) = compare_judges({"bad": bad, "good": good}).differences
    assert weighted.p < 0.001 and weighted.difference > 0.5
    (same, _) = compare_judges({"good": good, "again": good}).differences
    assert (same.difference, same.p, same.interval) == (0.0, 1.0, (0.0, 0.0))


def test_judges_of_other_pairs_are_refused():
    with pytest.raises(InvalidData, match="not measured on the same pairs"):
        compare_judges({"a": judge("SUPPORTS"), "b": judge("SUPPORTS", true="REFUTES")})
    with pytest.raises(UsageError):
        compare_judges({"a": judge("SUPPORTS")})
