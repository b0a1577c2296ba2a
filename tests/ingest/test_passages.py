"""Cutting documents into passages."""

import gzip
import itertools
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from cli_runs import jsonl
from memory_store import MemoryStore
from tiny_embedder import TinyEmbedder, encoders_of

from ccheck.core.analysis import count_words
from ccheck.core.errors import UsageError
from ccheck.core.layout import Chunking, UnitField
from ccheck.core.types import Document, Unit
from ccheck.ingest import Encoders, IngestOptions, dry_run, ingest, layout_of
from ccheck.ingest.encoders import with_passages
from ccheck.ingest.passages import cut_passages, cut_units

CHUNKING = Chunking(longer_than=20, max_tokens=20, overlap=6)


def cut(title: str, text: str, chunking: Chunking = CHUNKING) -> list[tuple[str, str]]:
    """The passages of one document and what is embedded for each."""
    spans = cut_passages([Document("1", title, text)], TinyEmbedder().count_tokens, chunking)[0]
    return [(text[span.start : span.end], span.embedded) for span in spans]


def sentence(first: str, words: int) -> str:
    return f"{first} {' '.join(['word'] * (words - 2))} end."


def test_whole_sentences_with_overlap_and_the_title_in_each_which_takes_half_at_most() -> None:
    a, b, c, d = (sentence(name, 6) for name in ("Alpha", "Beta", "Gamma", "Delta"))
    assert cut("Title", f"{a} {b}\n\n{c} {d}") == [
        (f"{a} {b}\n\n{c}", f"Title\n{a} {b}\n\n{c}"),
        (f"{c} {d}", f"Title\n{c} {d}"),
    ]
    title = " ".join(f"t{n}" for n in range(30))
    parts = cut(title, " ".join(sentence(f"S{n}", 5) for n in range(8)))
    for part, embedded in parts:
        assert embedded == " ".join(f"t{n}" for n in range(10)) + "\n" + part
        assert len(embedded.split()) <= 20
    assert len(parts) > 3


def letters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def test_a_word_longer_than_the_window_is_a_passage_and_left_out_of_a_title() -> None:
    text = "short words " + "x" * 50 + " more words"
    spans = cut_passages([Document("1", "", text)], letters, CHUNKING)[0]
    assert [text[span.start : span.end] for span in spans] == ["short words", "x" * 50, "more words"]
    text = "Some words. And more words."
    spans = cut_passages([Document("1", "y" * 500, text)], letters, CHUNKING)[0]
    assert [span.embedded for span in spans] == ["Some words.", "And more words."]


def random_text(rng: random.Random) -> str:
    words = [*"a|Dr.|et al.|3.5|p < 0.05.|end.|Why?|“Quoted.”|naïve|日本語。|e.g.".split("|"), "x" * 40]
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


def test_encoders_that_make_no_sense(corpus: str, options: IngestOptions) -> None:
    with pytest.raises(UsageError, match="--passage-tokens needs embeddings"):
        with_passages(Encoders(), 100)
    with pytest.raises(UsageError, match=r"5000 is too many: .* reads at most"):
        with_passages(encoders_of(TinyEmbedder()), 5000)
    other = TinyEmbedder(fingerprint="e" * 64)
    with pytest.raises(UsageError, match="sentences"):
        ingest([corpus], MemoryStore(), Encoders(encoders_of(TinyEmbedder()).dense, units=encoders(other).units))


FIELDS = {
    "sentences": UnitField("sentence"),
    "paragraphs": UnitField("paragraph"),
    "windows": UnitField("window", 20, 6),
    "apart": UnitField("window", 32, 0),
}


def check(text: str, units: list[Unit], granularity: str) -> None:
    """The units say where they stand, none is empty, and together they hold all of the text but white space."""
    covered = np.zeros(len(text), bool)
    for number, unit in enumerate(units):
        assert (unit.granularity, unit.number) == (granularity, number)
        assert text[unit.start : unit.end] == unit.text == unit.text.strip() != ""
        covered[unit.start : unit.end] = True
    assert all(character.isspace() for character, held in zip(text, covered, strict=True) if not held)
    assert [unit.start for unit in units] == sorted({unit.start for unit in units})


def texts(text: str, field: UnitField) -> list[str]:
    return [unit.text for unit in cut_units(text, {"x": field})["x"]]


def test_sentences_and_paragraphs() -> None:
    text = "Ice melts (Fig. 2, by 3.2 cm).  Seas rise.\n\nAnd so on"
    assert texts(text, UnitField("sentence")) == ["Ice melts (Fig. 2, by 3.2 cm).", "Seas rise.", "And so on"]
    text = "One.\nStill one. \n \t\n\n Two.\n\n\n\nThree"
    assert texts(text, UnitField("paragraph")) == ["One.\nStill one.", "Two.", "Three"]
    assert texts("No blank line.\nNone.", UnitField("paragraph")) == ["No blank line.\nNone."]


