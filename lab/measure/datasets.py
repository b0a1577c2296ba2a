"""Claims, judgements and true labels, from the files that data sets come in.

Read as they are: BEIR (`queries.jsonl`, `qrels.tsv`), TREC (topics as id, tab, text; qrels of four columns), SciFact,
Climate-FEVER, AVeriTeC, ClimateCheck (Abu Ahmad et al., SDP 2025), and subtask 4b of CheckThat! 2025. A file can be
several of these at once: pairs of claim and document with a label are claims, judgements and true labels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.errors import CcheckError, InvalidData
from ...core.text import is_unicode
from ...core.types import Claim, Document, Label
from ...ingest import Record, Reject, read
from ...ingest.documents import last_day, make_document
from ...ingest.fields import Fields
from ...verdict.labels import parse_label, parse_stance
from .files import bad_lines, records_of, take_all
from .types import Gold, Qrels

CLAIM_IDS = ("_id", "claim_id", "claim-id", "query-id", "query_id", "qid", "post_id", "topic", "id")
TEXTS = ("claim", "text", "query", "tweet_text")
# ClimateCheck's gold files have both of its names for a document; the first is the collection's.
DOCUMENTS = (
    *("corpus-id", "corpus_id", "doc_id", "doc-id", "docid", "docno", "document_id"),
    *("abstract_original_index", "abstract_id", "cord_uid"),
)
GRADES = ("score", "relevance", "rel", "grade")
LABELS = ("annotation", "label", "claim_label", "verdict")
SENTENCES = ("sentences", "evidence_sentences")
_COLUMNS = frozenset((*CLAIM_IDS, *TEXTS, *DOCUMENTS, *GRADES, *LABELS))
_HIGHEST_GRADE = 1000
"""trec_eval counts documents by grade, in as many counters."""
_RELEVANT: Mapping[Label, int] = {"SUPPORTS": 1, "REFUTES": 1, "CONFLICTING": 1, "NOT_ENOUGH_INFO": 0}
"""As ClimateCheck has it: what supports or refutes a claim is relevant to it, what leaves it open is not."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """One record's judgement of a claim and a document. `grade` and `label` are None if the record has none."""

    claim: str
    document: str
    grade: int | None
    label: Label | None
    sentences: tuple[int | str, ...] = ()


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


class ClaimRecord(NamedTuple):
    """A claim of a file, or what keeps one of its records from being a claim (`problem`, with the line)."""

    claim: Claim
    problem: str | None = None


def iter_claims(path: str | os.PathLike[str]) -> Iterator[ClaimRecord]:
    """The claims of a file or of standard input (`-`), one at a time, in order; see `read_claims`.

    Raises NotFound or UsageError, at once, for a file that can't be read.
    """
    return _claims(records_of(path, _COLUMNS, by_name=True))


def read_claims(path: str | os.PathLike[str]) -> list[Claim]:
    """The claims of a file, in its order, with their ids.

    A record without an id gets its number, from 1. In a file of pairs a claim comes more than once; in any other file
    that is an error. Raises NotFound, MissingExtra, or InvalidData, which names the lines.
    """
    found = list(iter_claims(path))
    problems = [problem for _, problem in found if problem is not None]
    problems += [f"the id {claim.id!r} is not valid Unicode" for claim, _ in found if not is_unicode(str(claim.id))]
    if problems:
        raise bad_lines(path, problems, len(problems))
    if not found:
        raise InvalidData(f"{os.fspath(path)} has no claims")
    return [claim for claim, _ in found]


def _claims(records: Iterator[Record | Reject]) -> Iterator[ClaimRecord]:
    firsts: dict[str, tuple[str, int, int]] = {}
    for number, record in enumerate(records, 1):
        where = f"line {record.line}: "
        if isinstance(record, Reject):
            yield ClaimRecord(Claim("", str(number)), f"{where if record.line else ''}{record.reason}")
            continue
        try:
            data = _with_topic(record.data)
            id_ = _claim_id(data, number, any_text=True)
        except InvalidData as error:
            yield ClaimRecord(Claim("", str(number)), f"{where}{error}")
            continue
        text = _text(_found(data, TEXTS)[1])
        if not text:
            problem = (
                f"claim {id_} has no text. Its fields are {', '.join(data)}. The text must be in {' or '.join(TEXTS)}"
            )
            yield ClaimRecord(Claim("", id_), f"{where}{problem}")
            continue
        first, first_number, line = firsts.setdefault(id_, (text, number, record.line))
        if first_number == number:
            yield ClaimRecord(Claim(text, id_, _date(data.get("claim_date"))))
        elif text != first or _found(data, DOCUMENTS)[0] is None:
            problem = f"the claim on line {line} already has the id {id_!r}. Give each claim its own id"
            yield ClaimRecord(Claim(text, id_), f"{where}{problem}")


