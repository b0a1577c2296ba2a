"""Metrics are ir-measures' own, ClimateCheck's score is that of its evaluation script, and nothing is 0 by mistake."""

import itertools
import random
import re
import statistics

import ir_measures
import numpy as np
import pytest

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.types import Claim, Usage
from ccheck.lab.measure.compare import compare, compare_judges, holm, randomisation_test
from ccheck.lab.measure.datasets import read_run, write_run
from ccheck.lab.measure.metrics import bootstrap, check_metrics, coverage, measure
from ccheck.lab.measure.pairs import PairsMeasured
from ccheck.verdict.labels import STANCES

METRICS = [
    *("nDCG@10", "nDCG@3", "R@2", "R@100", "RR@5", "RR", "P@5", "AP", "AP@10", "Bpref", "Judged@10", "Success@1"),
    *("RR(rel=2)@5", "P(judged_only=True)@5", "Rprec"),
]


def random_judged(seed: int, claims: int = 60) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """A run with many ties and claims that the judgements do not know, and judgements with all that they can have."""
    rng = random.Random(seed)
    qrels = {
        f"q{i}": {f"d:{rng.randrange(50)}": rng.choice([-1, 0, 0, 1, 1, 2]) for _ in range(rng.randrange(1, 12))}
        for i in range(claims)
    }
    run = {
        f"q{i}": {f"d:{j}": round(rng.random(), 1) for j in rng.sample(range(50), rng.randrange(1, 40))}
        for i in range(claims + 10)
        if i % 7
    }
    return run, qrels


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_metrics_are_those_of_ir_measures(seed):
    run, qrels = random_judged(seed)
    write_run("mine.run", run, "mine")
    wanted = [ir_measures.parse_measure(name) for name in METRICS]
    found = ir_measures.calc_aggregate(wanted, qrels, ir_measures.read_trec_run("mine.run"))
    said = {str(measure): value for measure, value in found.items()}
    assert len(said) == len(METRICS)
    assert measure(run, qrels, METRICS).mean == pytest.approx(said, abs=1e-9)
    assert measure(read_run("mine.run"), qrels, METRICS).mean == pytest.approx(said, abs=1e-9)


