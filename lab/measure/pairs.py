"""Labelled pairs of claim and document: what judges learn from, and are measured on without retrieval.

with Runtime(settings) as runtime:
    method = open_stance_method(runtime, Changes(verdict="auto"), calibrated=True)
    measured = measure_pairs(method, read_rows("pairs.jsonl").rows)
measured.metrics["weighted_f1"], measured.intervals["weighted_f1"]
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from more_itertools import chunked
from numpy.typing import NDArray

from ...core.errors import InvalidData
from ...core.types import Claim, Document, Evidence, Hit, Label, Stance, Usage
from ...ingest import Record
from ...ingest.rows import take_all
from ...pipeline.claims import CLAIM_IDS, COLUMNS, DOCUMENTS, LABELS, claim_id, first_of, text_of
from ...verdict import Case, StanceMethod, all_judged, choose_sentences
from ...verdict.judge import decides
from ...verdict.labels import STANCES, parse_label, parse_stance
from ...verdict.packaged_model import LEARNED_FROM, NAME
from .datasets import pairs_of, read_corpus
from .types import Interval
from .verdicts import intervals_of, label_figures, reliability, tally

_FIGURES = ("weighted_f1", "weighted_precision", "weighted_recall", "macro_f1", "accuracy")
_FALSE_SUPPORT = ("REFUTES", "SUPPORTS")
UNJUDGED = "not judged"
"""The column of a confusion matrix for pairs that could not be judged."""


@dataclass(frozen=True, slots=True)
class PairsMeasured:
    """How good a judge is on `pairs` labelled pairs. It could judge `judged` of them; the others count as wrong.

    `metrics` and `intervals` (95%, by a bootstrap over claims) have `weighted_f1`, `weighted_precision`,
    `weighted_recall`, `macro_f1` and `accuracy`. `metrics` also has `calibration_error`, the expected calibration error
    of the judged pairs, and `risk_coverage`, the area under the curve of risk and coverage: the mean share of errors
    among the surest pairs, over all numbers of pairs. What can't be computed is None: a calibration error without
    confidences, an interval of one claim. `labels` has the precision and recall of each label. `decided` counts the
    pairs whose answer alone would decide a verdict (`pairs`), which are `right`, the `refuted` claims, and those of
    them that were said to be supported, at all and so that it decides. `confusion` has the number of pairs by true and
    by given label. `by_claim` has it for each claim, [claims, 3, 4], with a last column for pairs that were not judged.
    `reason` says why the first pair that was not judged was not.
    """

    method: str
    pairs: int
    judged: int
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval | None]
    confusion: Mapping[str, Mapping[str, int]]
    labels: Mapping[str, Mapping[str, float | None]]
    decided: Mapping[str, int]
    stances: Sequence[Stance] = field(repr=False, compare=False)
    usage: Usage
    seconds: float
    by_claim: NDArray[np.float64] = field(repr=False, compare=False)
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The object that `ccheck evaluate --pairs --json` prints."""
        return {
            "pairs": self.pairs,
            "judged": self.judged,
            "method": self.method,
            "metrics": dict(self.metrics),
            "intervals": {name: None if ends is None else list(ends) for name, ends in self.intervals.items()},
            "confusion": {true: dict(row) for true, row in self.confusion.items()},
            "labels": {label: dict(row) for label, row in self.labels.items()},
            "decided": dict(self.decided),
            "usage": self.usage.to_dict(),
            "seconds": round(self.seconds, 3),
        }


def seen_in_training(judge: str) -> list[str]:
    """What figures of the judge with this name must be read with."""
    seen = f"the {NAME} learned from {LEARNED_FROM}: if these claims are theirs, its figures are of training data"
    return [seen] if judge.startswith(NAME) else []


def answers(pairs: Sequence[StanceRow], measured: PairsMeasured) -> Iterator[dict[str, Any]]:
    """For each pair, in order, what was said of it: the objects that `ccheck evaluate --pairs --out` writes."""
    cases = [(row.claim, (Document(row.doc_id, row.title, row.text),)) for row in pairs]
    for row, stance, (sentences,) in zip(pairs, measured.stances, choose_sentences(cases, 1), strict=True):
        # Where a file has no ids, the texts stand for them (`_rows`).
        yield {
            "id": row.claim_id if row.claim_id != row.claim else None,
            "claim": row.claim,
            "doc_id": row.doc_id if row.doc_id != f"{row.title}\n{row.text}" else None,
            "label": row.label,
            "answer": stance.label,
            "confidence": stance.confidence,
            "probabilities": stance.probabilities,
            "decides": decides(stance),
            "error": stance.error,
            "role": sentences[0].role if sentences else None,
        }


