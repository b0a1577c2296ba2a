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
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DOI = re.compile(r"10\.\d{4,9}/\S+")
SENTENCE_END = re.compile(r"[.?!](?=\s+[A-Z]|$)")


def _load(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        assert isinstance(row, dict)
        rows.append(row)
    return rows


def _verdict(labels: list[str]) -> str:
    if "SUPPORTS" in labels and "REFUTES" in labels:
        return "CONFLICTING"
    if "SUPPORTS" in labels:
        return "SUPPORTS"
    if "REFUTES" in labels:
        return "REFUTES"
    return "NOT_ENOUGH_INFO"


DOCUMENTS = _load(CORPUS)
CLAIM_ROWS = _load(CLAIMS)

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=[str(row.get("_id")) for row in DOCUMENTS])
each_claim = pytest.mark.parametrize("claim", CLAIM_ROWS, ids=[str(row.get("_id")) for row in CLAIM_ROWS])


@pytest.mark.parametrize("path", [CORPUS, CLAIMS], ids=["corpus", "claims"])
def test_files_are_json_lines(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")
    assert text.endswith("\n") and "\r" not in text
    assert all(line.strip() for line in text.splitlines())


def test_corpus_is_large_enough_and_covers_every_topic() -> None:
    topics = Counter(row["topic"] for row in DOCUMENTS)
    assert len(DOCUMENTS) >= 60 and set(topics) == TOPICS and min(topics.values()) >= 12
    for key in ("_id", "doi", "title", "text"):
        assert len({row[key].casefold() for row in DOCUMENTS}) == len(DOCUMENTS), key


@each_document
def test_document_is_well_formed(document: dict[str, Any]) -> None:
    assert set(document) == DOCUMENT_FIELDS
    for field in DOCUMENT_FIELDS - {"year"}:
        value = document[field]
        assert isinstance(value, str) and value and value == " ".join(value.split()), field
    assert SLUG.fullmatch(document["_id"]) and document["_id"].endswith(f"-{document['year']}")
    assert type(document["year"]) is int and 1890 <= document["year"] <= 2026
    assert DOI.fullmatch(document["doi"]) and not document["doi"].endswith((".", ",", "/"))
    assert 90 <= len(document["text"].split()) <= 170
    assert 5 <= len(SENTENCE_END.findall(document["text"])) <= 8


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
