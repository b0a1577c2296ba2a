"""The claim's verdict from the stances."""

from __future__ import annotations

import gzip
import itertools
import json
import random

import pytest

from ccheck.types import Document, Evidence, Hit, Stance
from ccheck.verdict.conclude import conclude, side_probability
from ccheck.verdict.labels import STANCES, parse_label

S, R, N = STANCES


def evidence(*stances: Stance | None, title: str = "On {}", published: str | None = "2011-12-31") -> list[Evidence]:
    return [
        Evidence(Hit(rank, Document(str(rank), title.format(rank), "Text.", {}, published), 1 / rank), (), stance)
        for rank, stance in enumerate(stances, 1)
    ]


def said(*stances: Stance) -> str | None:
    return conclude(evidence(*stances), "test").label


FAILED = Stance(None, error="the server answered 500")


def test_what_occurs_is_the_verdict_where_stances_are_certain():
    # Climate-FEVER's rule, for every combination of up to five stances.
    for count in range(1, 6):
        for labels in itertools.product(STANCES, repeat=count):
            expected = S if S in labels else R if R in labels else N
            if {S, R} <= set(labels):
                expected = "CONFLICTING"
            for confidence in (1.0, None):
                verdict = conclude(evidence(*(Stance(label, confidence) for label in labels)), "test")
                assert verdict.label == expected and verdict.error is None
                assert verdict.confidence is not None and 0 <= verdict.confidence <= 1


def test_one_document_is_as_sure_as_itself():
    assert said(Stance(S, 0.51)) == S
    assert said(Stance(S, 0.49)) == N
    assert conclude(evidence(Stance(S, 0.7)), "test").confidence == 0.7
    assert conclude(evidence(Stance(N, 0.7)), "test").confidence == 0.7
    # Weak documents of one mind add up; the other side takes away.
    assert said(Stance(R, 0.4), Stance(R, 0.4)) == R
    alone, against = (conclude(evidence(Stance(S, 0.9), *more), "test") for more in ((), (Stance(R, 0.3),)))
    assert against.label == S and against.confidence < alone.confidence
    assert conclude(evidence(Stance(S, 0.9), Stance(R, 0.6)), "test").confidence == 0.6


def test_the_rank_counts():
    open_ones = [Stance(N, 0.9)] * 40
    assert said(Stance(S, 0.6), *open_ones) == S
    assert said(*open_ones, Stance(S, 0.6)) == N


def test_a_failure_is_never_a_label():
    verdict = conclude(evidence(FAILED, FAILED, Stance(None, error="timeout")), "test")
    assert (verdict.label, verdict.confidence, verdict.rationale) == (None, None, None)
    assert verdict.error == "none of 3 papers could be judged: the server answered 500"
    for nothing in ([], evidence(None, None)):
        verdict = conclude(nothing, "test")
        assert verdict.label is None and verdict.error
    partly = conclude(evidence(FAILED, Stance(N, 0.9)), "test")
    assert partly.label == N and "1 paper could not be judged" in partly.rationale
    # What was never judged is not counted.
    assert conclude(evidence(Stance(S, 0.9), None), "test").rationale.startswith("1 of 1 paper supports it")


@pytest.mark.parametrize(
    ("stances", "rationale"),
    [
        (
            [Stance(S, 0.9), Stance(S, 0.8), Stance(N, 0.9)],
            "2 of 3 papers support it, none refutes it; strongest: On 1 (2011)",
        ),
        ([Stance(N, 0.9), Stance(R, 0.9)], "1 of 2 papers refutes it, none supports it; strongest: On 2 (2011)"),
        (
            [Stance(S, 0.9), Stance(R, 0.9), Stance(R, 0.5)],
            "1 of 3 papers supports it, 2 refute it; strongest: On 1 (2011) against On 2 (2011)",
        ),
        ([Stance(N, 0.9)] * 4, "none of 4 papers supports or refutes it"),
        ([Stance(N, 0.9)], "the paper neither supports nor refutes it"),
        (
            [Stance(N, 0.9), FAILED, Stance(N, 0.9)],
            "none of the 2 of 3 papers that could be judged supports or refutes it; 1 paper could not be judged",
        ),
        (
            [Stance(S, 0.3), Stance(N, 0.9)],
            "1 of 2 papers supports it, none refutes it, too weakly to decide; strongest: On 1 (2011)",
        ),
        (
            [Stance(S, 0.9), FAILED, FAILED],
            "1 of 3 papers supports it, none refutes it; strongest: On 1 (2011); 2 papers could not be judged",
        ),
    ],
)
def test_the_reason_is_one_sentence(stances, rationale):
    verdict = conclude(evidence(*stances), "stance:x")
    assert verdict.rationale == rationale
    assert verdict.method == "stance:x"


def test_titles_are_named_as_they_can_be():
    assert conclude(evidence(Stance(S, 0.9), title="", published=None), "x").rationale.endswith("strongest: 1")
    long = conclude(evidence(Stance(S, 0.9), title="word\n" * 400), "x").rationale
    assert len(long) < 250 and "\n" not in long and "… (2011)" in long
    piece = Evidence(Hit(1, Document("a", "T", "x", {"year": 1999}, "2011-01-01"), 1.0), (), Stance(S, 1.0))
    assert conclude([piece], "x").rationale.endswith("T (1999)")


def test_properties_of_the_rule():
    rng = random.Random(0)
    swap = {S: R, R: S, N: N, None: None}
    for _ in range(2000):
        stances = [
            FAILED if rng.random() < 0.1 else Stance(rng.choice(STANCES), rng.choice([None, round(rng.random(), 3)]))
            for _ in range(rng.randint(1, 12))
        ]
        verdict = conclude(evidence(*stances), "test")
        if all(stance.label is None for stance in stances):
            assert verdict.label is None and verdict.error
            continue
        assert verdict.label is not None and 0 <= verdict.confidence <= 1 and "\n" not in verdict.rationale
        # Supporting and refuting are alike.
        mirrored = conclude(
            evidence(*(Stance(swap[stance.label], stance.confidence, error=stance.error) for stance in stances)), "test"
        )
        assert mirrored.label == {S: R, R: S}.get(verdict.label, verdict.label)
        assert mirrored.confidence == pytest.approx(verdict.confidence)
        # One more document of a side never weakens that side; one that is open, or failed, changes no side.
        before = evidence(*stances)
        for label in (S, R):
            after = evidence(*stances, Stance(label, rng.random()))
            assert side_probability(after, label) >= side_probability(before, label)
        for neutral in (Stance(N, rng.random()), FAILED):
            assert conclude(evidence(*stances, neutral), "test").label == verdict.label
        # A label that no document gave, other than open, is none.
        given = {stance.label for stance in stances}
        assert verdict.label in (N, *given) or (verdict.label == "CONFLICTING" and {S, R} <= given)


def test_confidences_out_of_range_do_no_harm():
    for confidence in (-1.0, 2.0):
        verdict = conclude(evidence(Stance(S, confidence)), "test")
        assert 0 <= verdict.confidence <= 1


def test_climate_fevers_claims_follow_from_their_evidence(climate_fever):
    with gzip.open(climate_fever, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            stances = [Stance(parse_label(piece["evidence_label"]), 1.0) for piece in row["evidences"]]
            assert said(*stances) == parse_label(row["claim_label"])
