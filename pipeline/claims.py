"""Claims of a file, in the shapes that data sets have: BEIR's queries, TREC's topics, SciFact, AVeriTeC, a table.

In a file of pairs of claim and document a claim comes more than once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.errors import InvalidData
from ..core.text import is_unicode, unfloated
from ..core.types import Claim
from ..ingest import Record, Reject
from ..ingest.documents import last_day
from ..ingest.records import NOT_UTF8, TO_UTF8
from ..ingest.rows import bad_lines, records_of
from .batch import ClaimRecord

CLAIM_IDS = ("_id", "claim_id", "claim-id", "query-id", "query_id", "qid", "post_id", "topic", "id")
TEXTS = ("claim", "text", "query", "tweet_text")
# ClimateCheck's gold files have both of its names for a document; the first is the collection's.
DOCUMENTS = (
    *("corpus-id", "corpus_id", "doc_id", "doc-id", "docid", "docno", "document_id"),
    *("abstract_original_index", "abstract_id", "cord_uid"),
)
GRADES = ("score", "relevance", "rel", "grade")
LABELS = ("annotation", "label", "claim_label", "verdict")
COLUMNS = frozenset((*CLAIM_IDS, *TEXTS, *DOCUMENTS, *GRADES, *LABELS))
"""The columns by which a table is known to have a header, also those of judgements."""
AS_TEXT = ". Standard input is read as JSON Lines or a table with a header, and text lines from a file named .txt"


def iter_claims(path: str | os.PathLike[str]) -> Iterator[ClaimRecord]:
    """The claims of a file or of standard input (`-`), one at a time, in order; see `read_claims`.

    Raises NotFound or UsageError, at once, for a file that can't be read.
    """
    return _claims(records_of(path, COLUMNS, by_name=True))


def read_claims(path: str | os.PathLike[str]) -> list[Claim]:
    """The claims of a file, in its order, with their ids.

    A record without an id gets its number, from 1. In a file of pairs a claim comes more than once; in any other file
    that is an error. Raises NotFound, MissingExtra, or InvalidData, which names the lines.
    """
    found = list(iter_claims(path))
    problems = [problem for _, problem in found if problem is not None]
    problems += [f"the id {claim.id!r} is not valid Unicode" for claim, _ in found if not is_unicode(str(claim.id))]
    if problems:
        raise bad_lines(path, problems)
    if not found:
        raise InvalidData(f"{os.fspath(path)} has no claims")
    return [claim for claim, _ in found]


def _claims(records: Iterator[Record | Reject]) -> Iterator[ClaimRecord]:
    firsts: dict[str, tuple[str, int, int]] = {}
    for number, record in enumerate(records, 1):
        claim = Claim("", str(number))
        try:
            if isinstance(record, Reject):
                as_text = number == 1 and record.reason.startswith("not valid JSON")
                raise InvalidData(record.reason + TO_UTF8 * (record.reason == NOT_UTF8) + AS_TEXT * as_text)
            data = _with_topic(record.data)
            id_ = claim_id(data, number, any_text=True)
            claim = Claim("", id_)
            text = _text(data, id_)
            first, first_number, line = firsts.setdefault(id_, (text, number, record.line))
            if first_number == number:
                yield ClaimRecord(Claim(text, id_, _date(data.get("claim_date"))))
            elif text != first or first_of(data, DOCUMENTS)[0] is None:
                claim = Claim(text, id_)
                raise InvalidData(f"the claim on line {line} already has the id {id_!r}. Give each claim its own id")
        except InvalidData as error:
            yield ClaimRecord(claim, f"line {record.line}: {error}" if record.line else str(error))


def _text(data: Mapping[str, Any], id_: str) -> str:
    """The claim's words. Raises InvalidData if there are none."""
    text = text_of(first_of(data, TEXTS)[1])
    if not text:
        empty = ", ".join(name for name in TEXTS if name in data and not str(data[name] or "").strip())
        fields = f"Its fields are {', '.join(data)}. The text must be in {' or '.join(TEXTS)}"
        raise InvalidData(f"claim {id_} has no text. {f'{empty} is empty' if empty else fields}")
    if not any(map(str.isalnum, text)):
        raise InvalidData(f"claim {id_} has no word, only marks: {text[:80]!r}")
    return text


def _with_topic(data: dict[str, Any]) -> dict[str, Any]:
    """The cells of TREC's topics by their names."""
    if "0" not in data:
        return data
    if len(data) != 2:
        raise InvalidData(
            f"{len(data)} columns without a header. Give the columns names (id, claim), or two columns with a tab "
            f"between them, an id and a text, as TREC's topics have{AS_TEXT}"
        )
    return {"_id": data["0"], "text": data["1"]}


def claim_id(data: Mapping[str, Any], number: int, *, any_text: bool = False) -> str:
    """The id of a record's claim, else the record's number. Raises InvalidData.

    `any_text`: see `id_of`; so are claims read, whose id can be left empty. A judgement names its claim.
    """
    name, value = first_of(data, CLAIM_IDS)
    if name is not None:
        return id_of(value, name, any_text=any_text)
    if not any_text and any(known in data for known in CLAIM_IDS):
        raise InvalidData("the claim's id is empty")
    # AVeriTeC's files and its knowledge store number claims from 0.
    return str(number - ("location_ISO_code" in data))


def first_of(data: Mapping[str, Any], names: Sequence[str]) -> tuple[str | None, Any]:
    """The first of the names with a value, and the value."""
    return next(((name, data[name]) for name in names if data.get(name) not in (None, "")), (None, None))


def id_of(value: object, name: str, *, any_text: bool = False) -> str:
    """An id as text; `any_text`: also with lone surrogates, which answers can hold and rankings to be measured can't.

    Raises InvalidData for what is not an id.
    """
    value = unfloated(value)
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
    text = text_of(value)
    if day_first := _DAY_FIRST.fullmatch(text):
        day, month, year = day_first.groups()
        text = f"{year}-{month}-{day}"
    return last_day(text)


def text_of(value: object) -> str:
    """A text without surrounding blanks; empty if the value is no text."""
    return value.strip() if isinstance(value, str) else ""
