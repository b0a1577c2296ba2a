"""The claim's verdict from the stances."""

import itertools
import json
import math
import random

import numpy as np
import pytest

from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.core.types import DECISIVE, Claim, Document, Evidence, Hit, Label, Stance, Usage
from ccheck.lab.measure.calibration import fit_calibration
from ccheck.lab.measure.verdicts import reliability
from ccheck.verdict.calibration import calibrated, load_calibration, save_calibration
from ccheck.verdict.judge import (
    ASSUMED_CONFIDENCE,
    FAR,
    HALF_LIFE,
    NO_DOCUMENTS,
    UNREAD,
    Case,
    Judged,
    conclude,
    decides,
    side_probability,
)
from ccheck.verdict.labels import _LABELS, LABELS, SPELLINGS, STANCES, parse_label
from ccheck.web.views import strongest

S, R, N = STANCES


def evidence(*stances: Stance | None, title: str = "On {}", published: str | None = "2011-12-31") -> list[Evidence]:
    return [
        Evidence(Hit(rank, Document(str(rank), title.format(rank), "Text.", {}, published), 1 / rank), (), stance)
        for rank, stance in enumerate(stances, 1)
    ]


def said(*stances: Stance) -> str | None:
    return conclude(evidence(*stances), "test").label


@pytest.mark.parametrize(
    ("stances", "reason"),
    [
        ([(N, 0.9), (N, 0.6)], "left_open"),
        ([(S, 0.6), (N, 0.9)], "leans_to_support"),
        ([(R, 0.6), (S, 0.2)], "leans_to_refute"),
        ([(S, 0.6), (R, 0.6)], "disagreement"),
        ([(S, 0.9), (R, 0.9)], "disagreement"),
        ([(S, 0.9), (R, 0.4)], None),
    ],
)
def test_what_is_open_says_why(stances: list[tuple[Label, float]], reason: str | None) -> None:
    assert conclude(evidence(*(Stance(*one) for one in stances)), "test").reason == reason


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


SECOND, THIRD = 0.5 ** (1 / HALF_LIFE), 0.5 ** (2 / HALF_LIFE)
GUESS = DECISIVE - 0.01


@pytest.mark.parametrize(
    ("stances", "label", "confidence"),
    [
        # One document is as sure as itself, if it is sure enough to decide; without a confidence it counts .8.
        ([(S, DECISIVE)], S, DECISIVE),
        ([(S, GUESS)], N, 1 - GUESS),
        ([(S, None)], S, ASSUMED_CONFIDENCE),
        ([(R, None)], R, ASSUMED_CONFIDENCE),
        ([(N, None)], N, ASSUMED_CONFIDENCE),
        ([("CONFLICTING", 0.9)], "CONFLICTING", 0.9),
        # The mean by rank, times what the other side leaves; guesses take nothing away.
        ([(S, 0.9), (S, 0.7)], S, (0.9 + 0.7 * SECOND) / (1 + SECOND)),
        ([(S, None), (S, 0.6)], S, 0.8),
        ([(S, 0.9), (R, 0.3)], S, 0.9),
        ([(N, 0.9), (S, 0.2), (R, 0.1)], N, 0.9 * (1 - 0.2 * SECOND) * (1 - 0.1 * THIRD)),
        ([(S, 0.9), (R, 0.8)], "CONFLICTING", 0.8),
        ([(S, 0.9), (R, DECISIVE)], "CONFLICTING", DECISIVE),
        # The document that is least sure says how sure an open verdict is.
        ([(N, 0.6)], N, 0.6),
        ([(N, 0.6), (N, 0.99), (N, 0.99)], N, 0.6),
        ([(N, 0.9), (N, 0.6)], N, 1 - 0.4 * SECOND),
        # Guesses don't add up to a side.
        ([(S, GUESS)] * 10, N, None),
        ([(R, GUESS)] * 10 + [(R, 0.9)], R, None),
        ([(S, 0.9)] + [(R, GUESS)] * 10, S, None),
        ([("CONFLICTING", 0.4), (S, 0.9)], S, None),
        # A side is strong above one half and not at it; far down, one document does not do, and several do.
        ([(N, 0.9)] * (HALF_LIFE - 1) + [(S, 1.0)], S, None),
        ([(N, 0.9)] * HALF_LIFE + [(S, 1.0)], N, None),
        ([(N, 0.9)] * 40 + [(S, 0.7)], N, None),
        ([(N, 0.9)] * 20 + [(R, 0.8), (R, 0.8)], R, None),
        # Confidences out of range do no harm.
        ([(S, -1.0)], N, 1.0),
        ([(S, 2.0)], S, 1.0),
    ],
)
def test_the_rule(stances, label, confidence):
    verdict = conclude(evidence(*(Stance(*one) for one in stances)), "test")
    assert verdict.label == label and 0 <= verdict.confidence <= 1
    assert confidence is None or verdict.confidence == pytest.approx(confidence, abs=1e-6)


