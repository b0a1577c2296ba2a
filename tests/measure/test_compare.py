"""Tests of significance against all that can be counted by hand."""

from __future__ import annotations

import itertools
import random

import pytest

from ccheck.core.errors import InvalidData, UsageError
from ccheck.lab.measure.compare import compare, holm, randomisation_test


@pytest.mark.parametrize("seed", range(4))
def test_the_randomisation_test_is_exact_for_few_claims(seed):
    rng = random.Random(seed)
    values = [round(rng.gauss(0.1, 0.3), 2) for _ in range(9)]
    flipped = [sum(s * v for s, v in zip(signs, values, strict=True)) for signs in itertools.product((1, -1), repeat=9)]
    expected = sum(abs(one) >= abs(sum(values)) - 1e-12 for one in flipped) / len(flipped)
    assert randomisation_test(values) == pytest.approx(expected)
    # What did not change has no sign.
    assert randomisation_test([*values, *[0.0] * 100]) == pytest.approx(expected)
    assert randomisation_test([-one for one in values]) == pytest.approx(expected)


def test_for_many_claims_it_draws():
    rng = random.Random(1)
    values = [rng.gauss(0.02, 0.1) for _ in range(16)]
    exact = randomisation_test(values, permutations=100_000)
    p = randomisation_test(values, permutations=20_000)
    assert p == pytest.approx(exact, abs=4 * (exact / 20_000) ** 0.5)
    assert randomisation_test(values, permutations=20_000) == p
    assert randomisation_test(values, permutations=20_000, seed=1) != p
    assert randomisation_test([1.0] * 1500) == pytest.approx(2 / 10_001)
    assert randomisation_test([1.0] * 50) <= 0.0002 and randomisation_test([0.0, 0.0]) == 1.0


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0] and holm([0.2]) == [0.2] and holm([]) == []


QRELS = {f"q{i}": {"r": 1} for i in range(6)}
FIRST = {f"q{i}": {"r": 1.0, "x": 0.5} for i in range(6)}
LATER = {"x": 1.0, "r": 0.5}


def test_what_can_not_be_compared():
    with pytest.raises(UsageError, match="at least two runs"):
        compare({"one": FIRST}, QRELS)
    with pytest.raises(InvalidData, match="no claim is both"):
        compare({"one": FIRST, "other": {"z": LATER}}, QRELS)
    (one,) = compare({"a": FIRST, "b": {"q0": LATER}}, {"q0": {"r": 1}}, ["RR"]).differences
    assert one.interval is None and one.difference == -0.5 and one.p == 1