def read_qrels(path: str | os.PathLike[str]) -> Qrels:
    """The relevance judgements of a file.

    Of pairs with labels instead of grades, those that support or refute are relevant (1) and those that leave the
    claim open are judged not relevant (0). Raises NotFound, MissingExtra, or InvalidData, which names the lines.
    """
    grades = _Once("grade")

    def take(record: Record, number: int) -> None:
        for pair in _pairs(record.data, number):
            if pair.grade is None:
                raise InvalidData(f"claim {pair.claim} and document {pair.document} have neither grade nor label")
            name = f"the pair of claim {pair.claim} and document {pair.document}"
            grades.put((pair.claim, pair.document), pair.grade, record, name)

    take_all(path, _COLUMNS, take)
    qrels: dict[str, dict[str, int]] = {}
    for (claim, document), grade in grades.values.items():
        qrels.setdefault(claim, {})[document] = grade
    if not qrels:
        raise InvalidData(
            f"{os.fspath(path)} has no judgements. Each line needs a claim id, a document id and a grade (BEIR or TREC "
            "qrels), or a pair with a label"
        )
    return qrels


def read_gold(path: str | os.PathLike[str]) -> Gold:
    """The true labels of a file: of pairs of claim and document, of claims, or both.

    Raises NotFound, MissingExtra, or InvalidData, which names the lines.
    """
    stances, verdicts = _Once("label"), _Once("label")
    sentences: dict[tuple[str, str], tuple[int | str, ...]] = {}

    def take(record: Record, number: int) -> None:
        data = record.data
        for pair in _pairs(data, number):
            if pair.label is None:
                continue
            key = pair.claim, pair.document
            stances.put(key, pair.label, record, f"the pair of claim {pair.claim} and document {pair.document}")
            if pair.sentences:
                sentences[key] = tuple(dict.fromkeys((*sentences.get(key, ()), *pair.sentences)))
        of_document = _found(data, DOCUMENTS)[0] is not None
        name, label = _found(data, ("claim_label",) if of_document else LABELS)
        if name is not None:
            claim = _claim_id(data, number)
            verdicts.put(claim, parse_label(_text(label)), record, f"claim {claim}")

    take_all(path, _COLUMNS, take)
    if not stances.values and not verdicts.values:
        raise InvalidData(
            f"{os.fspath(path)} has no labels. Records need claim_id and label, and doc_id where the label is for one "
            "document"
        )
    return Gold(stances.values, verdicts.values, sentences)


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
        if isinstance(record, Reject):
            corpus.rejected.append(f"{record.file}, line {record.line}: {record.reason}")
            continue
        try:
            document = make_document(record.data, fields, untyped=record.untyped).document
        except InvalidData as error:
            corpus.rejected.append(f"{record.file}, line {record.line}: {error}")
        else:
            corpus.documents[document.id] = document
    if not corpus.documents:
        reason = f". {corpus.rejected[0]}" if corpus.rejected else ""
        raise InvalidData(f"{os.fspath(path)} has no documents{reason}")
    return corpus


# -- what a record says


def _pairs(data: Mapping[str, Any], number: int) -> Iterator[_Pair]:
    """The judged documents of a record. None if it is of a claim alone."""
    if "0" in data:
        yield _trec_pair(data)
        return
    name, document = _found(data, DOCUMENTS)
    if name is not None:
        claim = _claim_id(data, number)
        label = _stance(data)
        grade = _grade(data, label)
        if grade is None and name == "cord_uid":
            grade = 1  # CheckThat!: the one paper that a post is about
        yield _Pair(claim, _id(document, name), grade, label, _sentences(_found(data, SENTENCES)[1]))
    elif any(known in data for known in DOCUMENTS) and _found(data, (*LABELS, *GRADES))[0] is not None:
        raise InvalidData("there is a label or grade but no document")
    elif isinstance(data.get("evidences"), Sequence):
        yield from _climate_fever(_claim_id(data, number), data["evidences"])
    elif isinstance(data.get("evidence"), Mapping):
        yield from _scifact(_claim_id(data, number), data)
    elif isinstance(data.get("evidence"), list):
        yield from _listed(_claim_id(data, number), data["evidence"])


def _trec_pair(data: Mapping[str, Any]) -> _Pair:
    """Claim, iteration, document, grade; or the same without the iteration."""
    cells = list(data.values())
    if len(cells) not in (3, 4):
        raise InvalidData(f"{len(cells)} columns; qrels have claim, iteration, document and grade")
    return _Pair(_id(cells[0], "claim"), _id(cells[-2], "document"), _number(cells[-1]), None)