def test_windows_are_whole_sentences_that_repeat_words_of_the_one_before_or_parts_of_a_long_one() -> None:
    a, b, c, d = (sentence(name, 6) for name in ("Alpha", "Beta", "Gamma", "Delta"))
    text = f"{a} {b}\n\n{c} {d}"
    assert texts(text, UnitField("window", 20, 6)) == [f"{a} {b}\n\n{c}", f"{c} {d}"]
    assert texts(text, UnitField("window", 20, 0)) == [f"{a} {b}\n\n{c}", d]
    assert texts(text, UnitField("window", 24, 0)) == [text]
    text = " ".join(f"word{n}" for n in range(50)) + "."
    assert [len(part.split()) for part in texts(text, UnitField("window", 20, 0))] == [20, 20, 10]
    # Ideographs are words without white space between them.
    text = "海平面上升" * 10
    assert [len(part) for part in texts(text, UnitField("window", 16, 0))] == [16, 16, 16, 2]


def test_real_abstracts_are_covered_exactly(scifact: Path) -> None:
    with gzip.open(scifact / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        abstracts = [json.loads(line)["text"].strip() for line in file]
    abstracts = random.Random(5).sample(abstracts, 400)
    for number in range(0, 400, 10):  # as full texts have them
        abstracts[number] = "\n\n".join(abstracts[number : number + 5])
    for text in abstracts:
        units = cut_units(text, FIELDS)
        assert list(units) == list(FIELDS)
        for name, some in units.items():
            check(text, some, name)
        for name in ("windows", "apart"):
            for unit in units[name]:
                # Only a run without white space is longer, such as "IL-2/IL-4/...".
                assert count_words(unit.text) <= FIELDS[name].tokens or not any(map(str.isspace, unit.text))
        starts = {unit.start for unit in units["sentences"]}
        short = [unit for unit in units["sentences"] if count_words(unit.text) <= 32]
        assert len(short) < len(units["sentences"]) or {unit.start for unit in units["apart"]} <= starts
        ends = [unit.end for unit in units["apart"]]
        assert all(start >= end for start, end in zip([unit.start for unit in units["apart"]][1:], ends, strict=False))


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    rows = [{"_id": str(n), "title": f"T{n}", "text": f"Paper {n} is here. Ice melts.\n\nSeas rise."} for n in range(3)]
    return str(jsonl(tmp_path / "a.jsonl", *rows))


@pytest.fixture
def options(tmp_path: Path) -> IngestOptions:
    return IngestOptions(cache_dir=tmp_path / "cache")


def encoders(embedder: TinyEmbedder | None) -> Encoders:
    dense = encoders_of(embedder).dense if embedder is not None else ()
    spec = embedder.spec if embedder is not None else None
    units = {"sentences": UnitField("sentence", embedding=spec), "paragraphs": UnitField("paragraph")}
    return Encoders(dense, units=units)


def test_an_ingest_makes_units_and_embeds_each_text_once(corpus: str, options: IngestOptions) -> None:
    store, embedder = MemoryStore(), TinyEmbedder()
    made = encoders(embedder)
    report = ingest([corpus], store, made, options)
    assert report.units == {"sentences": 9, "paragraphs": 6} and report.passages == 3
    assert store.layout == layout_of(made) and store.layout.units == made.units
    entry = store.entries["1"]
    for name, some in entry.units.items():
        check(entry.document.text, [one.unit for one in some], name)
    assert [one.unit.text for one in entry.units["sentences"]] == ["Paper 1 is here.", "Ice melts.", "Seas rise."]
    for one in entry.units["sentences"]:
        assert np.array_equal(one.vector, embedder.vector(one.unit.text))
    assert all(one.vector is None for one in entry.units["paragraphs"])
    assert sorted(embedder.embedded) == sorted(set(embedder.embedded)) and len(embedder.embedded) == 3 + 3 + 2
    again = TinyEmbedder()
    ingest([corpus], MemoryStore(), encoders(again), options)
    assert again.embedded == []
    assert dry_run([corpus], options, encoders(None), n=2).units == {"sentences": (3, 3), "paragraphs": (2, 2)}


def test_a_store_gains_units_and_then_their_vectors_when_its_files_are_ingested_again(corpus, options) -> None:
    store = MemoryStore()
    ingest([corpus], store, None, options)
    for embedder, vectors in ((None, 0), (TinyEmbedder(), 3)):
        report = ingest([corpus], store, encoders(embedder), options)
        assert (report.updated, report.units["sentences"]) == (3, 9)
        assert sum(one.vector is not None for one in store.entries["1"].units["sentences"]) == vectors