def test_names_claims_without_hits_and_equal_scores():
    names = ["nDCG@10", "MRR@5", "RR@5", "NDCG@10", "P( rel = 2 )@5", "ClimateCheck", "Precision@1"]
    assert check_metrics(names) == ["nDCG@10", "RR@5", "P(rel=2)@5", "ClimateCheck", "P@1"]
    run, qrels = {"q": {"d": 1.0}}, {"q": {"d": 1}, "r": {"e": 1}}
    assert measure(run, qrels, ["MRR@5", "RR@5"]).mean == {"MRR@5": 0.5, "RR@5": 0.5}
    made = measure({"a": {"d": 1.0}, "b": {}}, {"a": {"d": 1}, "b": {"d": 1}, "c": {"d": 1}}, ["nDCG@10", "Judged@5"])
    assert made.by_claim["nDCG@10"] == {"a": 1.0, "b": 0.0, "c": 0.0}
    assert made.mean["nDCG@10"] == pytest.approx(1 / 3)
    qrels = {"q": {"x": 1}}
    assert measure({"q": {"a": 0.5, "x": 0.5}}, qrels, ["RR"]).mean["RR"] == 0.5
    assert measure({"q": {"x": 0.5, "a": 0.5}}, qrels, ["RR"]).mean["RR"] == 1.0
    # Apart in float64 only.
    assert measure({"q": {"a": 0.5, "x": 0.5 + 1e-12}}, qrels, ["RR"]).mean["RR"] == 1.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ndcg@10", "did you mean 'nDCG@10'?"),
        ("ClimateChek", "did you mean 'ClimateCheck'?"),
        ("nothing like it", "there is no metric 'nothing like it'. Known metrics include"),
        ("R", "needs a cutoff, as in R@100"),
        ("nDCG@0", "between 1 and 1,000,000"),
        ("nDCG@99999999999999999999", "between 1 and 1,000,000"),
        ("P(rel=x)@5", "write its parameters as"),
        ("P(depth=2)@5", "does not have these parameters"),
        ("NumRet", "a sum over claims, not a mean"),
        ("ERR@10", "ccheck does not compute the metric ERR@10"),
        (f"P@{'9' * 5_000}", "cutoff between 1 and"),
        (f"P(rel={'9' * 5_000})@5", "write its parameters"),
        ("__import__('os').system('true')", "there is no metric"),
    ],
)
def test_names_that_are_none(name, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        measure({"q": {"d": 1.0}}, {"q": {"d": 1}}, ["nDCG@10", name])
    with pytest.raises(UsageError, match="no metric is named"):
        check_metrics([])


@pytest.mark.parametrize(
    ("qrels", "metric", "said"),
    [
        ({"q": {"d": 1}}, "Bpref", "Bpref can't be computed: no document is judged not relevant"),
        ({"q": {"d": 1}}, "ClimateCheck", "no document is judged not relevant"),
        ({"q": {"d": 1}, "r": {"d": 0}}, "ClimateCheck", "no claim has both"),
        ({}, "AP", "there are no judgements"),
        ({"r": {"d": 1}, "s": {"d": 1}}, "AP", "no claim is both in the run (q) and judged (r, s)"),
        ({"q": {"d": 0}}, "nDCG@10", "nDCG@10 can't be computed: no document is judged relevant"),
        ({"q": {"d": 1}}, "P(rel=2)@5", "no document is judged relevant (a grade of 2 or more)"),
    ],
)
def test_what_has_nothing_to_measure(qrels, metric, said):
    run = {"q": {"d": 1.0, "e": 0.5}}
    with pytest.raises(InvalidData, match=re.escape(said)):
        measure(run, qrels, [metric])
    assert measure(run, {"q": {"d": 1, "e": 0}}, ["Bpref"]).mean == {"Bpref": 1.0}
    assert measure(run, {"q": {"d": 0}}, ["Judged@1"]).mean == {"Judged@1": 1.0}


def test_climatechecks_score_by_hand():
    qrels = {
        "a": {"r1": 1, "r2": 1, "r3": 1, "n1": 0},  # fewer judged not relevant than relevant
        "b": {"r1": 1, "n1": 0, "n2": 0},
        "c": {"r1": 1, "r2": 1},  # in no binary preference
        "d": {"n1": 0},  # in no part
    }
    run = {
        "a": {"n1": 9.0, "r1": 8.0, "x": 7.0, "r2": 6.0, "y": 5.0, "r3": 4.0},
        "b": {"x": 9.0, "n1": 8.0, "n2": 7.0, "r1": 6.0},
        "c": {"r1": 9.0},
        "d": {"n1": 9.0},
    }
    names = ["ClimateCheck-R@2", "ClimateCheck-R@5", "ClimateCheck-R@10", "ClimateCheck-Bpref"]
    made = measure(run, qrels, [*names, "ClimateCheck", "Bpref"])
    recall = [(1 / 3 + 0 + 1 / 2) / 3, (2 / 3 + 1 + 1 / 2) / 3, (1 + 1 + 1 / 2) / 3]
    preference = (3 * (1 - 1 / 3) / 3 + 0) / 2
    assert [made.mean[name] for name in names] == pytest.approx([*recall, preference])
    assert made.mean["ClimateCheck"] == pytest.approx(statistics.mean([*recall, preference]))
    assert set(made.by_claim["ClimateCheck"]) == {"a", "b", "c"}
    # trec_eval's divides by the one that was judged not relevant.
    assert made.by_claim["Bpref"]["a"] == 0


def test_intervals_also_of_a_score_a_part_of_which_has_fewer_claims():
    rng = random.Random(0)
    values = [rng.gauss(0.5, 0.2) for _ in range(400)]
    low, high = bootstrap(values)
    error = statistics.stdev(values) / 20
    mean = statistics.mean(values)
    assert (low, high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=error / 5)
    assert bootstrap(values) == (low, high)
    assert bootstrap([1.0, 1.0, 1.0]) == (1.0, 1.0)
    assert measure({"q": {"d": 1.0}}, {"q": {"d": 1}}, ["AP"]).intervals == {}
    qrels = {"q1": {"a": 1}, "q2": {"b": 1, "x": 0}, "q3": {"c": 1, "y": 0}}
    run = {"q1": {"a": 1.0}, "q2": {"b": 2.0, "x": 1.0}, "q3": {"y": 1.0}}
    measured = measure(run, qrels, ["ClimateCheck"])
    # Recall at 2, 5 and 10 has three claims, with 1, 1 and 0. Binary preference has two, with 1 and 0 about their mean:
    # q1 counts as the mean, the others as 3/2 times their distance from it.
    preference = [0.5, 0.5 + 0.5 * 3 / 2, 0.5 - 0.5 * 3 / 2]
    values = [(3 * recall + part) / 4 for recall, part in zip([1, 1, 0], preference, strict=True)]
    assert measured.mean["ClimateCheck"] == pytest.approx(sum(values) / 3)
    assert measured.intervals["ClimateCheck"] == pytest.approx(bootstrap(values))


def test_what_claims_run_and_judgements_do_not_share_is_said():
    claims = [Claim("a", "a"), Claim("b", "b"), Claim("c", "c"), Claim("e", "e")]
    run = {"a": {"d1": 2.0, "x": 1.0}, "b": {}, "c": {"d2": 1.0}, "e": {"d1": 1.0}}
    qrels = {"a": {"d1": 1, "gone": 1}, "b": {"d1": 1}, "e": {"d2": 0}, "f": {"lost": 0}}
    said = coverage(claims, run, qrels, ["nDCG@10"], lambda ids: [one for one in ids if one != "gone"])
    assert said == [
        "1 of 4 claims without judgements, left out of all metrics: c",
        "1 of 4 judged claims not in the claims: f",
        "1 of 3 measured claims with nothing retrieved, counted as 0: b",
        "1 of 3 measured claims without a relevant document, counted as 0: e",
        "1 of 3 judged documents not in the store (1 relevant), so they can't be found: gone",
    ]
    assert "counted as 0 (left out of ClimateCheck's score): e, f" in coverage(None, run, qrels, ["ClimateCheck"])[-1]
    assert coverage(None, {"a": {"d1": 1.0}}, {"a": {"d1": 1}}, ["AP"]) == []


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


def test_for_many_claims_it_draws_and_holm_corrects(monkeypatch):
    rng = random.Random(1)
    values = [rng.gauss(0.02, 0.1) for _ in range(16)]
    p = randomisation_test(values)
    with monkeypatch.context() as patch:
        patch.setattr("ccheck.lab.measure.compare.PERMUTATIONS", 100_000)
        exact = randomisation_test(values)
    assert p != exact and p == pytest.approx(exact, abs=4 * (exact / 10_000) ** 0.5)
    assert randomisation_test(values) == p
    assert randomisation_test([1.0] * 1500) == pytest.approx(2 / 10_001)
    assert randomisation_test([1.0] * 50) <= 0.0002 and randomisation_test([0.0, 0.0]) == 1.0
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0] and holm([0.2]) == [0.2] and holm([]) == []


