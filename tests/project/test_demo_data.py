"""The sample corpus and the sample claims are well formed and agree with each other."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ccheck.demo import CLAIMS, CORPUS

DOCUMENT_FIELDS = {"_id", "title", "text", "year", "first_author", "journal", "doi", "topic"}
CLAIM_FIELDS = {"_id", "text", "label", "evidence"}
TOPICS = {"climate", "health", "nutrition", "energy"}
EVIDENCE_LABELS = {"SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO"}
CLAIM_LABELS = EVIDENCE_LABELS | {"CONFLICTING"}
DOI = re.compile(r"10\.\d{4,9}/\S+")


def _load(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _verdict(labels: list[str]) -> str:
    decided = set(labels) - {"NOT_ENOUGH_INFO"}
    return "CONFLICTING" if len(decided) > 1 else decided.pop() if decided else "NOT_ENOUGH_INFO"


DOCUMENTS = _load(CORPUS)
CLAIM_ROWS = _load(CLAIMS)

each_claim = pytest.mark.parametrize("claim", CLAIM_ROWS, ids=[str(row.get("_id")) for row in CLAIM_ROWS])


def test_corpus_is_large_enough_and_covers_every_topic() -> None:
    topics = Counter(row["topic"] for row in DOCUMENTS)
    assert len(DOCUMENTS) >= 60 and set(topics) == TOPICS and min(topics.values()) >= 12
    for key in ("_id", "doi", "title", "text"):
        assert len({row[key].casefold() for row in DOCUMENTS}) == len(DOCUMENTS), key


def test_documents_are_complete_and_short() -> None:
    for row in DOCUMENTS:
        assert set(row) == DOCUMENT_FIELDS and row["_id"].endswith(f"-{row['year']}")
        assert DOI.fullmatch(row["doi"]) and 90 <= len(row["text"].split()) <= 170, row["_id"]


def test_there_are_twenty_claims_with_every_verdict() -> None:
    assert [row["_id"] for row in CLAIM_ROWS] == [str(number) for number in range(1, 21)]
    assert len({row["text"].casefold() for row in CLAIM_ROWS}) == 20
    assert (CLAIM_ROWS[0]["text"], CLAIM_ROWS[0]["label"]) == ("sea level has risen 20 cm since 1900", "SUPPORTS")
    assert {row["label"] for row in CLAIM_ROWS} == CLAIM_LABELS


@each_claim
def test_claim_is_well_formed_and_its_label_follows_from_its_evidence(claim: dict[str, Any]) -> None:
    assert set(claim) == CLAIM_FIELDS and isinstance(claim["text"], str) and claim["text"]
    assert claim["text"] == " ".join(claim["text"].split()) and 1 <= len(claim["evidence"]) <= 4
    for evidence in claim["evidence"]:
        assert set(evidence) == {"doc_id", "label"} and evidence["label"] in EVIDENCE_LABELS
    cited = [evidence["doc_id"] for evidence in claim["evidence"]]
    assert len(set(cited)) == len(cited) and set(cited) <= {row["_id"] for row in DOCUMENTS}
    assert claim["label"] == _verdict([evidence["label"] for evidence in claim["evidence"]])