def _climate_fever(claim: str, evidences: Sequence[Any]) -> Iterator[_Pair]:
    for evidence in evidences:
        if not isinstance(evidence, Mapping) or "evidence_id" not in evidence:
            raise InvalidData(f"claim {claim} has evidence without evidence_id")
        label = parse_stance(_text(evidence.get("evidence_label")))
        text = _text(evidence.get("evidence"))
        document = _id(evidence["evidence_id"], "evidence_id")
        yield _Pair(claim, document, _RELEVANT[label], label, (text,) if text else ())


def _scifact(claim: str, data: Mapping[str, Any]) -> Iterator[_Pair]:
    """SciFact's own claims: `evidence` has the labelled documents, the others that it cites leave the claim open."""
    for document, sets in data["evidence"].items():
        if not isinstance(sets, Sequence) or not all(isinstance(one, Mapping) for one in sets) or not sets:
            raise InvalidData(
                f"the evidence of claim {claim} in document {document} is not a list of labelled sentences"
            )
        labels = {parse_stance(_text(one.get("label"))) for one in sets}
        if len(labels) > 1:
            raise InvalidData(f"the evidence of claim {claim} in document {document} has several labels")
        numbers = tuple(number for one in sets for number in _sentences(one.get("sentences")))
        yield _Pair(claim, _id(document, "document"), 1, labels.pop(), numbers)
    for document in data.get("cited_doc_ids") or ():
        if (cited := _id(document, "cited_doc_ids")) not in data["evidence"]:
            yield _Pair(claim, cited, 1, "NOT_ENOUGH_INFO")


def _listed(claim: str, evidence: Sequence[Any]) -> Iterator[_Pair]:
    """A claim with a list of `doc_id` and `label`, as the sample corpus has it; another list names no documents."""
    if not any(isinstance(one, Mapping) and _found(one, DOCUMENTS)[0] is not None for one in evidence):
        return
    for one in evidence:
        name, document = _found(one, DOCUMENTS) if isinstance(one, Mapping) else (None, None)
        if name is None:
            raise InvalidData(f"claim {claim} has evidence without doc_id")
        label = _stance(one)
        yield _Pair(claim, _id(document, name), _grade(one, label), label, _sentences(_found(one, SENTENCES)[1]))


def _stance(data: Mapping[str, Any]) -> Label | None:
    name, label = _found(data, LABELS)
    # A column of numbers called label is one of grades.
    return None if name is None or _is_number(label) else parse_stance(_text(label))


def _grade(data: Mapping[str, Any], label: Label | None) -> int | None:
    name, value = _found(data, GRADES)
    if name is None and label is None:
        name, value = _found(data, LABELS)
    if name is not None:
        return _number(value)
    return None if label is None else _RELEVANT[label]


def _sentences(value: object) -> tuple[int | str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, int | str) for one in value):
        raise InvalidData("sentences must be a list of sentence numbers or texts")
    return tuple(value)


def _with_topic(data: dict[str, Any]) -> dict[str, Any]:
    """The cells of TREC's topics by their names."""
    if "0" not in data:
        return data
    if len(data) != 2:
        raise InvalidData(f"{len(data)} columns; topics have two, an id and a text, with a tab between them")
    return {"_id": data["0"], "text": data["1"]}


def _claim_id(data: Mapping[str, Any], number: int, *, any_text: bool = False) -> str:
    name, value = _found(data, CLAIM_IDS)
    if name is not None:
        return _id(value, name, any_text=any_text)
    if any(known in data for known in CLAIM_IDS):
        raise InvalidData("the claim's id is empty")
    # AVeriTeC's files and its knowledge store number claims from 0.
    return str(number - ("location_ISO_code" in data))


def _found(data: Mapping[str, Any], names: Sequence[str]) -> tuple[str | None, Any]:
    """The first of the names with a value, and the value."""
    return next(((name, data[name]) for name in names if data.get(name) not in (None, "")), (None, None))


def _id(value: object, name: str, *, any_text: bool = False) -> str:
    """An id; `any_text`: also with lone surrogates, which answers can hold and rankings to be measured can't."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of numbers with gaps, as pandas writes it
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int)
        or not str(value).strip()
        or not (any_text or is_unicode(str(value)))
    ):
        raise InvalidData(f"{name} is not an id: {str(value)[:80]!r}")
    return str(value).strip()


_DAY_FIRST = re.compile(r"(\d{1,2})-(\d{1,2})-(\d{4})")


def _date(value: object) -> str | None:
    """The day on which a claim was made: ISO 8601, or AVeriTeC's 31-10-2020. None if it can't be read."""
    text = _text(value)
    if day_first := _DAY_FIRST.fullmatch(text):
        day, month, year = day_first.groups()
        text = f"{year}-{month}-{day}"
    return last_day(text)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


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