def measure_pairs(
    method: StanceMethod,
    pairs: Sequence[StanceRow],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> PairsMeasured:
    """Judge labelled pairs and measure the stances. A pair that can't be judged counts as wrong.

    Raises InvalidData without pairs.
    """
    if not pairs:
        raise InvalidData("there are no pairs to measure on")
    started = time.perf_counter()
    said, usage = judge_rows(method, pairs, on_progress)
    seconds = time.perf_counter() - started
    counts = tally([row.claim for row in pairs], [row.label for row in pairs], [one.label for one in said], STANCES)
    total = counts.sum(axis=0)
    figures = {name: float(value[0]) for name, value in label_figures(total[None]).items()}
    # Each label's recall, by its share, is the same number.
    figures["weighted_recall"] = figures["accuracy"]
    intervals = intervals_of(counts)
    if intervals:
        intervals["weighted_recall"] = intervals["accuracy"]
    sure = [(one, row.label) for row, one in zip(pairs, said, strict=True) if one.label and one.confidence is not None]
    error = reliability(*zip(*sure, strict=True)).error if sure else None
    risk = risk_coverage([one.confidence or 0.0 for one, _ in sure], [one.label == label for one, label in sure])
    return PairsMeasured(
        method=method.name,
        pairs=len(pairs),
        judged=sum(stance.label is not None for stance in said),
        metrics={name: figures[name] for name in _FIGURES} | {"calibration_error": error, "risk_coverage": risk},
        intervals={name: intervals.get(name) for name in _FIGURES},
        confusion={
            label: dict(zip((*STANCES, UNJUDGED), map(int, row), strict=True))
            for label, row in zip(STANCES, total, strict=True)
        },
        labels={
            label: {
                "precision": _share(total[place, place], total[:, place].sum()),
                "recall": _share(total[place, place], total[place].sum()),
            }
            for place, label in enumerate(STANCES)
        },
        decided=_decided(pairs, said),
        stances=said,
        usage=usage,
        seconds=seconds,
        by_claim=counts,
        reason=next((str(stance.error) for stance in said if stance.label is None), ""),
    )


def _decided(pairs: Sequence[StanceRow], said: Sequence[Stance]) -> dict[str, int]:
    deciding = [(row, stance) for row, stance in zip(pairs, said, strict=True) if decides(stance)]
    supported = [stance for row, stance in zip(pairs, said, strict=True) if (row.label, stance.label) == _FALSE_SUPPORT]
    return {
        "pairs": len(deciding),
        "right": sum(row.label == stance.label for row, stance in deciding),
        "refuted": sum(row.label == "REFUTES" for row in pairs),
        "refuted_said_supports": len(supported),
        "refuted_decided_supports": sum(map(decides, supported)),
    }


def risk_coverage(sure: Sequence[float], right: Sequence[bool]) -> float | None:
    """The mean share of errors among the surest pairs, over all numbers of pairs; None without pairs.

    Equally sure pairs have no order: it is the expected value over all of their orders.
    """
    _, groups, sizes = np.unique(-np.asarray(sure), return_inverse=True, return_counts=True)
    expected = np.bincount(groups, np.logical_not(right)) / sizes
    errors = np.repeat(expected, sizes).cumsum() / np.arange(1, len(sure) + 1)
    return float(errors.mean()) if len(sure) else None


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


_CLAIMS = ("claim", "claim_text", "query")
_EVIDENCE = ("evidence", "abstract", "text")
_READ_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class StanceRow:
    """A claim, a document, and what the document says about the claim.

    `claim_id` and `doc_id` are the data's own, else made of the texts. `text` is empty while only the document's id is
    known. `sentences` are the numbers, from 0, of the sentences by which the label was given, where the data say: the
    other sentences leave the claim open.
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
    """The rows of a file. `skipped` counts claims whose evidence conflicts, which no single document can say."""

    rows: tuple[StanceRow, ...]
    skipped: int = 0

    def describe(self) -> str:
        left_out = f"; {self.skipped:,} left out, because their evidence conflicts" if self.skipped else ""
        return counted(self.rows) + left_out


def counted(rows: Sequence[StanceRow]) -> str:
    """How many pairs there are, of each label."""
    counts = Counter(row.label for row in rows)
    return f"{len(rows):,} pairs ({', '.join(f'{counts[label]:,} {label}' for label in STANCES)})"


def read_rows(
    path: str | os.PathLike[str], corpus: str | os.PathLike[str] | None = None, *, later: bool = False
) -> StanceRows:
    """The labelled pairs of a file, plain or compressed; JSON Lines, CSV, TSV or Parquet.

    A record is one of: `claim`, `evidence` (or `abstract`, `text`; a text or a list of sentences), `label` in any known
    spelling, and `doc_id`, `claim_id`, `title` where there are such; SciFact's verdicts or its own claims, whose
    documents are in `corpus`; Climate-FEVER's claims with `evidences`; AVeriTeC's with `questions`, whose answers
    together are the document. `later`, for pairs to measure on: a document that is named by its id is read later, with
    `with_documents`, and a pair whose label is for a whole claim is an error.

    Raises NotFound, MissingExtra (Parquet), or InvalidData with line numbers and reasons.
    """
    documents, rejected = read_corpus(corpus) if corpus is not None else (None, [])
    if rejected:
        raise InvalidData(rejected[0])
    found: list[StanceRow] = []

    def take(record: Record, number: int) -> None:
        for row in _rows(record.data, number, strict=later):
            complete = row.text or later or row.label not in STANCES
            found.append(row if complete else _with_document(row, documents))

    take_all(path, COLUMNS | {*_EVIDENCE, "title"}, take)
    rows = tuple(row for row in found if row.label in STANCES)
    if not rows:
        raise InvalidData(f"{os.fspath(path)} contains no labelled pairs. Each record needs claim, evidence and label")
    return StanceRows(rows, len(found) - len(rows))


def with_documents(
    rows: Sequence[StanceRow], get: Callable[[Sequence[str]], Mapping[str, Document]]
) -> list[StanceRow]:
    """The rows with their documents' texts, as far as `get` (ids to documents) has those that are named by id only.
    Raises InvalidData if no row then has a text."""
    found: dict[str, Document] = {}
    for some in chunked(dict.fromkeys(row.doc_id for row in rows if not row.text), _READ_AT_ONCE):
        found |= get(some)
    if not (found or any(row.text for row in rows)):
        raise InvalidData(f"the store has none of the pairs' documents, such as {rows[0].doc_id!r}")
    return [row if row.text or row.doc_id not in found else _with_document(row, found) for row in rows]


def judge_rows(
    method: StanceMethod,
    rows: Sequence[StanceRow],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[Stance], Usage]:
    """A stance method's stance on each pair; one whose document is not known can't be judged."""
    cases = [
        Case(Claim(row.claim), (Evidence(Hit(1, Document(row.doc_id, row.title, row.text), 1.0)),))
        for row in rows
        if row.text
    ]
    answers, said, usage = iter(all_judged(method, cases)), list[Stance](), Usage()
    for done, row in enumerate(rows, 1):
        if row.text:
            judged = next(answers)
            said.append(judged.stances[0])
            usage += judged.usage
        else:
            said.append(Stance(None, error=f"the store has no document {row.doc_id!r}"))
        on_progress(done, len(rows))
    return said, usage


def _rows(data: Mapping[str, Any], number: int, *, strict: bool) -> Iterator[StanceRow]:
    """The pairs of a record. `strict`: a pair whose label is for a whole claim is an error."""
    claim = text_of(first_of(data, _CLAIMS)[1])
    if not claim:
        raise InvalidData("claim is missing")
    id_ = claim_id(data, number) if first_of(data, CLAIM_IDS)[0] is not None else claim
    if isinstance(data.get("questions"), list):
        yield _averitec(claim, id_, data)
        return
    text, title = _evidence(data), str(data.get("title") or "")
    label = first_of(data, LABELS)[1]
    one_pair = bool(text) or first_of(data, DOCUMENTS)[0] is not None
    if one_pair and not strict and isinstance(label, str) and (conflicting := parse_label(label)) not in STANCES:
        yield StanceRow(claim, text, conflicting, id_, "")
        return
    pairs = list(pairs_of(data, number))
    for pair in pairs:
        if pair.label is None:
            raise InvalidData("label is missing")
        yield StanceRow(claim, pair.text or text, pair.label, id_, pair.document, pair.title or title, pair.sentences)
    if pairs:
        return
    if not isinstance(label, str):
        raise InvalidData("label is missing")
    if not text:
        raise InvalidData("both the evidence and the id of a document are missing")
    # Without an id a document is known by its words, so that one that comes twice is still one.
    yield StanceRow(claim, text, parse_stance(label), id_, f"{title}\n{text}", title)


def _evidence(data: Mapping[str, Any]) -> str:
    """The evidence that a record has itself; empty if it has none."""
    name, value = first_of(data, _EVIDENCE)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = " ".join(part.strip() for part in value)
    if isinstance(value, str) and not value.strip():
        raise InvalidData(f"{name} is empty")
    return value if isinstance(value, str) else ""


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


def _with_document(row: StanceRow, documents: Mapping[str, Document] | None) -> StanceRow:
    if documents is None:
        raise InvalidData(f"the evidence is document {row.doc_id}. Name the file of documents with --corpus")
    if row.doc_id not in documents:
        raise InvalidData(f"the corpus has no document {row.doc_id[:80]!r}")
    return replace(row, title=documents[row.doc_id].title, text=documents[row.doc_id].text)
