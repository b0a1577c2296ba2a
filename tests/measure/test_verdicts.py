"""Figures of stances and verdicts are scikit-learn's, and a failure is never a label."""

import random
import sys

import numpy as np
import pytest

from ccheck.core.errors import InvalidData, MissingExtra
from ccheck.core.types import Label, Stance, Verdict
from ccheck.lab.measure.verdicts import classify, label_figures, reliability
from ccheck.verdict.labels import STANCES

metrics = pytest.importorskip("sklearn.metrics")


def drawn(seed: int, claims: int = 40) -> tuple[dict[tuple[str, str], Stance], dict[tuple[str, str], Label]]:
    """Stances, some of which failed, and true labels, some of which nobody predicted."""
    rng = random.Random(seed)
    truth = {(f"c{i}", f"d{j}"): rng.choice(STANCES) for i in range(claims) for j in range(rng.randrange(1, 6))}
    predicted = {
        key: Stance(None, error="the server failed")
        if rng.random() < 0.1
        else Stance(label if rng.random() < 0.6 else rng.choice(STANCES), confidence=rng.random())
        for key, label in truth.items()
        if rng.random() < 0.8
    }
    return predicted | {("c0", "unjudged"): Stance("SUPPORTS", 0.9)}, truth


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_figures_are_those_of_scikit_learn(seed):
    predicted, truth = drawn(seed)
    made = classify(predicted, truth)
    keys = [key for key in truth if key in predicted and predicted[key].label is not None]
    true, given = [truth[key] for key in keys], [predicted[key].label for key in keys]
    report = metrics.classification_report(true, given, labels=made.labels, output_dict=True, zero_division=0)
    for name, scores in {"weighted avg": made.weighted, "macro avg": made.macro, **made.by_label}.items():
        measured = scores.precision, scores.recall, scores.f1, scores.support
        assert measured == pytest.approx(tuple(report[name].values()))
    assert made.accuracy == report["accuracy"] and made.count == len(keys)
    assert np.array_equal(made.confusion, metrics.confusion_matrix(true, given, labels=made.labels))
    assert made.failed == sum(predicted[key].label is None for key in truth if key in predicted) > 0
    assert made.missing == sum(key not in predicted for key in truth) > 0
    assert made.count + made.failed + made.missing == len(truth)
    assert made.calibration_error == reliability([predicted[key] for key in keys], true).error
    values = {"accuracy": made.accuracy, "weighted_f1": made.weighted.f1, "macro_f1": made.macro.f1}
    assert all(made.intervals[name][0] < value < made.intervals[name][1] for name, value in values.items())


def test_the_bootstraps_figures_are_scikit_learns_too_and_pairs_of_one_claim_go_together():
    rng = np.random.default_rng(0)
    for _ in range(20):
        confusion = rng.integers(0, 4, (3, 3)) * (rng.random((3, 3)) < 0.6)
        confusion[0, 0] += 1
        true = [STANCES[i] for i in range(3) for j in range(3) for _ in range(confusion[i, j])]
        given = [STANCES[j] for i in range(3) for j in range(3) for _ in range(confusion[i, j])]
        made = label_figures(confusion[None].astype(float))
        for kind in ("weighted", "macro"):
            expected = metrics.f1_score(true, given, average=kind, zero_division=0)
            assert made[f"{kind}_f1"][0] == pytest.approx(expected)
        assert made["accuracy"][0] == pytest.approx(metrics.accuracy_score(true, given))
    # Ten pairs that are all alike in each claim say no more than one of them.
    rng = random.Random(0)
    right = {f"c{i}": rng.random() < 0.5 for i in range(30)}
    one = {(claim, "d0"): Stance("SUPPORTS" if hit else "REFUTES") for claim, hit in right.items()}
    ten = {(claim, f"d{j}"): stance for (claim, _), stance in one.items() for j in range(10)}
    first, second = (classify(stances, dict.fromkeys(stances, "SUPPORTS")) for stances in (one, ten))
    assert first.intervals["accuracy"] == second.intervals["accuracy"]


def test_verdicts_without_some_of_their_documents_are_counted():
    truth: dict[str, Label] = {"1": "SUPPORTS", "2": "NOT_ENOUGH_INFO", "3": "REFUTES", "4": "REFUTES"}
    predicted = {
        "1": Verdict("SUPPORTS", 0.9, judged=10),
        "2": Verdict("NOT_ENOUGH_INFO", 0.6, error="2 of 10 papers could not be judged", judged=8, failed=2),
        "3": Verdict(None, error="too few documents were judged for a verdict", judged=1, failed=9),
        "4": Verdict("REFUTES", 0.9, judged=10),
    }
    made = classify(predicted, truth)
    assert (made.count, made.partial, made.failed, made.missing) == (3, 1, 1, 0)
    assert made.accuracy == 1.0 and classify({("1", "d"): Stance("SUPPORTS")}, {("1", "d"): "SUPPORTS"}).partial == 0


def test_what_can_not_be_measured_is_an_error(monkeypatch):
    with pytest.raises(InvalidData, match="none of 1 could be labelled: the server failed"):
        classify({"1": Verdict(None, error="the server failed"), "2": Verdict("SUPPORTS")}, {"1": "SUPPORTS"})
    with pytest.raises(InvalidData, match="none of the 1 true labels is for anything labelled"):
        classify({"2": Verdict("SUPPORTS")}, {"1": "SUPPORTS"})
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[evaluation\]'"):
        classify({"1": Verdict("SUPPORTS")}, {"1": "SUPPORTS"})
