"""What each sentence does in its paper."""

from __future__ import annotations

import time

import pytest

from ccheck.core.analysis import sentence_spans
from ccheck.core.types import Document, Sentence
from ccheck.verdict.evidence import choose_sentences
from ccheck.verdict.roles import roles_in, with_roles

ABSTRACT = (
    "Statins are widely used to lower cholesterol in adults at risk of heart disease.",
    "We investigated whether atorvastatin reduces stroke in patients with diabetes.",
    "In this double-blind trial, 2,838 patients were randomly assigned to atorvastatin or placebo.",
    "The primary endpoint was a first stroke.",
    "Stroke occurred in 21 patients in the atorvastatin group and in 39 in the placebo group (p = 0.016).",
    "There was no significant difference in serious adverse events between the groups.",
    "In conclusion, atorvastatin is effective in preventing stroke in patients with diabetes.",
    "Further studies are needed in younger patients.",
)
ROLES = ["background", "aim", "method", "method", "result", "result", "conclusion", "outlook"]


def roles(text: str) -> list[str | None]:
    return list(roles_in(text, sentence_spans(text)).roles)


def test_the_order_and_the_words_of_an_abstract_tell_the_roles() -> None:
    assert roles(" ".join(ABSTRACT)) == ROLES


@pytest.mark.parametrize("heading", ["{}: ", "{} ", "{}\n", "## {}\n"])
def test_headings_tell_the_roles_of_what_follows(heading: str) -> None:
    parts = {"BACKGROUND": "Seas are wet.", "METHODS": "Ships sailed. They came back.", "RESULTS": "Gold is heavy."}
    text = "\n".join(heading.format(name) + said for name, said in parts.items())
    found = [role for role, (a, b) in zip(roles(text), sentence_spans(text), strict=True) if "." in text[a:b]]
    assert found == ["background", "method", "method", "result"]


def test_a_heading_of_two_sections_leaves_the_choice() -> None:
    text = "METHODS AND RESULTS We enrolled 120 patients. Mortality was 12% and 20% (P<0.05). CONCLUSIONS It works."
    assert roles(text) == ["method", "result", "conclusion"]


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ("It has been suggested that coffee causes cancer.", "background"),
        ("It is unclear whether coffee causes cancer.", "background"),
        ("Does coffee cause cancer?", "aim"),
        ("The aim of this study was to test coffee.", "aim"),
        ("Larger trials are needed to confirm this.", "outlook"),
        ("Coffee causes no cancer.", None),
    ],
)
def test_a_phrase_tells_the_role_of_a_sentence_alone(said: str, role: str | None) -> None:
    assert roles(said) == [role]


def test_what_was_found_leads_even_if_the_aim_repeats_the_claim() -> None:
    documents = [Document("a", "", " ".join(ABSTRACT))]
    (((first, *_),),) = choose_sentences([("Atorvastatin reduces stroke in patients with diabetes", documents)], 3)
    assert first.role == "conclusion" and first.text == ABSTRACT[6]


def test_a_quote_has_the_role_of_its_sentence() -> None:
    text = " ".join(ABSTRACT)
    start = text.index("no significant difference")
    (quote, title) = with_roles(
        [Sentence("no significant difference", "text", start, start + 25, 1.0), Sentence("A", "title", 0, 1, 1.0)], text
    )
    assert quote.role == "result" and title.role is None


def test_a_sentence_without_end_takes_time_in_proportion() -> None:
    started = time.process_time()
    assert roles("further work " * 4_000) == [None]
    assert time.process_time() - started < 5


def test_a_long_text_and_an_empty_one() -> None:
    assert roles("") == []
    long = " ".join(ABSTRACT * 10)
    assert len(roles(long)) == 80 and roles(long)[1] == "aim" and roles(long)[4] == "result"
