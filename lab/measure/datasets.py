"""Judgements, true labels and runs, from the files that data sets come in.

Read as they are: BEIR (`qrels.tsv`), TREC (qrels of four columns), SciFact, Climate-FEVER, AVeriTeC, ClimateCheck (Abu
Ahmad et al., SDP 2025), and subtask 4b of CheckThat! 2025. A file can be several of these at once: pairs of claim and
document with a label are claims, judgements and true labels.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.errors import CcheckError, InvalidData
from ...core.files import write_text
from ...core.text import is_unicode
from ...core.trec import trec_lines
from ...core.types import Document, Label
from ...ingest import Record, Reject, read
from ...ingest.fields import Fields
from ...ingest.rows import take_all
from ...ingest.run import made_of
from ...pipeline.claims import COLUMNS, DOCUMENTS, GRADES, LABELS, claim_id, first_of, id_of, text_of
from ...verdict.labels import parse_label, parse_stance
from .types import Gold, Qrels, Run

SENTENCES = ("sentences", "evidence_sentences")
_HIGHEST_GRADE = 1000
"""trec_eval counts documents by grade, in as many counters."""
_RELEVANT: Mapping[Label, int] = {"SUPPORTS": 1, "REFUTES": 1, "CONFLICTING": 1, "NOT_ENOUGH_INFO": 0}
"""As ClimateCheck has it: what supports or refutes a claim is relevant to it, what leaves it open is not."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One record's judgement of a claim and a document. `grade` and `label` are None if the record has none, `text` and
    `title` empty if it only names the document. `sentences`: the numbers of those that decide, from 0."""

    claim: str
    document: str
    grade: int | None
    label: Label | None
    sentences: tuple[int, ...] = ()
    text: str = ""
    title: str = ""


@dataclass(slots=True)
class _Once:
    """Keeps the first value for each key, and says where another one contradicts it."""

    what: str
    values: dict[Any, Any] = field(default_factory=dict)
    lines: dict[Any, int] = field(default_factory=dict)

    def put(self, key: Any, value: Any, record: Record, name: str) -> None:
        if key not in self.values:
            self.values[key], self.lines[key] = value, record.line
        elif self.values[key] != value:
            raise InvalidData(f"{name} has a different {self.what} on line {self.lines[key]}")


def read_qrels(path: str | os.PathLike[str]) -> Qrels:
    """The relevance judgements of a file.

    Of pairs with labels instead of grades, those that support or refute are relevant (1) and those that leave the
    claim open are judged not relevant (0). Raises NotFound, MissingExtra, or InvalidData, which names the lines.
    """
    grades = _Once("grade")

    def take(record: Record, number: int) -> None:
        for pair in pairs_of(record.data, number):
            if pair.grade is None:
                raise InvalidData(f"claim {pair.claim} and document {pair.document} have neither grade nor label")
            name = f"the pair of claim {pair.claim} and document {pair.document}"
            grades.put((pair.claim, pair.document), pair.grade, record, name)

    take_all(path, COLUMNS, take)
    qrels: dict[str, dict[str, int]] = {}
    for (claim, document), grade in grades.values.items():
        qrels.setdefault(claim, {})[document] = grade
    if not qrels:
        raise InvalidData(
            f"{os.fspath(path)} has no judgements. A line needs ids of claim and document, and a grade or label"
        )
    return qrels


def read_gold(path: str | os.PathLike[str]) -> Gold:
    """The true labels of a file: of pairs of claim and document, of claims, or both.

    Raises NotFound, MissingExtra, or InvalidData, which names the lines.
    """
    stances, verdicts = _Once("label"), _Once("label")

    def take(record: Record, number: int) -> None:
        data = record.data
        for pair in pairs_of(data, number):
            if pair.label is None:
                continue
            key = pair.claim, pair.document
            stances.put(key, pair.label, record, f"the pair of claim {pair.claim} and document {pair.document}")
        of_document = first_of(data, DOCUMENTS)[0] is not None
        name, label = first_of(data, ("claim_label",) if of_document else LABELS)
        if name is not None:
            claim = claim_id(data, number)
            verdicts.put(claim, parse_label(text_of(label)), record, f"claim {claim}")

    take_all(path, COLUMNS, take)
    if not stances.values and not verdicts.values:
        raise InvalidData(
            f"{os.fspath(path)} has no labels. Records need claim_id, label, and doc_id if it is a document's"
        )
    return Gold(stances.values, verdicts.values)


class Corpus(NamedTuple):
    """The documents of a file by id, and the reasons for which records of it are not among them."""

    documents: dict[str, Document]
    rejected: list[str]


def read_corpus(path: str | os.PathLike[str], *, titles: bool = True) -> Corpus:
    """The documents of a corpus file, as `ccheck ingest` reads them; the last one of an id counts.

    Without `titles` their titles are metadata.

    Raises NotFound, UsageError, MissingExtra (Parquet), or InvalidData if the file has no documents.
    """
    corpus, fields = Corpus({}, []), Fields(titles=titles)
    for record in read([path]):
        made = made_of(record, fields)
        if isinstance(made, Reject):
            corpus.rejected.append(f"{made.file}, line {made.line}: {made.reason}")
        else:
            corpus.documents[made.document.id] = made.document
    if not corpus.documents:
        reason = f". {corpus.rejected[0]}" if corpus.rejected else ""
        raise InvalidData(f"{os.fspath(path)} has no documents{reason}")
    return corpus


# -- what a record says


def pairs_of(data: Mapping[str, Any], number: int) -> Iterator[Pair]:
    """The judged documents of a record; nothing for a claim alone."""
    if "0" in data:
        yield _trec_pair(data)
        return
    name, document = first_of(data, DOCUMENTS)
    if name is not None:
        claim = claim_id(data, number)
        label = _stance(data)
        grade = _grade(data, label)
        if grade is None and name == "cord_uid":
            grade = 1  # CheckThat!: the one paper that a post is about
        yield Pair(claim, id_of(document, name), grade, label, _sentences(first_of(data, SENTENCES)[1]))
    elif any(known in data for known in DOCUMENTS) and first_of(data, (*LABELS, *GRADES))[0] is not None:
        raise InvalidData("there is a label or grade but no document")
    elif isinstance(data.get("evidences"), Sequence):
        yield from _climate_fever(claim_id(data, number), data["evidences"])
    elif isinstance(data.get("evidence"), Mapping):
        yield from _scifact(claim_id(data, number), data)
    elif isinstance(data.get("evidence"), list):
        yield from _listed(claim_id(data, number), data["evidence"])


def _trec_pair(data: Mapping[str, Any]) -> Pair:
    """Claim, iteration, document, grade; or the same without the iteration."""
    cells = list(data.values())
    if len(cells) not in (3, 4):
        raise InvalidData(f"{len(cells)} columns; qrels have claim, iteration, document and grade")
    return Pair(id_of(cells[0], "claim"), id_of(cells[-2], "document"), _number(cells[-1]), None)


def _climate_fever(claim: str, evidences: Sequence[Any]) -> Iterator[Pair]:
    for evidence in evidences:
        if not isinstance(evidence, Mapping) or "evidence_id" not in evidence:
            raise InvalidData(f"claim {claim} has evidence without evidence_id")
        label = parse_stance(text_of(evidence.get("evidence_label")))
        text = text_of(evidence.get("evidence"))
        document = id_of(evidence["evidence_id"], "evidence_id")
        title = text_of(evidence.get("article"))
        yield Pair(claim, document, _RELEVANT[label], label, (), text, title)


def _scifact(claim: str, data: Mapping[str, Any]) -> Iterator[Pair]:
    """SciFact's own claims: `evidence` has the labelled documents, the others that it cites leave the claim open."""
    for document, sets in data["evidence"].items():
        if not isinstance(sets, Sequence) or not all(isinstance(one, Mapping) for one in sets) or not sets:
            raise InvalidData(
                f"the evidence of claim {claim} in document {document} is not a list of labelled sentences"
            )
        labels = {parse_stance(text_of(one.get("label"))) for one in sets}
        if len(labels) > 1:
            raise InvalidData(f"the evidence of claim {claim} in document {document} has several labels")
        numbers = tuple(number for one in sets for number in _sentences(one.get("sentences")))
        yield Pair(claim, id_of(document, "document"), 1, labels.pop(), numbers)
    for document in data.get("cited_doc_ids") or ():
        if (cited := id_of(document, "cited_doc_ids")) not in data["evidence"]:
            yield Pair(claim, cited, 1, "NOT_ENOUGH_INFO")


