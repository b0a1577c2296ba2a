"""The sentences that are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from runtimes import on_cpu

from ccheck.core.analysis import sentence_spans
from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import Document, Sentence
from ccheck.encode.dense import DEFAULT_MODEL, load_embedder
from ccheck.rerank.open import open_matcher
from ccheck.verdict.evidence import EMBEDDED_SENTENCES, Rerank, choose_sentences

TEXT = (
    "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).  It was measured by J. A. Church, i.e. by tide "
    "gauges. Does the sea rise? E. coli was not found.\nThe end"
)


def chosen(claim: str, documents: Sequence[Document], *options: Any, **named: Any) -> list[tuple[Sentence, ...]]:
    """The sentences of one claim's documents."""
    return choose_sentences([(claim, documents)], *options, **named)[0]


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


def test_a_question_counts_half() -> None:
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
    assert (asked.score, told.score) == (0.5, 1.0)


def test_a_sentence_with_all_the_claims_words_scores_one() -> None:
    ((sentence,),) = chosen("coli was found", [Document("a", "", TEXT)], 1)
    assert (sentence.text, sentence.score) == ("E. coli was not found.", 1.0)


def test_offsets_count_characters() -> None:
    text = "Ünïcödé 🌊 first. The sea 🌊 rises. End."
    ((sentence,),) = chosen("sea rises", [Document("a", "", text)], 1)
    assert text[sentence.start : sentence.end] == sentence.text == "The sea 🌊 rises."


def test_no_sentence_without_words_or_wish() -> None:
    documents = [Document("a", "", TEXT)]
    assert chosen("the of and", documents, 3) == [()]
    assert chosen("sea", documents, 0) == [()]
    assert chosen("sea", [], 3) == []


class Embedding:
    """MiniLM, with what it was asked."""

    def __init__(self) -> None:
        self.model = load_embedder(DEFAULT_MODEL, on_cpu())
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        return self.model.encode_documents(texts)


@pytest.fixture(scope="module")
def minilm() -> Embedding:
    return Embedding()


HEART = Document("h", "", "Heart attacks were rarer. The cost was moderate. Patients went home after a week.")


@pytest.fixture(scope="module")
def match() -> Rerank:
    """The comparison of tokens that ccheck has."""
    made = open_matcher(Runtime(Settings()))
    assert made is not None
    return made


def test_a_model_finds_a_sentence_in_other_words(minilm, match):
    claim = "Fewer myocardial infarctions"
    assert chosen(claim, [HEART], 1) == chosen(claim, [HEART], 1, "mix") == [()]
    for method in ("mix", "embedding"):
        ((sentence,),) = chosen(claim, [HEART], 1, method, minilm, match=match)
        assert sentence.text == "Heart attacks were rarer." == HEART.text[sentence.start : sentence.end]
        assert 0 < sentence.score <= 1
    ((exact,),) = chosen("The cost was moderate.", [HEART], 1, "embedding", minilm)
    assert exact.score == pytest.approx(1, abs=0.01)


def test_many_claims_are_embedded_in_one_call_and_equal_sentences_once(minilm):
    documents = [HEART, Document("copy", "", HEART.text), Document("empty", "", "")]
    minilm.calls.clear()
    cases = [("Fewer myocardial infarctions", documents), ("Patients went home early", documents[:1])]
    first, second = choose_sentences(cases, 2, "embedding", minilm)
    (read,) = minilm.calls
    sentences = ["Heart attacks were rarer.", "The cost was moderate.", "Patients went home after a week."]
    assert sorted(read) == sorted([*sentences, *(claim for claim, _ in cases)])
    assert first[0] == first[1] and first[2] == ()
    assert second[0][0].text == "Patients went home after a week."
    # Nothing to read, nothing to ask.
    minilm.calls.clear()
    assert choose_sentences([("claim", [documents[2]]), ("claim", [])], 2, "embedding", minilm) == [[()], []]
    assert minilm.calls == []


def test_each_claim_is_matched_in_one_call_as_if_it_were_alone(match):
    asked: list[tuple[str, Sequence[str]]] = []

    def told(claim: str, sentences: Sequence[str]) -> Sequence[float]:
        asked.append((claim, sentences))
        return match(claim, sentences)

    documents = [HEART, Document("copy", "", HEART.text), Document("empty", "", "")]
    cases = [("Fewer myocardial infarctions", documents), ("Patients went home early", documents[:1]), ("none", [])]
    made = choose_sentences(cases, 2, "mix", match=told)
    assert [(claim, len(sentences)) for claim, sentences in asked] == [(cases[0][0], 3), (cases[1][0], 3)]
    assert made[0][0] == made[0][1] and made[0][2] == () and made[2] == []
    assert made == [choose_sentences([case], 2, "mix", match=match)[0] for case in cases]


WAYS = {
    "sea": (1, 0),
    "up": (1, 0),
    "down": (0, 1),
    "sea up.": (1, 0),
    "sea down.": (0, 1),
    "sea both.": (0.6, 0.8),
    "sea away.": (-1, 0),
}


def pointing(texts: Sequence[str]) -> np.ndarray:
    """Vectors that say which way a text points."""
    return np.array([WAYS[text] for text in texts], np.float32)


def scores(sentences: Sequence[Sentence]) -> dict[str, float]:
    return {sentence.text: sentence.score for sentence in sentences}


