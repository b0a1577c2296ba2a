"""The sentences that are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from ccheck.core.analysis import sentence_spans
from ccheck.core.errors import InvalidData
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import Document, Sentence
from ccheck.rerank.open import open_matcher
from ccheck.verdict import evidence
from ccheck.verdict.evidence import Match, choose_sentences

TEXT = (
    "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).  It was measured by J. A. Church, i.e. by tide "
    "gauges. Does the sea rise? E. coli was not found.\nThe end"
)


def chosen(
    claim: str, documents: Sequence[Document], count: int, match: Match | None = None
) -> list[tuple[Sentence, ...]]:
    """The sentences of one claim's documents."""
    return choose_sentences([(claim, documents)], count, match)[0]


def test_sentences_are_split_as_scientists_write() -> None:
    assert [TEXT[start:end] for start, end in sentence_spans(TEXT)] == [
        "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).",
        "It was measured by J. A. Church, i.e. by tide gauges.",
        "Does the sea rise?",
        "E. coli was not found.",
        "The end",
    ]
    assert sentence_spans("") == sentence_spans(" \n ") == []


def test_the_best_sentence_has_the_claims_rare_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "NOT_FOUND", 1)
    text = "The sea is wet. The sea is deep. The sea is cold. The cobalt is blue."
    ((*four,),) = chosen("cobalt in the sea", [Document("a", "", text)], 4)
    # Of four sentences three have "sea" and one has "cobalt": log(1 + 4 / (1 + 3)) and log(1 + 4 / (1 + 1)).
    sea, cobalt = math.log(2), math.log(3)
    assert [(s.text, s.score) for s in four] == [
        ("The cobalt is blue.", pytest.approx(cobalt / (sea + cobalt), abs=1e-6)),
        *((f"The sea is {how}.", pytest.approx(sea / (sea + cobalt), abs=1e-6)) for how in ("wet", "deep", "cold")),
    ]


def test_rarity_is_among_all_documents_of_the_claim() -> None:
    one = Document("a", "", "The sea is wet. The cobalt is blue.")
    two = Document("b", "", "A cobalt mine. More cobalt here. Cobalt again.")
    (alone,) = chosen("cobalt in the sea", [one], 2)
    assert alone[0].score == alone[1].score and alone[0].text == "The sea is wet."  # the first one of equals
    beside, _ = chosen("cobalt in the sea", [one, two], 2)
    sea, cobalt = math.log(1 + 5 / 2), math.log(1 + 5 / 5)
    assert [s.score for s in beside] == pytest.approx([sea / (sea + cobalt), cobalt / (sea + cobalt)], abs=1e-6)
    # A word of the claim that no sentence has is the rarest.
    ((sentence,),) = chosen("sea tungsten", [Document("a", "", "The sea is wet.")], 1)
    assert sentence.score == pytest.approx(math.log(1.5) / (math.log(1.5) + math.log(2)), abs=1e-6)


def test_what_only_asks_comes_after_what_was_found() -> None:
    documents = [Document("b", "", "Nothing in here. Nothing at all."), Document("c", "x", ""), Document("a", "", TEXT)]
    first, second, third = chosen("The sea rises by 3.2 mm each year", documents, 2)
    assert first == second == ()
    assert [sentence.text for sentence in third] == [
        "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).",
        "Does the sea rise?",
    ]
    for sentence in third:
        assert TEXT[sentence.start : sentence.end] == sentence.text
        assert sentence.field == "text"
        assert 0 < sentence.score <= 1
    asked, told = (chosen("sea rises", [Document("a", "", t)], 1)[0][0] for t in ("Sea rises?", "Sea rises."))
    assert (asked.score, told.score) == (evidence.NOT_FOUND, 1.0)


def test_offsets_count_characters() -> None:
    text = "Ünïcödé 🌊 first. The sea 🌊 rises. End."
    ((sentence,),) = chosen("sea rises", [Document("a", "", text)], 1)
    assert text[sentence.start : sentence.end] == sentence.text == "The sea 🌊 rises."


def test_no_sentence_without_words_or_wish() -> None:
    documents = [Document("a", "", TEXT)]
    assert chosen("the of and", documents, 3) == [()]
    assert chosen("sea", documents, 0) == [()]
    assert chosen("sea", [], 3) == []


HEART = Document("h", "", "Heart attacks were rarer. The cost was moderate. Patients went home after a week.")


@pytest.fixture(scope="module")
def match() -> Match:
    """The comparison of tokens that ccheck has."""
    made = open_matcher(Runtime(Settings()))
    assert made is not None
    return made


def test_a_model_finds_a_sentence_in_other_words(match):
    claim = "Fewer myocardial infarctions"
    assert chosen(claim, [HEART], 1) == [()]
    ((sentence,),) = chosen(claim, [HEART], 1, match)
    assert sentence.text == "Heart attacks were rarer." == HEART.text[sentence.start : sentence.end]
    assert 0 < sentence.score <= 1


def test_each_claim_is_matched_in_one_call_as_if_it_were_alone(match):
    asked: list[tuple[str, Sequence[str]]] = []

    def told(claim: str, sentences: Sequence[str]) -> Sequence[float]:
        asked.append((claim, sentences))
        return match(claim, sentences)

    documents = [HEART, Document("copy", "", HEART.text), Document("empty", "", "")]
    cases = [("Fewer myocardial infarctions", documents), ("Patients went home early", documents[:1]), ("none", [])]
    made = choose_sentences(cases, 2, told)
    assert [(claim, len(sentences)) for claim, sentences in asked] == [(cases[0][0], 3), (cases[1][0], 3)]
    assert made[0][0] == made[0][1] and made[0][2] == () and made[2] == []
    assert made == [choose_sentences([case], 2, match)[0] for case in cases]


def similar(claim: str, sentences: Sequence[str]) -> list[float]:
    return [{"sea up.": 1.0, "sea both.": 0.5, "sea away.": 0.0, "fog.": 0.25, "mud.": 0.0}[one] for one in sentences]


def test_the_score_is_six_tenths_tokens_and_four_tenths_words(monkeypatch):
    monkeypatch.setattr(evidence, "NOT_FOUND", 1)
    ((*mixed,),) = chosen("sea", [Document("a", "", "sea up. sea both. sea away. fog. mud.")], 5, similar)
    assert {sentence.text: sentence.score for sentence in mixed} == pytest.approx(
        {"sea up.": 1, "sea both.": 0.7, "sea away.": 0.4, "fog.": 0.15}, abs=1e-6
    )


@pytest.mark.parametrize("answer", [[0.5], [0.5, 0.5, 1.5], [0.5, float("nan"), 0.1]])
def test_scores_that_make_no_sense_are_an_error(answer):
    with pytest.raises(InvalidData):
        chosen("cost", [HEART], 1, lambda claim, sentences: answer)


def test_hostile_text_is_read_and_keeps_its_offsets(match):
    text = "The sea \ud83d rises\0 fast. " + "x" * 20_000 + " . 🌊 The sea is wet."
    (sentences,) = chosen("the sea rises \ud83d", [Document("a", "", text)], 3, match)
    assert sentences[0].text == "The sea \ud83d rises\0 fast."
    assert all(text[s.start : s.end] == s.text for s in sentences)