QRELS = {f"q{i}": {"r": 1} for i in range(6)}
FIRST = {f"q{i}": {"r": 1.0, "x": 0.5} for i in range(6)}
LATER = {"x": 1.0, "r": 0.5}


def test_what_can_not_be_compared():
    with pytest.raises(InvalidData, match="no claim is both"):
        compare({"one": FIRST, "other": {"z": LATER}}, QRELS)
    (one,) = compare({"a": FIRST, "b": {"q0": LATER}}, {"q0": {"r": 1}}, ["RR"]).differences
    assert one.interval is None and one.difference == -0.5 and one.p == 1


def judge(*given, true="SUPPORTS"):
    """A judge of one pair a claim, all with the same true label, by what it said."""
    counts = np.zeros((len(given), 3, 4))
    for place, label in enumerate(given):
        counts[place, STANCES.index(true), STANCES.index(label)] = 1
    return PairsMeasured("m", len(given), len(given), {}, {}, {}, {}, {}, (), Usage(), 0.0, counts)


def test_judges_are_compared_by_hand():
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
    good, bad = judge(*["SUPPORTS"] * 40), judge(*["SUPPORTS"] * 10, *["REFUTES"] * 30)
    (weighted, _) = compare_judges({"bad": bad, "good": good}).differences
    assert weighted.p < 0.001 and weighted.difference > 0.5
    (same, _) = compare_judges({"good": good, "again": good}).differences
    assert (same.difference, same.p, same.interval, same.ties) == (0.0, 1.0, (0.0, 0.0), 40)