@pytest.mark.parametrize("given", [False, True])
def test_each_claim_is_compared_by_its_own_vector(given):
    document = Document("a", "", "sea up. sea down.")
    claims = ["up", "down", "up"]
    vectors = pointing(claims) if given else None
    made = choose_sentences([(c, [document]) for c in claims], 2, "embedding", pointing, claim_vectors=vectors)
    up, down = {"sea up.": 1.0}, {"sea down.": 1.0}
    assert [scores(one) for (one,) in made] == [up, down, up]
    # One with nothing to read shifts nobody's vector.
    cases = [("down", []), ("up", [document])]
    vectors = pointing(["down", "up"]) if given else None
    assert scores(choose_sentences(cases, 2, "embedding", pointing, claim_vectors=vectors)[1][0]) == up


def test_claims_whose_vectors_are_known_are_not_embedded():
    asked: list[str] = []

    def embed(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return pointing(texts)

    cases = [("up", [Document("a", "", "sea up.")])]
    choose_sentences(cases, 1, "embedding", embed, claim_vectors=pointing(["down"]))
    assert asked == ["sea up."]


def similar(claim: str, sentences: Sequence[str]) -> list[float]:
    return [{"sea up.": 1.0, "sea both.": 0.5, "sea away.": 0.0, "fog.": 0.25}[one] for one in sentences]


def test_the_mix_is_six_tenths_tokens_and_four_tenths_words():
    document = Document("a", "", "sea up. sea both. sea away. fog.")
    ((*mixed,),) = chosen("sea", [document], 4, "mix", pointing, match=similar)
    assert scores(mixed) == pytest.approx({"sea up.": 1, "sea both.": 0.7, "sea away.": 0.4, "fog.": 0.15}, abs=1e-6)
    text = "sea up. sea both. sea away."
    ((*alone,),) = chosen("sea", [Document("a", "", text)], 3, "embedding", pointing)
    # What points away is left out, as what shares nothing is.
    assert scores(alone) == pytest.approx({"sea up.": 1.0, "sea both.": 0.6}, abs=1e-6)
    ((*words,),) = chosen("sea", [Document("a", "", text)], 3, "lexical", pointing)
    assert scores(words) == dict.fromkeys(["sea up.", "sea both.", "sea away."], 1.0)


def test_of_a_long_document_an_embedding_model_reads_only_the_nearest_sentences():
    text = " ".join(f"Number {number} is about frogs in the pond." for number in range(100)) + " The sea rises."
    asked: list[str] = []

    def embed(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[1.0, 0.0]] * len(texts), np.float32)

    chosen("The sea rises fast", [Document("a", "", text)], 1, "embedding", embed)
    assert len(asked) == 1 + EMBEDDED_SENTENCES and "The sea rises." in asked


def test_the_reranker_chooses_by_its_own_scores():
    asked = []

    def by_length(claim: str, sentences: Sequence[str]) -> list[float]:
        asked.append((claim, list(sentences)))
        return [len(sentence) / 1000 for sentence in sentences]

    documents = [HEART, Document("b", "", "Does it rain much in this part of the country in the month of May? No.")]
    first, second = chosen("cost", documents, 1, "reranker", rerank=by_length)
    assert len(asked) == 1 and asked[0][0] == "cost" and len(asked[0][1]) == 5
    assert first[0].text == "Patients went home after a week." and first[0].score == len(first[0].text) / 1000
    assert second[0].score == len(second[0].text) / 2000  # a question


def test_other_methods_leave_the_reranker_alone():
    def never(claim: str, sentences: Sequence[str]) -> list[float]:
        raise AssertionError

    for method in ("lexical", "mix"):
        ((sentence,),) = chosen("sea", [Document("a", "", "sea up.")], 1, method, pointing, never)
        assert sentence.score == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("answer", [[0.5], [0.5, 0.5, 1.5], [0.5, float("nan"), 0.1]])
def test_scores_that_make_no_sense_are_an_error(answer):
    with pytest.raises(InvalidData, match="one for each"):
        chosen("cost", [HEART], 1, "reranker", rerank=lambda claim, sentences: answer)
    with pytest.raises(InvalidData, match="the comparison of tokens"):
        chosen("cost", [HEART], 1, "mix", match=lambda claim, sentences: answer)


@pytest.mark.parametrize("vectors", [np.zeros((1, 4)), np.full((4, 4), np.nan)])
def test_vectors_that_make_no_sense_are_an_error(vectors):
    with pytest.raises(InvalidData, match="not finite"):
        chosen("cost", [HEART], 1, "embedding", lambda texts: vectors)


@pytest.mark.parametrize("method", ["embedding", "reranker"])
def test_a_method_without_its_model_is_an_error(method):
    with pytest.raises(UsageError, match="none is available"):
        chosen("cost", [HEART], 1, method)


def test_hostile_text_is_read_and_keeps_its_offsets(match):
    text = "The sea \ud83d rises\0 fast. " + "x" * 20_000 + " . 🌊 The sea is wet."
    (sentences,) = chosen("the sea rises \ud83d", [Document("a", "", text)], 3, "mix", match=match)
    assert sentences[0].text == "The sea \ud83d rises\0 fast."
    assert all(text[s.start : s.end] == s.text for s in sentences)
