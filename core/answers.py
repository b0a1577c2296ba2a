"""Answers that `ccheck query --json` printed, read again. The file can be anybody's, so everything in it is checked."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from .errors import InvalidData, UsageError
from .files import no_file
from .question import Citation, QuestionAnswer
from .types import Claim, Difference, Document, Evidence, Hit, Part, Result, Sentence, Stance, Unit, Usage, Verdict

MOST_BYTES = 1 << 28
"""The longest line that is read."""

log = logging.getLogger(__name__)


class Saved(NamedTuple):
    """An answer as it was saved, and the result that it is of; its documents have no texts."""

    where: str
    answer: Mapping[str, Any]
    result: Result


def result_of(answer: object) -> Result:
    """The result that an answer is of; its documents have no texts. Raises InvalidData."""
    from .answer_shape import checked  # which takes longer to load than a command that asks a server takes in all

    return built(checked(answer))


def built(answer: Mapping[str, Any]) -> Result:
    """The same, of an answer that ccheck made. Raises TypeError, KeyError, ValueError or AttributeError for others."""
    verdict, questions, error = (answer.get(name) for name in ("verdict", "questions", "error"))
    return Result(
        Claim(**answer["claim"]),
        tuple(map(_evidence, answer["evidence"])),
        None if verdict is None else _verdict(verdict),
        answer["recipe"],
        answer["store"],
        tuple(answer.get("warnings", ())),
        answer.get("timings_ms", {}),
        {stage: Usage(**used) for stage, used in answer.get("usage_by_stage", {}).items()},
        None if error is None else InvalidData(error),
        scored_by=answer.get("scored_by", {}),
        questions=None if questions is None else tuple(map(_question, questions)),
        relevance=answer.get("relevance"),
        fused_by=answer.get("fused_by"),
    )


def _verdict(one: Mapping[str, Any]) -> Verdict:
    parts = (Part(**{**part, "doc_ids": tuple(part["doc_ids"])}) for part in one.get("parts", ()))
    return Verdict(**{**one, "parts": tuple(parts)})


def _evidence(one: Mapping[str, Any]) -> Evidence:
    document = Document(one["doc_id"], one["title"], "", one.get("metadata", {}))
    unit, stance, ways = one.get("unit"), one.get("stance"), (one.get("scores", {}), one.get("ranks", {}))
    unit = None if unit is None else Unit(**unit)
    return Evidence(
        Hit(one["rank"], document, one["score"], *ways, tuple(one.get("cut", ())), unit),
        tuple(map(_sentence, one.get("sentences", ()))),
        None if stance is None else Stance(**stance),
        one.get("grounding"),
    )


def _sentence(one: Mapping[str, Any]) -> Sentence:
    differences = tuple(Difference(**each) for each in one.get("differences", ()))
    return Sentence(**{**one, "differences": differences})


def _question(one: Mapping[str, Any]) -> QuestionAnswer:
    citations = tuple(Citation(**each) for each in one.get("citations", ()))
    return QuestionAnswer(**{**one, "queries": tuple(one.get("queries", ())), "citations": citations})


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