def _listed(claim: str, evidence: Sequence[Any]) -> Iterator[Pair]:
    """A claim with a list of `doc_id` and `label`, as the sample corpus has it; another list names no documents."""
    if not any(isinstance(one, Mapping) and first_of(one, DOCUMENTS)[0] is not None for one in evidence):
        return
    for one in evidence:
        name, document = first_of(one, DOCUMENTS) if isinstance(one, Mapping) else (None, None)
        if name is None:
            raise InvalidData(f"claim {claim} has evidence without doc_id")
        label = _stance(one)
        yield Pair(claim, id_of(document, name), _grade(one, label), label, _sentences(first_of(one, SENTENCES)[1]))


def _stance(data: Mapping[str, Any]) -> Label | None:
    name, label = first_of(data, LABELS)
    # A column of numbers called label is one of grades.
    return None if name is None or _is_number(label) else parse_stance(text_of(label))


def _grade(data: Mapping[str, Any], label: Label | None) -> int | None:
    name, value = first_of(data, GRADES)
    if name is None and label is None:
        name, value = first_of(data, LABELS)
    if name is not None:
        return _number(value)
    return None if label is None else _RELEVANT[label]


def _sentences(value: object) -> tuple[int, ...]:
    """The numbers in a list of sentences, whose others are texts."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, int | str) for one in value):
        raise InvalidData("sentences must be a list of sentence numbers or texts")
    return tuple(one for one in value if isinstance(one, int))


def _is_number(value: object) -> bool:
    try:
        _number(value)
    except CcheckError:
        return False
    return True


def _number(value: object) -> int:
    """A grade: a whole number."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None or not number.is_integer() or abs(number) > _HIGHEST_GRADE:
        raise InvalidData(f"the grade {str(value)[:80]!r} is not a whole number up to {_HIGHEST_GRADE}")
    return int(number)


