"""Calibrated confidences."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.core.types import Claim, Document, Evidence, Hit, Stance, Usage
from ccheck.lab.measure.calibration import fit_calibration
from ccheck.lab.measure.verdicts import reliability
from ccheck.verdict.calibration import calibrated, load_calibration, save_calibration
from ccheck.verdict.judge import Case, Judged
from ccheck.verdict.labels import STANCES


def overconfident(count: int, seed: int = 0, sharper: float = 3.0) -> tuple[list[Stance], list[str]]:
    """Stances of a method whose logits are `sharper` times what they should be, and the true labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, 3)) * 1.2
    true = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = [STANCES[rng.choice(3, p=row)] for row in true]
    said = np.exp(sharper * logits)
    said /= said.sum(1, keepdims=True)
    stances = []
    for row in said.tolist():
        best = max(range(3), key=row.__getitem__)
        stances.append(Stance(STANCES[best], row[best], probabilities=dict(zip(STANCES, row, strict=True))))
    return stances, labels


@pytest.mark.parametrize("probabilities", [True, False])
def test_an_overconfident_method_is_calibrated_on_pairs_it_has_not_seen(probabilities, tmp_path):
    def stances_of(seed):
        stances, labels = overconfident(1500, seed)
        return [s if probabilities else Stance(s.label, s.confidence) for s in stances], labels

    calibration = fit_calibration(*stances_of(0), "stance:x")
    assert calibration.of == ("probabilities" if probabilities else "confidence")
    save_calibration(calibration, tmp_path / "c.json")
    loaded = load_calibration(tmp_path / "c.json")
    assert loaded == calibration
    stances, labels = stances_of(1)
    after = [loaded.apply(stance) for stance in stances]
    assert reliability(stances, labels).error > 0.15 > 0.06 > reliability(after, labels).error
    assert reliability(after, labels).brier < reliability(stances, labels).brier
    assert [stance.label for stance in after] == [stance.label for stance in stances]
    for stance in after:
        assert 0 <= stance.confidence <= 1
        if probabilities:
            assert sum(stance.probabilities.values()) == pytest.approx(1, abs=1e-5)
            assert stance.confidence == stance.probabilities[stance.label]


def test_the_temperature_is_the_true_one():
    stances, labels = overconfident(4000, sharper=3.0)
    assert fit_calibration(stances, labels, "stance:x").temperature == pytest.approx(3.0, rel=0.1)
    stances, labels = overconfident(4000, sharper=0.5)
    assert fit_calibration(stances, labels, "stance:x").temperature == pytest.approx(0.5, rel=0.1)


def test_reliability_by_hand():
    stances = [Stance("SUPPORTS", 0.9), Stance("SUPPORTS", 0.95), Stance("REFUTES", 0.55), Stance(None, error="x")]
    drawn = reliability([*stances, Stance("REFUTES")], ["SUPPORTS", "REFUTES", "REFUTES", "REFUTES", "REFUTES"])
    assert drawn.pairs == 3
    # .9 ends the bin of .8 to .9, so that each of the three is in a bin of its own.
    assert drawn.error == pytest.approx((0.1 + 0.95 + 0.45) / 3)
    assert drawn.brier == pytest.approx((0.01 + 0.9025 + 0.2025) / 3)
    assert drawn.accuracy == pytest.approx(2 / 3)
    edges = reliability([Stance("SUPPORTS", 0.0), Stance("SUPPORTS", 1.0)], ["SUPPORTS", "SUPPORTS"])
    assert (edges.error, edges.pairs) == (0.5, 2)
    together = reliability([Stance("SUPPORTS", 0.91), Stance("SUPPORTS", 0.99)], ["SUPPORTS", "REFUTES"])
    assert together.error == pytest.approx(0.45), "the mean of a bin against its share of right ones"
    with pytest.raises(InvalidData, match="nothing to compare"):
        reliability([Stance(None, error="x")], ["SUPPORTS"])


def test_a_failure_stays_one_and_is_not_learned_from():
    stances, labels = overconfident(100)
    failed = Stance(None, error="no")
    calibration = fit_calibration([*stances, failed], [*labels, "SUPPORTS"], "stance:x")
    assert calibration.pairs == 100
    assert calibration.apply(failed) is failed


@pytest.mark.parametrize(
    ("stances", "labels", "message"),
    [
        ([Stance("SUPPORTS", 0.9)] * 10, ["SUPPORTS"] * 10, "at least 30"),
        ([Stance(None, error="x")] * 50, ["SUPPORTS"] * 50, "at least 30"),
        ([Stance("SUPPORTS", 0.9)] * 50, ["SUPPORTS"] * 50, "all 50 pairs are right"),
        ([Stance("SUPPORTS")] * 50, ["SUPPORTS"] * 50, "nothing to calibrate"),
    ],
)
def test_what_nothing_can_be_learned_from_is_an_error(stances, labels, message):
    with pytest.raises(InvalidData, match=message):
        fit_calibration(stances, labels, "stance:x")


class Fixed:
    """A method that says one thing."""

    name = "stance:/models/nli"

    def __init__(self, stance: Stance) -> None:
        self.stance = stance

    def __call__(self, cases):
        for case in cases:
            yield Judged(tuple(self.stance for _ in case.evidence), usage=Usage(1, 2, 3))


def test_a_calibrated_method_is_a_method():
    stances, labels = overconfident(500)
    calibration = fit_calibration(stances, labels, "stance:/elsewhere/nli")
    method = calibrated(Fixed(stances[0]), calibration)
    assert method.name == "stance:/models/nli"
    cases = [Case(Claim("x"), (Evidence(Hit(1, Document("a", "", "x"), 1.0)),)), Case(Claim("y"), ())]
    first, second = method(cases)
    assert first.stances == (calibration.apply(stances[0]),) and first.stances[0].confidence < stances[0].confidence
    assert first.usage == Usage(1, 2, 3) and second.stances == ()
    with pytest.raises(UsageError, match=r"was made for .*, not for"):
        calibrated(Fixed(stances[0]), calibration.model_copy(update={"method": "llm:gpt"}))
    with pytest.raises(InvalidData, match="Calibrate it on its own answers"):
        calibration.apply(Stance("SUPPORTS", 0.9))


GOOD = {"of": "confidence", "method": "x", "pairs": 50}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "nonsense",
        json.dumps(GOOD),
        json.dumps(GOOD | {"temperature": 0}),
        json.dumps(GOOD | {"temperature": 1, "more": 1}),
        json.dumps(GOOD | {"temperature": float("nan")}),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path, content):
    file = tmp_path / "c.json"
    file.write_text(content)
    with pytest.raises(InvalidData, match="calibration"):
        load_calibration(file)
    with pytest.raises(NotFound, match="ccheck calibrate"):
        load_calibration(tmp_path / "other.json")
