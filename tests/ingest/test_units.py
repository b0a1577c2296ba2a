"""Documents cut into units: places, coverage, vectors, and ingests that make them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from memory_store import MemoryStore
from tiny_embedder import TinyEmbedder

from ccheck.core.analysis import count_words
from ccheck.core.errors import UsageError
from ccheck.core.layout import Layout, UnitField
from ccheck.core.types import Unit
from ccheck.ingest import Encoders, IngestOptions, dry_run, encoders_of, ingest, layout_of
from ccheck.ingest.passages import cut_units

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


def sentence(first: str, words: int) -> str:
    return f"{first} {' '.join(['word'] * (words - 2))} end."


def test_sentences() -> None:
    text = "Ice melts (Fig. 2, by 3.2 cm).  Seas rise.\n\nAnd so on"
    assert texts(text, UnitField("sentence")) == ["Ice melts (Fig. 2, by 3.2 cm).", "Seas rise.", "And so on"]


def test_paragraphs_end_at_blank_lines() -> None:
    text = "One.\nStill one. \n \t\n\n Two.\n\n\n\nThree"
    assert texts(text, UnitField("paragraph")) == ["One.\nStill one.", "Two.", "Three"]
    assert texts("No blank line.\nNone.", UnitField("paragraph")) == ["No blank line.\nNone."]


def test_windows_are_whole_sentences_that_repeat_words_of_the_one_before() -> None:
    a, b, c, d = (sentence(name, 6) for name in ("Alpha", "Beta", "Gamma", "Delta"))
    text = f"{a} {b}\n\n{c} {d}"
    assert texts(text, UnitField("window", 20, 6)) == [f"{a} {b}\n\n{c}", f"{c} {d}"]
    assert texts(text, UnitField("window", 20, 0)) == [f"{a} {b}\n\n{c}", d]
    assert texts(text, UnitField("window", 24, 0)) == [text]


def test_a_sentence_longer_than_a_window_is_cut_between_words() -> None:
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


# -- at ingest


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "a.jsonl"
    rows = [{"_id": str(n), "title": f"T{n}", "text": f"Paper {n} is here. Ice melts.\n\nSeas rise."} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def options(tmp_path: Path) -> IngestOptions:
    return IngestOptions(cache_dir=tmp_path / "cache")


def encoders(embedder: TinyEmbedder | None) -> Encoders:
    dense = encoders_of(embedder).dense
    spec = embedder.spec if embedder is not None else None
    units = {"sentences": UnitField("sentence", embedding=spec), "paragraphs": UnitField("paragraph")}
    return Encoders(dense, units=units)


def test_an_ingest_makes_units_and_embeds_each_text_once(corpus: str, options: IngestOptions) -> None:
    store, embedder = MemoryStore(), TinyEmbedder()
    made = encoders(embedder)
    report = ingest([corpus], store, made, options)
    assert report.units == {"sentences": 9, "paragraphs": 6} and report.passages == 3
    assert store.layout == layout_of(made) and store.layout.units == made.units
    assert Layout.from_dict(json.loads(json.dumps(store.layout.to_dict()))) == store.layout
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


def test_units_need_no_vectors(corpus: str, options: IngestOptions) -> None:
    store = MemoryStore()
    ingest([corpus], store, encoders(None), options)
    assert [one.vector for one in store.entries["1"].units["sentences"]] == [None] * 3


def test_a_store_gains_units_when_its_files_are_ingested_again(corpus: str, options: IngestOptions) -> None:
    store, embedder = MemoryStore(), TinyEmbedder()
    ingest([corpus], store, encoders_of(embedder), options)
    report = ingest([corpus], store, encoders(embedder), options)
    assert (report.updated, report.units["sentences"]) == (3, 9)


def test_vectors_of_units_are_made_by_a_model_of_the_ingest(corpus: str, options: IngestOptions) -> None:
    other = TinyEmbedder(fingerprint="e" * 64)
    with pytest.raises(UsageError, match="sentences"):
        ingest([corpus], MemoryStore(), Encoders(encoders_of(TinyEmbedder()).dense, units=encoders(other).units))


def test_a_dry_run_counts_units(corpus: str, options: IngestOptions) -> None:
    assert dry_run([corpus], options, encoders(None), n=2).units == {"sentences": (3, 3), "paragraphs": (2, 2)}