def test_a_judge_that_knows_how_sure_it_must_be_says_what_decides():
    guess, sure = Stance(S, 0.8, decides=False), Stance(R, 0.6, decides=True)
    assert said(guess) == N and said(sure) == R and said(guess, sure) == R
    stances = (guess, sure, Stance(S, DECISIVE), Stance(S, GUESS), Stance(N, 1.0), FAILED)
    assert [decides(one) for one in stances] == [False, True, True, False, False, False]


def test_a_failure_is_never_a_label():
    verdict = conclude(evidence(FAILED, FAILED, Stance(None, error="timeout")), "test")
    assert (verdict.label, verdict.confidence, verdict.rationale) == (None, None, None)
    assert verdict.error == "none of 3 papers could be judged: the server answered 500"
    assert (verdict.judged, verdict.failed) == (0, 3)
    for nothing in ([], evidence(None, None)):
        verdict = conclude(nothing, "test")
        assert verdict.label is None and verdict.error == NO_DOCUMENTS and not verdict.failed
    unsaid = conclude(evidence(Stance(None)), "test")
    assert unsaid.error == "none of 1 paper could be judged: no reason given"
    whole = conclude(evidence(Stance(S, 0.9), Stance(N, 0.9), None), "test")
    assert (whole.judged, whole.failed, whole.error) == (2, 0, None)
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
            "1 of 3 papers supports it, 1 refutes it, 1 leans to refuting it; "
            "strongest: On 1 (2011) against On 2 (2011)",
        ),
        ([Stance(N, 0.9)] * 4, "none of 4 papers supports or refutes it"),
        ([Stance(N, 0.9)], "the paper neither supports nor refutes it"),
        (
            [Stance(N, 0.9), FAILED, Stance(N, 0.9)],
            "none of the 2 of 3 papers that could be judged supports or refutes it; 1 paper could not be judged",
        ),
        (
            [Stance(R, 0.9, decides=False), Stance(R, 0.3), Stance(R, 0.6)],
            "3 of 3 papers lean to refuting it, none supports it: too weak to decide; strongest: On 1 (2011)",
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


@pytest.mark.parametrize(
    ("stances", "name"),
    [
        ([Stance(S, 0.47, decides=False), Stance(R, 0.72, decides=False)], "On 2"),  # not the supporting one, always
        ([Stance(R, 0.78, decides=False), Stance(S, 0.2), Stance(R, 0.8, decides=False)], "On 3"),
        ([Stance(R, 0.8, decides=False), Stance(R, 0.71, decides=True)], "On 2"),
    ],
)
def test_the_page_and_the_reason_name_the_same_paper_as_the_strongest(stances, name):
    pieces = evidence(*stances)
    verdict = conclude(pieces, "stance:x")
    assert verdict.rationale.endswith(f"strongest: {name} (2011)")
    assert strongest([{"evidence": piece, "part": ""} for piece in pieces], R)["evidence"].document.title == name


@pytest.mark.parametrize("failed", [1, 2, 3, 5])
def test_what_failed_weighs_on_each_side_that_the_verdict_is_not(failed):
    rest = [FAILED] * failed
    one_side = math.prod(1 - UNREAD * 0.5 ** (rank / HALF_LIFE) for rank in range(2, 2 + failed))
    for stances, others in (([S, N], 1), ([R, N], 1), ([N, N], 2), ([S, R], 0)):
        judged = [Stance(label, 0.9) for label in stances]
        whole, part = conclude(evidence(*judged), "test"), conclude(evidence(*judged, *rest), "test")
        assert part.label == whole.label and part.failed == failed and "could not be judged" in part.error
        assert part.confidence == pytest.approx(whole.confidence * one_side**others, abs=1e-6)


def test_there_is_no_verdict_once_it_would_sooner_be_another():
    labels = [conclude(evidence(Stance(N, 1.0), *[FAILED] * count), "test").label for count in range(1, 30)]
    first = labels.index(None)
    assert set(labels[:first]) == {N} and set(labels[first:]) == {None}
    stays = [math.prod((1 - UNREAD * 0.5 ** (r / HALF_LIFE)) ** 2 for r in range(1, 1 + n)) for n in (first, first + 1)]
    assert stays[0] >= 0.5 > stays[1]
    # Two sides are two sides, whatever else there is.
    assert conclude(evidence(Stance(S, 1.0), Stance(R, 1.0), *[FAILED] * 30), "test").label == "CONFLICTING"


def test_titles_are_named_as_they_can_be():
    assert conclude(evidence(Stance(S, 0.9), title="", published=None), "x").rationale.endswith("strongest: 1")
    long = conclude(evidence(Stance(S, 0.9), title="word\n" * 400), "x").rationale
    assert len(long) < 250 and "\n" not in long and "… (2011)" in long
    fits, cut = (conclude(evidence(Stance(S, 0.9), title="x" * n), "x").rationale for n in (120, 121))
    assert f"{'x' * 120} (2011)" in fits and f"{'x' * 119}… (2011)" in cut
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
        if verdict.label is None:
            assert verdict.failed > verdict.judged and "too few documents were judged" in verdict.error
            continue
        assert 0 <= verdict.confidence <= 1 and "\n" not in verdict.rationale
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
        assert conclude(evidence(*stances, Stance(N, rng.random())), "test").label == verdict.label
        # What `-k` adds, papers further down that don't bear on the claim, makes no verdict surer.
        further = (Stance(N, rng.uniform(0.5, 1)) for _ in range(rng.randint(1, 10)))
        more = conclude(evidence(*stances, *further), "test")
        assert more.label == verdict.label and more.confidence <= verdict.confidence
        assert more.label == N or more.confidence == verdict.confidence
        less = conclude(evidence(*stances, FAILED), "test")
        assert less.label in (verdict.label, None) and less.failed == verdict.failed + 1
        assert less.confidence is None or less.confidence <= verdict.confidence
        # A label that no document gave, other than open, is none.
        given = {stance.label for stance in stances}
        assert verdict.label in (N, *given) or (verdict.label == "CONFLICTING" and {S, R} <= given)


@pytest.mark.parametrize(
    ("spelling", "label"),
    [
        ("Supported", "SUPPORTS"),
        ("NEI", "NOT_ENOUGH_INFO"),
        (" not enough info\n", "NOT_ENOUGH_INFO"),
        ("Not-Enough-Information", "NOT_ENOUGH_INFO"),
        ("DISPUTED", "CONFLICTING"),
        ("Conflicting Evidence/Cherrypicking", "CONFLICTING"),
        ("ＮＥＩ", "NOT_ENOUGH_INFO"),
    ],
)
def test_spellings_of_data_sets(spelling, label):
    assert parse_label(spelling) == label


def test_every_label_is_its_own_first_spelling_and_none_means_two_things():
    assert [spellings[0] for spellings in SPELLINGS.values()] == list(SPELLINGS) == list(LABELS)
    assert len(_LABELS) == sum(map(len, SPELLINGS.values()))


@pytest.mark.parametrize("spelling", ["LABEL_0", "", "0", "SUPPORTS REFUTES", "¯\\_(ツ)_/¯", "REFUTTES", "x" * 100_000])
def test_what_is_not_known_is_an_error_that_names_what_is_and_short(spelling):
    with pytest.raises(InvalidData, match="unknown label") as caught:
        parse_label(spelling)
    assert all(label in str(caught.value) for label in LABELS) and len(str(caught.value)) < 600
    assert ("Did you mean REFUTES" in str(caught.value)) == (spelling == "REFUTTES")


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

    calibration = fit_calibration(*stances_of(0), Fixed(FAILED))
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
    for true in (3.0, 0.5):
        stances, labels = overconfident(4000, sharper=true)
        assert fit_calibration(stances, labels, Fixed(FAILED)).temperature == pytest.approx(true, rel=0.1)


def test_reliability_by_hand():
    stances = [Stance("SUPPORTS", 0.9), Stance("SUPPORTS", 0.95), Stance("REFUTES", 0.55), Stance(None, error="x")]
    drawn = reliability([*stances, Stance("REFUTES")], ["SUPPORTS", "REFUTES", "REFUTES", "REFUTES", "REFUTES"])
    # .9 ends the bin of .8 to .9, so that each of the three is in a bin of its own.
    assert drawn.error == pytest.approx((0.1 + 0.95 + 0.45) / 3)
    assert drawn.brier == pytest.approx((0.01 + 0.9025 + 0.2025) / 3)
    assert drawn.accuracy == pytest.approx(2 / 3)
    edges = reliability([Stance("SUPPORTS", 0.0), Stance("SUPPORTS", 1.0)], ["SUPPORTS", "SUPPORTS"])
    assert edges.error == 0.5
    together = reliability([Stance("SUPPORTS", 0.91), Stance("SUPPORTS", 0.99)], ["SUPPORTS", "REFUTES"])
    assert together.error == pytest.approx(0.45), "the mean of a bin against its share of right ones"
    with pytest.raises(InvalidData, match="nothing to compare"):
        reliability([Stance(None, error="x")], ["SUPPORTS"])


@pytest.mark.parametrize(
    ("stances", "labels", "message"),
    [
        ([Stance("SUPPORTS", 0.9)] * 10, ["SUPPORTS"] * 10, "at least 30"),
        ([Stance(None, error="x")] * 50, ["SUPPORTS"] * 50, "at least 30"),
        ([Stance("SUPPORTS", 0.9)] * 50, ["SUPPORTS"] * 50, "50 of 50 answers are right"),
        ([Stance("SUPPORTS")] * 50, ["SUPPORTS"] * 50, "nothing to calibrate"),
    ],
)
def test_what_nothing_can_be_learned_from_is_an_error(stances, labels, message):
    with pytest.raises(InvalidData, match=message):
        fit_calibration(stances, labels, Fixed(FAILED))


class Fixed:
    """A method that says one thing."""

    name = "stance:/models/nli"

    def __init__(self, stance: Stance) -> None:
        self.stance = stance

    def __call__(self, cases):
        for case in cases:
            yield Judged(tuple(self.stance for _ in case.evidence), usage=Usage(1, 2, 3))


def test_a_calibrated_method_is_a_method_and_failures_stay_what_they_are():
    stances, labels = overconfident(500)
    calibration = fit_calibration([*stances, FAILED], [*labels, S], Fixed(FAILED))
    assert calibration.pairs == 500 and calibration.apply(FAILED) is FAILED and calibration.apply(FAR) is FAR
    method = calibrated(Fixed(stances[0]), calibration)
    assert method.name == "stance:/models/nli"
    cases = [Case(Claim("x"), (Evidence(Hit(1, Document("a", "", "x"), 1.0)),)), Case(Claim("y"), ())]
    first, second = method(cases)
    assert first.stances == (calibration.apply(stances[0]),) and first.stances[0].confidence < stances[0].confidence
    assert first.usage == Usage(1, 2, 3) and second.stances == ()
    with pytest.raises(UsageError, match=r"was made for .*, not for"):
        calibrated(Fixed(stances[0]), calibration.model_copy(update={"identity": "llm:gpt"}))
    with pytest.raises(InvalidData, match="Calibrate it on its own answers"):
        calibration.apply(Stance("SUPPORTS", 0.9))
    sure = Stance(S, 0.8, probabilities={S: 0.8, R: 0.1, N: 0.1}, decides=True)
    for temperature, label in ((1.5, S), (20, N)):
        one = calibration.model_copy(update={"temperature": temperature}).apply(sure)
        assert (said(one), one.decides) == (label, label == S), "a side needs more than one half"


GOOD = {"of": "confidence", "method": "x", "identity": "x", "pairs": 50}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
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