# -- runs in TREC's format: a line for each document, of claim id, Q0, document id, rank, score and the run's name


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Document ids, best first; of equal scores the one that was given first."""
    return sorted(scores, key=lambda document: -scores[document])


def run_of_ids(rankings: Mapping[str, Sequence[str]], depth: int) -> dict[str, dict[str, float]]:
    """The run of rankings without scores (`Result.stages`): the first `depth` document ids by claim id, best first."""
    return {
        claim: {document: float(len(ids) - place) for place, document in enumerate(ids[:depth])}
        for claim, ids in rankings.items()
    }


def write_run(path: str | os.PathLike[str], run: Run, name: str) -> None:
    """Write a run; see `trec_lines`. The file is there whole or not at all.

    Raises InvalidData for scores that are not numbers, UsageError where the file can't be written.
    """
    lines = [
        line
        for claim, scores in run.items()
        for line in trec_lines(claim, [(document, scores[document]) for document in ranked(scores)], name)
    ]
    write_text(path, "".join(lines), "the run")


def read_run(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """The run of a file, plain or compressed: TREC's six columns, or what `ccheck query --json` printed.

    Equal scores are in trec_eval's order: the greater document id first. Raises NotFound, or InvalidData, which names
    the lines.
    """
    run: dict[str, dict[str, float]] = {}

    def take(record: Record, _: int) -> None:
        if "0" in record.data:
            _take_line(run, list(record.data.values()))
        else:
            _take_result(run, record.data)

    take_all(path, frozenset(), take)
    return {
        claim: dict(sorted(scores.items(), key=lambda one: (one[1], one[0]), reverse=True))
        for claim, scores in run.items()
    }


def _take_line(run: dict[str, dict[str, float]], cells: list[str]) -> None:
    if len(cells) != 6:
        raise InvalidData(f"{len(cells)} columns where a run has 6: claim, Q0, document, rank, score, name")
    claim, _, document, _, written, _ = cells
    try:
        score = float(written)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise InvalidData(f"the score {written[:80]!r} is not a number")
    scores = run.setdefault(claim, {})
    if document in scores:
        raise InvalidData(f"document {document} of claim {claim} appears twice")
    scores[document] = score


def _take_result(run: dict[str, dict[str, float]], data: Mapping[str, Any]) -> None:
    """A line of `ccheck query --json`. A claim that could not be checked has no evidence."""
    try:
        claim = data["claim"]["id"]
        # Of a document's units, which follow each other by score, the best one counts.
        units = {(str(one["doc_id"]), json.dumps(one.get("unit"))) for one in data["evidence"]}
        once = {str(one["doc_id"]): float(one["score"]) for one in reversed(data["evidence"])}
        hits = [(document, once.pop(document)) for one in data["evidence"] if (document := str(one["doc_id"])) in once]
        if not all(map(is_unicode, (str(claim), *(document for document, _ in hits)))):
            raise ValueError("ids that are not text")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidData("neither a line of a TREC run nor a result of ccheck query --json") from error
    if claim is None:
        raise InvalidData("the claim has no id, so judgements can't refer to it. Give claims with ids")
    if str(claim) in run:
        raise InvalidData(f"claim {claim} appears twice")
    if len(units) < len(data["evidence"]) or not all(math.isfinite(score) for _, score in hits):
        raise InvalidData(f"claim {claim} has a document twice, or a score that is not a number")
    falling = strictly_decreasing([score for _, score in hits])
    run[str(claim)] = {document: score for (document, _), score in zip(hits, falling, strict=True)}


def strictly_decreasing(scores: Sequence[float]) -> list[float]:
    """The scores, each lowered as little as needed to be below the one before it.

    Evaluation tools order a run by score and break ties by document id; this keeps the order that was ranked.
    """
    answer: list[float] = []
    for score in scores:
        ceiling = math.nextafter(answer[-1], -math.inf) if answer else math.inf
        answer.append(min(score, ceiling))
    return answer
