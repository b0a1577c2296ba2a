"""Labelled pairs of the data sets, each with what the packaged stance model reads of it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from stance_trials import DOWN, SAME, UP, claim_that

from ccheck.core.analysis import clean
from ccheck.core.types import Document
from ccheck.lab.measure.pairs import StanceRow, read_rows
from ccheck.verdict.labels import STANCES
from ccheck.verdict.packaged_model import as_read, nearest

SUPPORTS, REFUTES, OPEN = range(len(STANCES))
NOT_SUPPORTED = len(STANCES)
"""The label of a made pair that is refuted or open."""
FEVER_HELD = 800
BACKGROUND = ("objective", "background", "methods")
GROUPS = {
    "abstracts": ("SciFact", "PubMedQA", "PubMedQA, no conclusion"),
    "climate": ("Climate-FEVER",),
    "trials": ("findings of trials", "CliniFact"),
}
"""Data sets that are left out together, because they are alike."""
WRITTEN, CHECKER, DEMO = "written claims", "claims as people make them", "claims about the demo's papers"
LATER = "claims written after all was chosen"
MEASURED_ONLY = ("COVID-Fact", CHECKER, DEMO, LATER)


class Pair(NamedTuple):
    """A claim, what is read of its evidence, the label's place in STANCES or NOT_SUPPORTED, and how much it counts."""

    claim: str
    evidence: str
    label: int
    weight: float = 1.0


@dataclass(frozen=True)
class Part:
    """The pairs of a data set: rows, what is read of each document, labels."""

    rows: list[StanceRow]
    near: list[str]
    labels: NDArray[np.int64]

    def of(self, mask: NDArray[np.bool_]) -> Part:
        rows = [row for row, one in zip(self.rows, mask, strict=True) if one]
        near = [text for text, one in zip(self.near, mask, strict=True) if one]
        return Part(rows, near, self.labels[mask])

    def pairs(self) -> list[Pair]:
        return [
            Pair(clean(row.claim), said, int(label))
            for row, said, label in zip(self.rows, self.near, self.labels, strict=True)
        ]

    def held(self, chosen: Set[str] = frozenset()) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Masks of a fifth of the claims, or of the documents `chosen`, and of the pairs that share neither claim nor
        document with these."""
        claims, documents = ([getattr(row, name) for row in self.rows] for name in ("claim", "doc_id"))
        claims = documents if chosen else claims
        chosen = chosen or a_fifth(claims)
        asked = np.array([one in chosen for one in claims])
        seen = {one for one, held in zip(documents, asked, strict=True) if held}
        return asked, ~asked & np.array([one not in seen for one in documents])


def a_fifth(names: Sequence[str]) -> set[str]:
    each = sorted(set(names))
    random.Random(5).shuffle(each)
    return set(each[: len(each) // 5])


def read_parts(folder: Path) -> dict[str, Part]:
    """The data sets by name."""
    return {name: part_of(rows) for name, rows in _rows(folder).items()}


def part_of(rows: list[StanceRow]) -> Part:
    near = [read_of(row, row.text) for row in rows]
    return Part(rows, near, np.array([STANCES.index(row.label) for row in rows]))


def read_of(row: StanceRow, text: str) -> str:
    """What the reader gets of a text for the claim of a row."""
    return as_read(row.claim, nearest(row.claim, Document(row.doc_id, row.title, text)))[1]


def _rows(folder: Path) -> dict[str, list[StanceRow]]:
    made = {
        "SciFact": list(read_rows(folder / "scifact/verdicts.jsonl", folder / "scifact/corpus.jsonl.gz").rows),
        "Climate-FEVER": climate_rows(folder)[0],
        "FEVER": fever_rows(folder)[:FEVER_HELD],
    }
    questions, draw = questions_of_trials(folder), random.Random(3)
    found = [
        StanceRow(
            claim_that(question, way, draw),
            evidence_of(question),
            "SUPPORTS" if way == question["label"] else "REFUTES",
            question["id"],
            question["article"],
        )
        for question in questions
        for way in (UP, DOWN, SAME)
    ]
    some = _drawn([row.claim_id for row in found], 700)
    made["findings of trials"] = [row for row in found if row.claim_id in some]
    made["CliniFact"] = [
        StanceRow(row["claim"], row["evidence"], row["label"], row["id"], f"{row['trial']}|{row['evidence'][:60]}")
        for row in _read(folder / "clinical/clinifact.jsonl")
    ]
    asked = _read(folder / "clinical/pubmedqa.jsonl")
    for name, ends in (("PubMedQA", True), ("PubMedQA, no conclusion", False)):
        made[name] = [
            StanceRow(
                row["claim"],
                f"{row['evidence']} {row['conclusion']}" if ends else row["evidence"],
                row["label"],
                row["id"],
                row["id"],
            )
            for row in asked
        ]
    covid = _read(folder / "clinical/covidfact.jsonl")
    some = _drawn([row["source"] for row in covid], 300)
    made["COVID-Fact"] = [
        StanceRow(row["claim"], row["evidence"], row["label"], row["source"], row["source"])
        for row in covid
        if row["source"] in some
    ][:900]
    return made


def climate_rows(folder: Path) -> tuple[list[StanceRow], list[StanceRow]]:
    """Climate-FEVER's pairs: of the 560 claims that are measured, and of those that are only learned from."""
    rows = list(read_rows(folder / "climate-fever/claims.jsonl.gz").rows)
    some = _drawn([row.claim for row in rows], 560)
    return [row for row in rows if row.claim in some], [row for row in rows if row.claim not in some]


def fever_rows(folder: Path) -> list[StanceRow]:
    """FEVER's pairs; no reader learns from the first `FEVER_HELD`."""
    rows = list(read_rows(folder / "fever/pairs.jsonl.gz").rows)
    random.Random(0).shuffle(rows)
    return rows


def questions_of_trials(folder: Path) -> list[dict[str, Any]]:
    return _read(folder / "clinical/evidence-inference.jsonl")


def abstracts_of_trials(folder: Path) -> list[dict[str, Any]]:
    return _read(folder / "clinical/abstract-roles.jsonl")


def evidence_of(question: dict[str, Any]) -> str:
    """The sentences that say what was found."""
    return " ".join(f"{text.strip().rstrip('.')}." for text in question["evidence"])


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _drawn(names: Sequence[str], most: int) -> set[str]:
    return set(random.Random(9).sample(sorted(set(names)), min(most, len(set(names)))))
