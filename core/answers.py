"""Answers that `ccheck query --json` prints, read again from a record, where others can write: all of it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import InvalidData
from .question import Citation, QuestionAnswer
from .types import Claim, Difference, Document, Evidence, Hit, Part, Result, Sentence, Stance, Unit, Usage, Verdict


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
        None if verdict is None else verdict_of(verdict),
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


def verdict_of(one: Mapping[str, Any]) -> Verdict:
    """The verdict of an answer."""
    parts = (Part(**{**part, "doc_ids": tuple(part["doc_ids"])}) for part in one.get("parts", ()))
    return Verdict(**{**one, "parts": tuple(parts)})


def _evidence(one: Mapping[str, Any]) -> Evidence:
    document = Document(one["doc_id"], one["title"], "", one.get("metadata", {}))
    unit, stance, ways = one.get("unit"), one.get("stance"), (one.get("scores", {}), one.get("ranks", {}))
    unit = None if unit is None else Unit(**unit)
    return Evidence(
        Hit(one["rank"], document, one["score"], *ways, tuple(one.get("cut", ())), unit),
        tuple(map(_sentence, one.get("sentences", ()))),
        None if stance is None else Stance(**{name: said for name, said in stance.items() if name != "leans"}),
        one.get("grounding"),
    )


def _sentence(one: Mapping[str, Any]) -> Sentence:
    differences = tuple(Difference(**each) for each in one.get("differences", ()))
    return Sentence(**{**one, "differences": differences})


def _question(one: Mapping[str, Any]) -> QuestionAnswer:
    citations = tuple(Citation(**each) for each in one.get("citations", ()))
    return QuestionAnswer(**{**one, "queries": tuple(one.get("queries", ())), "citations": citations})
