"""Cutting documents into passages."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence

import pytest
from tiny_embedder import TinyEmbedder

from ccheck.core.errors import UsageError
from ccheck.core.layout import Chunking
from ccheck.core.types import Document
from ccheck.ingest.encoders import Encoders, encoders_of, with_passages
from ccheck.ingest.passages import cut_passages

CHUNKING = Chunking(longer_than=20, max_tokens=20, overlap=6)


def cut(title: str, text: str, chunking: Chunking = CHUNKING) -> list[tuple[str, str]]:
    """The passages of one document and what is embedded for each."""
    spans = cut_passages([Document("1", title, text)], TinyEmbedder().count_tokens, chunking)[0]
    return [(text[span.start : span.end], span.embedded) for span in spans]


def sentence(first: str, words: int) -> str:
    return f"{first} {' '.join(['word'] * (words - 2))} end."


def test_a_document_within_the_limit_is_one_passage() -> None:
    text = sentence("Short", 18)
    assert cut("A title", text) == [(text, f"A title\n{text}")]
    assert cut("", text) == [(text, text)]
    assert len(cut("A longer title", text)) == 2


def test_whole_sentences_with_overlap_and_the_title_in_each() -> None:
    a, b, c, d = (sentence(name, 6) for name in ("Alpha", "Beta", "Gamma", "Delta"))
    assert cut("Title", f"{a} {b}\n\n{c} {d}") == [
        (f"{a} {b}\n\n{c}", f"Title\n{a} {b}\n\n{c}"),
        (f"{c} {d}", f"Title\n{c} {d}"),
    ]


def letters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def test_a_word_that_is_longer_than_the_window_is_a_passage() -> None:
    text = "short words " + "x" * 50 + " more words"
    spans = cut_passages([Document("1", "", text)], letters, CHUNKING)[0]
    assert [text[span.start : span.end] for span in spans] == ["short words", "x" * 50, "more words"]


def test_a_long_title_takes_half_at_most() -> None:
    title = " ".join(f"t{n}" for n in range(30))
    parts = cut(title, " ".join(sentence(f"S{n}", 5) for n in range(8)))
    for part, embedded in parts:
        assert embedded == " ".join(f"t{n}" for n in range(10)) + "\n" + part
        assert len(embedded.split()) <= 20
    assert len(parts) > 3


def test_a_title_of_one_endless_word_is_left_out() -> None:
    text = "Some words. And more words."
    spans = cut_passages([Document("1", "y" * 500, text)], letters, CHUNKING)[0]
    assert [span.embedded for span in spans] == ["Some words.", "And more words."]


def random_text(rng: random.Random) -> str:
    words = [
        "a",
        "Dr.",
        "et al.",
        "3.5",
        "p < 0.05.",
        "end.",
        "Why?",
        "“Quoted.”",
        "naïve",
        "日本語。",
        "x" * 40,
        "e.g.",
    ]
    spaces = [" ", " ", " ", "\n", "\n\n", "\t", "\u00a0", "\u2003", "  "]
    return "".join(rng.choice(words) + rng.choice(spaces) for _ in range(rng.randrange(120))).strip()


@pytest.mark.parametrize("seed", range(150))
def test_nothing_is_lost_and_nothing_is_too_long(seed: int) -> None:
    rng = random.Random(seed)
    most = rng.randrange(4, 30)
    chunking = Chunking(rng.randrange(0, 60), most, rng.randrange(0, most))
    documents = [
        Document(str(n), " ".join(["Title"] * rng.randrange(12)), random_text(rng)) for n in range(rng.randrange(1, 6))
    ]
    count_tokens = TinyEmbedder().count_tokens
    for document, spans in zip(documents, cut_passages(documents, count_tokens, chunking), strict=True):
        text = document.text
        whole = f"{document.title}\n{text}" if document.title and text else document.title or text
        if count_tokens([whole])[0] <= chunking.longer_than:
            assert [(span.start, span.end, span.embedded) for span in spans] == [(0, len(text), whole)]
            continue
        covered = set()
        for span in spans:
            passage = text[span.start : span.end]
            assert passage == passage.strip() != ""
            assert span.embedded.endswith(passage)
            assert count_tokens([span.embedded])[0] <= most
            # never from or to the middle of a word, as long as no sentence ends there; an ideograph is a word
            assert not re.match(r"[a-zï]{2}", text[span.end - 1 : span.end + 1])
            covered.update(range(span.start, span.end))
        assert all(text[n].isspace() for n in range(len(text)) if n not in covered)
        # in the order of the text, each with something new
        assert [span.start for span in spans] == sorted({span.start for span in spans})
        assert [span.end for span in spans] == sorted({span.end for span in spans})
        for before, after in itertools.pairwise(spans):
            if after.start < before.end:
                assert count_tokens([text[after.start : before.end]])[0] <= chunking.overlap


def test_longest_passages_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="--passage-tokens needs embeddings"):
        with_passages(Encoders(), 100)
    with pytest.raises(UsageError, match=r"5000 is too many: .* reads at most"):
        with_passages(encoders_of(TinyEmbedder()), 5000)
