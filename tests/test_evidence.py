"""The sentences that are shown."""

from __future__ import annotations

from ccheck.analysis import sentence_spans
from ccheck.types import Document
from ccheck.verdict import choose_sentences

TEXT = (
    "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).  It was measured by J. A. Church, i.e. by tide "
    "gauges. Does the sea rise? E. coli was not found.\nThe end"
)


def test_sentences_are_split_as_scientists_write() -> None:
    assert [TEXT[start:end] for start, end in sentence_spans(TEXT)] == [
        "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).",
        "It was measured by J. A. Church, i.e. by tide gauges.",
        "Does the sea rise?",
        "E. coli was not found.",
        "The end",
    ]
    assert sentence_spans("") == sentence_spans(" \n ") == []


def test_the_best_sentence_has_the_claims_rare_words() -> None:
    documents = [Document("a", "", TEXT), Document("b", "", "Nothing in here. Nothing at all."), Document("c", "x", "")]
    first, second, third = choose_sentences("The sea rises by 3.2 mm each year", documents, 2)
    assert second == third == ()
    assert [sentence.text for sentence in first] == [
        "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).",
        "Does the sea rise?",
    ]
    for sentence in first:
        assert TEXT[sentence.start : sentence.end] == sentence.text
        assert sentence.field == "text"
        assert 0 < sentence.score <= 1
    assert first[0].score > first[1].score


def test_a_sentence_with_all_the_claims_words_scores_one() -> None:
    ((sentence,),) = choose_sentences("coli was found", [Document("a", "", TEXT)], 1)
    assert (sentence.text, sentence.score) == ("E. coli was not found.", 1.0)


def test_offsets_count_characters() -> None:
    text = "Ünïcödé 🌊 first. The sea 🌊 rises. End."
    ((sentence,),) = choose_sentences("sea rises", [Document("a", "", text)], 1)
    assert text[sentence.start : sentence.end] == sentence.text == "The sea 🌊 rises."


def test_no_sentence_without_words_or_wish() -> None:
    documents = [Document("a", "", TEXT)]
    assert choose_sentences("the of and", documents, 3) == [()]
    assert choose_sentences("sea", documents, 0) == [()]
    assert choose_sentences("sea", [], 3) == []
