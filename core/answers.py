"""Answers that `ccheck query --json` printed, read again. The file can be anybody's, so everything in it is checked."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import InvalidData, UsageError
from .files import no_file
from .types import (
    Claim,
    Document,
    Evidence,
    Hit,
    QuestionAnswer,
    Result,
    Scalar,
    Sentence,
    StageKind,
    Stance,
    Unit,
    Usage,
    Verdict,
)

MOST_BYTES = 1 << 28
"""The longest line that is read."""

log = logging.getLogger(__name__)


class Saved(NamedTuple):
    """An answer as it was saved, and the result that it is of; its documents have no texts."""

    where: str
    answer: Mapping[str, Any]
    result: Result


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Figure(_Part):
    label: str
    caption: str
    image: str | None = None


class _Passage(_Part):
    text: str
    section: str = ""


class _Grounding(_Part):
    figures: list[_Figure] = []
    passages: list[_Passage] = []


class _Evidence(_Part):
    rank: Annotated[int, Field(ge=1, le=1_000_000_000)]
    doc_id: str
    title: str
    score: float
    unit: Unit | None = None
    scores: dict[str, float] = {}
    ranks: dict[str, int] = {}
    cut: tuple[str, ...] = ()
    stance: Stance | None = None
    sentences: tuple[Sentence, ...] = ()
    grounding: _Grounding | None = None
    metadata: dict[str, Scalar | list[Scalar]] = {}

    def value(self) -> Evidence:
        document = Document(self.doc_id, self.title, "", self.metadata)
        hit = Hit(self.rank, document, self.score, self.scores, self.ranks, self.cut, self.unit)
        grounding = None if self.grounding is None else self.grounding.model_dump()
        return Evidence(hit, self.sentences, self.stance, grounding)


class _Answer(_Part):
    claim: Claim
    evidence: list[_Evidence]
    verdict: Verdict | None
    recipe: str
    store: str
    warnings: tuple[str, ...] = ()
    timings_ms: dict[str, float] = {}
    usage_by_stage: dict[str, Usage] = {}
    scored_by: dict[str, StageKind] = {}
    questions: tuple[QuestionAnswer, ...] | None = None
    relevance: float | None = None
    error: str | None = None


def result_of(answer: object) -> Result:
    """The result that an answer is of; its documents have no texts. Raises InvalidData."""
    try:
        read = _Answer.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(one)[:80] for one in first["loc"])
        raise InvalidData(f"{place}: {first['msg']}" if place else first["msg"]) from None
    return Result(
        read.claim,
        tuple(one.value() for one in read.evidence),
        read.verdict,
        read.recipe,
        read.store,
        read.warnings,
        read.timings_ms,
        read.usage_by_stage,
        None if read.error is None else InvalidData(read.error),
        scored_by=read.scored_by,
        questions=read.questions,
        relevance=read.relevance,
    )


def saved_answers(file: str) -> Iterator[Saved]:
    """The answers in a file, or in standard input (`-`), in order.

    A last line that was cut off is passed over with a warning. Raises NotFound, UsageError for a file that can't be
    read, and InvalidData, with the line, for what is not an answer.
    """
    for number, line in _lines(file):
        where = f"{file}, line {number}"
        try:
            answer = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError):
            if not line.endswith(b"\n"):
                log.warning("%s is incomplete and was left out", where)
                return
            raise InvalidData(f"{where} is not JSON. ccheck query --claims prints answers that can be read") from None
        try:
            yield Saved(where, answer, result_of(answer))
        except InvalidData as error:
            raise InvalidData(f"{where} is not an answer of ccheck query --json: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _lines(file: str) -> Iterator[tuple[int, bytes]]:
    with ExitStack() as stack:
        try:
            stream = sys.stdin.buffer if file == "-" else stack.enter_context(Path(file).open("rb"))
            number = 0
            while line := stream.readline(MOST_BYTES + 1):
                number += 1
                if len(line) > MOST_BYTES:
                    raise InvalidData(f"{file}, line {number} is longer than {MOST_BYTES:,} bytes")
                if line.strip():
                    yield number, line
        except FileNotFoundError:
            raise no_file(file) from None
        except OSError as error:
            raise UsageError(f"the answers {file} can't be read: {error.strerror}") from error
