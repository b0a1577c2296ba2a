"""Labelled pairs of claim and document, read from the files of data sets: what stance models learn from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.errors import InvalidData, UsageError
from ...core.types import Claim, Label
from ...ingest.rows import take_all
from ...verdict.labels import STANCES, parse_label
from ..measure.datasets import read_corpus
from .split import Split, split_by_claim, split_by_document

_COLUMNS = frozenset(
    ("claim", "evidence", "label", "doc_id", "claim_id", "annotation", "abstract", "text", "title", "_id", "id")
)
_LABELS = ("label", "annotation", "stance", "verdict")
_EVIDENCE = ("evidence", "abstract", "text")
_CLAIM_IDS = ("claim_id", "query-id", "query_id", "id", "_id")
_DOCUMENT_IDS = ("doc_id", "document_id", "corpus-id", "abstract_id", "abstract_original_index", "docid")


@dataclass(frozen=True, slots=True)
class StanceRow:
    """A claim, a document, and what the document says about the claim.

    `claim_id` and `doc_id` are the data's own, else made of the texts. `sentences` are the numbers, from 0, of the
    sentences by which the label was given, where the data say: the other sentences leave the claim open.
    """

    claim: str
    text: str
    label: Label
    claim_id: str
    doc_id: str
    title: str = ""
    sentences: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StanceRows:
    """The rows of a file. `skipped` counts labels that no single document can have (conflicting evidence)."""

    rows: tuple[StanceRow, ...]
    skipped: int = 0

    def describe(self) -> str:
        counts = Counter(row.label for row in self.rows)
        said = f"{len(self.rows):,} pairs (" + ", ".join(f"{counts[label]:,} {label}" for label in STANCES) + ")"
        return said + (f"; {self.skipped:,} left out, because their evidence conflicts" if self.skipped else "")


def read_rows(path: str | os.PathLike[str], corpus: str | os.PathLike[str] | None = None) -> StanceRows:
    """The labelled pairs of a file, plain or compressed; JSON Lines, CSV, TSV or Parquet.

    A record is one of: `claim`, `evidence` (or `abstract`, `text`), `label` in any known spelling, and `doc_id`,
    `claim_id`, `title` where there are such; SciFact's verdicts or its own claims, whose documents are in `corpus`;
    Climate-FEVER's claims with `evidences`; AVeriTeC's with `questions`, whose answers together are the document.

    Raises NotFound, MissingExtra (Parquet), or InvalidData with line numbers and reasons.
    """
    documents = read_documents(corpus) if corpus is not None else None
    found: list[StanceRow] = []
    take_all(path, _COLUMNS, lambda record, _: found.extend(_rows(record.data, documents)))
    rows = tuple(row for row in found if row.label in STANCES)
    if not rows:
        raise InvalidData(f"{os.fspath(path)} contains no labelled pairs. Each record needs claim, evidence and label")
    return StanceRows(rows, len(found) - len(rows))


def read_documents(path: str | os.PathLike[str]) -> dict[str, tuple[str, str]]:
    """Title and text of each document of a corpus file, by id. Raises as `read_corpus`, and for a record that is not a
    document."""
    corpus = read_corpus(path)
    if corpus.rejected:
        raise InvalidData(corpus.rejected[0])
    return {id_: (document.title, document.text) for id_, document in corpus.documents.items()}


def split_rows(
    rows: Sequence[StanceRow], kind: str = "document", dev_share: float = 0.2, seed: int = 0
) -> tuple[list[StanceRow], list[StanceRow], Split]:
    """Rows to learn from and to measure on, of different claims and, by `document`, of different documents.

    Raises as `split_by_document`, and UsageError for another kind than `document` and `claim`.
    """
    if kind not in ("document", "claim"):
        raise UsageError(f"unknown split {kind!r}. Choose document or claim")
    claims: dict[str, Claim] = {}
    qrels: dict[str, dict[str, float]] = {}
    for row in rows:
        claims.setdefault(row.claim_id, Claim(row.claim, row.claim_id))
        qrels.setdefault(row.claim_id, {})[row.doc_id] = 1.0
    split = (split_by_document if kind == "document" else split_by_claim)(list(claims.values()), qrels, dev_share, seed)
    train, dev = ({claim.id for claim in part} for part in (split.train_claims, split.dev_claims))
    return [row for row in rows if row.claim_id in train], [row for row in rows if row.claim_id in dev], split


def without_leaks(rows: Sequence[StanceRow], dev: Sequence[StanceRow]) -> list[StanceRow]:
    """The rows whose claim and document are not among those of `dev`."""
    claims = {" ".join(row.claim.casefold().split()) for row in dev}
    documents = {row.doc_id for row in dev} | {row.text for row in dev}
    return [
        row
        for row in rows
        if " ".join(row.claim.casefold().split()) not in claims
        and row.doc_id not in documents
        and row.text not in documents
    ]


def _rows(data: Mapping[str, Any], documents: Mapping[str, tuple[str, str]] | None) -> Iterator[StanceRow]:
    claim = str(_first(data, ("claim", "claim_text", "query")) or "").strip()
    if not claim:
        raise InvalidData("claim is missing")
    id_ = str(_first(data, _CLAIM_IDS) or claim)
    if isinstance(data.get("evidences"), list):
        yield from _climate_fever(claim, id_, data["evidences"])
    elif isinstance(data.get("questions"), list):
        yield _averitec(claim, id_, data)
    elif isinstance(data.get("evidence"), Mapping):
        yield from _scifact(claim, id_, data, documents)
    else:
        yield _pair(claim, id_, data, documents)


def _pair(
    claim: str, claim_id: str, data: Mapping[str, Any], documents: Mapping[str, tuple[str, str]] | None
) -> StanceRow:
    label = _first(data, _LABELS)
    if not isinstance(label, str):
        raise InvalidData("label is missing")
    doc_id = _first(data, _DOCUMENT_IDS)
    text = _first(data, _EVIDENCE)
    title = str(data.get("title") or "")
    if text is None:
        title, text = _document(doc_id, documents)
    if not isinstance(text, str) or not text.strip():
        raise InvalidData("the evidence is empty")
    # Without an id a document is known by its words, so that one that comes twice is still one.
    own = str(doc_id) if doc_id is not None else f"{title}\n{text}"
    return StanceRow(claim, text, parse_label(label), claim_id, own, title, _numbers(data.get("sentences")))


def _climate_fever(claim: str, claim_id: str, evidences: Sequence[Any]) -> Iterator[StanceRow]:
    for one in evidences:
        if not isinstance(one, Mapping) or not isinstance(one.get("evidence"), str):
            raise InvalidData("a piece of evidence is empty")
        label, title = str(one.get("evidence_label") or ""), str(one.get("article") or "")
        yield StanceRow(
            claim, one["evidence"], parse_label(label), claim_id, str(one.get("evidence_id") or one["evidence"]), title
        )


def _averitec(claim: str, claim_id: str, data: Mapping[str, Any]) -> StanceRow:
    parts: list[str] = []
    for question in data["questions"]:
        if not isinstance(question, Mapping):
            raise InvalidData("a question is not an object")
        answers = [str(one.get("answer") or "").strip() for one in question.get("answers") or ()]
        parts += [str(question.get("question") or "").strip(), *(answer for answer in answers if answer)]
    text = " ".join(part if part[-1:] in ".?!" else f"{part}." for part in parts if part)
    if not text:
        raise InvalidData("the questions have no answers")
    return StanceRow(claim, text, parse_label(str(data.get("label") or "")), claim_id, f"questions of {claim_id}")


def _scifact(
    claim: str, claim_id: str, data: Mapping[str, Any], documents: Mapping[str, tuple[str, str]] | None
) -> Iterator[StanceRow]:
    cited = [str(one) for one in data.get("cited_doc_ids") or ()]
    for doc_id in dict.fromkeys([*map(str, data["evidence"]), *cited]):
        title, text = _document(doc_id, documents)
        row = StanceRow(claim, text, "NOT_ENOUGH_INFO", claim_id, doc_id, title)
        sets = data["evidence"].get(doc_id) or []
        labels = {str(one.get("label")) for one in sets}
        if len(labels) > 1:
            raise InvalidData(f"document {doc_id} has several labels: {', '.join(sorted(labels))}")
        if labels:
            numbers = tuple(sorted({number for one in sets for number in _numbers(one.get("sentences"))}))
            row = replace(row, label=parse_label(labels.pop()), sentences=numbers)
        yield row


def _document(doc_id: object, documents: Mapping[str, tuple[str, str]] | None) -> tuple[str, str]:
    if doc_id is None:
        raise InvalidData("both the evidence and the id of a document are missing")
    if documents is None:
        raise InvalidData(f"the evidence is document {doc_id}. Name the file of documents with --corpus")
    if str(doc_id) not in documents:
        raise InvalidData(f"the corpus has no document {str(doc_id)[:80]!r}")
    return documents[str(doc_id)]


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(one for one in value if isinstance(one, int)) if isinstance(value, list) else ()


def _first(data: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((data[name] for name in names if data.get(name) not in (None, "")), None)
