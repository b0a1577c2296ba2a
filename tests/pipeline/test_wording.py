"""Questions are told from claims."""

from __future__ import annotations

from pathlib import Path

import pytest

import ccheck
from ccheck.core.analysis import wording_of
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
    ],
)
def test_what_a_text_is(text: str, wording: str) -> None:
    assert wording_of(text) == wording


def test_a_question_is_answered_as_one(papers: Path) -> None:
    with ccheck.open(str(papers), recipe="bm25") as checker:
        asked = checker.check("Has sea level risen since 1900?")
        other = checker.check("How much has sea level risen since 1900?")
    assert YES_NO in asked.warnings and asked.verdict is not None and asked.verdict.reason != "no_claim"
    assert other.verdict is not None and other.verdict.reason == "no_claim" and other.evidence
    assert all(piece.stance is None for piece in other.evidence)
