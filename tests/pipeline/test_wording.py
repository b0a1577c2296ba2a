"""What is no claim is told from claims, and two claims from one."""

from __future__ import annotations

from pathlib import Path

import pytest

import ccheck
from ccheck.core.analysis import two_claims, wording_of
from ccheck.pipeline.run import YES_NO


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
def test_what_a_text_is(text: str, wording: str) -> None:
    assert wording_of(text) == wording


@pytest.mark.parametrize(
    ("text", "two"),
    [
        ("Coffee causes cancer and tea prevents it.", ("Coffee causes cancer", "tea prevents it")),
        (
            "Smoking causes lung cancer and shortens lives, while tea is harmless",
            ("Smoking causes lung cancer and shortens lives", "tea is harmless"),
        ),
        ("Sea level has risen; the oceans are warming", ("Sea level has risen", "the oceans are warming")),
        ("Vitamin D prevents cancer and heart disease.", None),
        ("Salt and sugar raise blood pressure.", None),
        ("The people who smoke and drink live shorter lives.", None),
    ],
)
def test_two_claims_in_one_sentence_are_told(text: str, two: tuple[str, str] | None) -> None:
    assert two_claims(text) == two


def test_a_question_is_answered_as_one(papers: Path) -> None:
    with ccheck.open(str(papers), recipe="bm25") as checker:
        asked = checker.check("Has sea level risen since 1900?")
        other = checker.check("How much has sea level risen since 1900?")
        both = checker.check("Sea level has risen and the cod has vanished.")
    assert [one for one in both.warnings if "'the cod has vanished'" in one]
    assert YES_NO in asked.warnings and asked.verdict is not None and asked.verdict.reason != "no_claim"
    assert other.verdict is not None and other.verdict.reason == "no_claim" and other.evidence
    assert all(piece.stance is None for piece in other.evidence)
