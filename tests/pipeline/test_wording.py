"""What is no claim is told from claims, and two claims from one."""

from __future__ import annotations

import pytest

import ccheck
from ccheck.core.analysis import two_claims, wording_of
from ccheck.core.answers import result_of
from ccheck.core.types import Part, Verdict
from ccheck.pipeline.run import YES_NO
from ccheck.verdict import of_parts


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ("Does coffee cause cancer?", "yes_no_question"),
        ("Are vaccines safe for children under five?", "yes_no_question"),
        ("What causes cancer?", "open_question"),
        ("In which year did sea level rise most?", "open_question"),
        ("How many people died of malaria?", "open_question"),
        ("Is it coffee or tea that causes cancer?", "statement"),
        ("Coffee causes cancer.", "statement"),
        ("What a surprise: coffee causes cancer", "statement"),
        ("Why do they lie to us? Coffee causes cancer. Who knew?", "statement"),
        ("Zoey Deutch played Stephanie in Why Him?", "statement"),
        ("Hello!", "greeting"),
        ("Please find papers about sea level", "command"),
        ("could you check whether coffee causes cancer?", "command"),
        ("Check dams reduce erosion.", "statement"),
        ("We should stop burning coal.", "opinion"),
        ("We burn more coal than in 1990.", "statement"),
    ],
)
def test_what_a_text_is(text, wording):
    assert wording_of(text) == wording


@pytest.mark.parametrize(
    ("text", "two"),
    [
        ("Coffee causes cancer and tea prevents it.", ("Coffee causes cancer", "tea prevents it")),
        (
            "Smoking causes lung cancer and shortens lives, while tea is harmless",
            ("Smoking causes lung cancer and shortens lives", "tea is harmless"),
        ),
        ("Coffee does not cause cancer and prevents gout.", ("Coffee does not cause cancer", "Coffee prevents gout")),
        ("Sea level is rising, but it will fall again", ("Sea level is rising", "Sea level will fall again")),
        ("Mercury is toxic and lead is harmful", ("Mercury is toxic", "lead is harmful")),
        ("Sea level has risen; the oceans are warming", ("Sea level has risen", "the oceans are warming")),
        ("Vitamin D prevents cancer and heart disease.", None),
        ("Salt and sugar raise blood pressure.", None),
        ("The people who smoke and drink live shorter lives.", None),
    ],
)
def test_two_claims_in_one_sentence_are_told(text, two):
    assert two_claims(text) == two


def test_a_question_is_answered_as_one(papers):
    with ccheck.open(str(papers), recipe="bm25") as checker:
        asked = checker.check("Has sea level risen since 1900?")
        other = checker.check("How much has sea level risen since 1900?")
    assert YES_NO in asked.warnings and asked.verdict is not None and asked.verdict.reason != "no_claim"
    assert other.verdict is not None and other.verdict.reason == "no_claim" and other.evidence
    assert all(piece.stance is None for piece in other.evidence)


def test_two_claims_are_checked_one_by_one(papers):
    with ccheck.open(str(papers), recipe="bm25") as checker:
        both = checker.check("Sea level has risen and the cod has vanished.")
        alone = [checker.check(text).verdict for text in ("Sea level has risen", "the cod has vanished")]
        unclear = checker.check("Sea level has risen and warming causes it.")
    assert both.verdict is not None and unclear.verdict is not None
    assert [part.claim for part in both.verdict.parts] == ["Sea level has risen", "the cod has vanished"]
    assert [part.label for part in both.verdict.parts] == [one.label for one in alone if one is not None]
    assert both.verdict.rationale is not None and '"the cod has vanished": not enough' in both.verdict.rationale
    assert result_of(both.to_dict()).verdict == both.verdict
    assert unclear.verdict.parts == () and [one for one in unclear.warnings if "'warming causes it'" in one]


@pytest.mark.parametrize(
    ("parts", "label", "confidence"),
    [
        ((("SUPPORTS", 0.9), ("SUPPORTS", 0.95)), "SUPPORTS", 0.9),
        ((("SUPPORTS", 0.9), ("REFUTES", 0.95)), "REFUTES", 0.95),
        ((("REFUTES", 0.9), (None, None)), "REFUTES", 0.9),
        ((("SUPPORTS", 0.9), (None, None)), None, None),
        ((("SUPPORTS", 0.9), ("NOT_ENOUGH_INFO", 0.2)), "NOT_ENOUGH_INFO", 0.2),
        ((("CONFLICTING", 0.7), ("SUPPORTS", 0.9)), "CONFLICTING", 0.7),
    ],
)
def test_a_sentence_is_refuted_with_one_of_its_claims(parts, label, confidence):
    verdict = of_parts([Part("it", *one) for one in parts], Verdict("SUPPORTS", 0.5, method="m"))
    assert (verdict.label, verdict.confidence, verdict.method) == (label, confidence, "m")
    assert (verdict.reason is None) == (label in ("SUPPORTS", "REFUTES", None)) and bool(verdict.error) == (not label)
