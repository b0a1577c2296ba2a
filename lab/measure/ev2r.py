"""Ev2R: a large language model judges how much of the annotators' evidence a prediction covers (Akhtar et al., 2024).

The measure of the shared task of 2025: recall of the questions, recall of the questions with answers, and the share of
claims with the right label whose second recall is at least .5. The figures depend on the model, and on the prompt,
which is not the task's own word for word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from ...llm import Failure, LanguageModel, Question, Reply, load_prompt, quoted
from .averitec import MOST, Gold, Prediction

LEVEL = 0.5
PLACEHOLDERS = ("claim", "reference", "predicted")
_TOKENS = 800


class Covered(Reply):
    """Facts of both lists, and how many of each the other covers."""

    reasoning: str
    reference_facts: int = Field(ge=0)
    reference_covered: int = Field(ge=0)
    predicted_facts: int = Field(ge=0)
    predicted_covered: int = Field(ge=0)


@dataclass(frozen=True, slots=True)
class Ev2r:
    """Mean recalls and the score, over the claims that could be judged; `failed` others have the first's `error`.

    None if no claim could be judged.
    """

    questions: float | None
    questions_and_answers: float | None
    score: float | None
    failed: int = 0
    error: str | None = None

    def to_dict(self) -> dict[str, float | None]:
        return {"Ev2R-Q-recall": self.questions, "Ev2R-QA-recall": self.questions_and_answers, "Ev2R@0.5": self.score}


def ev2r(gold: Sequence[Gold], predictions: Sequence[Prediction], llm: LanguageModel) -> Ev2r:
    """The measure, two questions a claim. A claim without predicted evidence has the recall 0 without being asked.

    Raises Refused if the server answers no question.
    """
    prompt = load_prompt(__package__, "ev2r", PLACEHOLDERS, llm.prompts_dir)
    by_id = {one.id: one for one in predictions}
    pairs = [(true, by_id.get(true.id)) for true in gold]
    asked: list[tuple[int, int]] = []
    questions: list[Question[Covered]] = []
    for place, (true, made) in enumerate(pairs):
        evidence = made.evidence[:MOST] if made is not None else ()
        kinds: list[tuple[Sequence[str], Sequence[str]]] = [
            (true.questions, [pair.question for pair in evidence]),
            (true.evidence, [f"{pair.question} {pair.answer}" for pair in evidence]),
        ]
        for kind, (reference, predicted) in enumerate(kinds):
            if reference and predicted:
                asked.append((place, kind))
                values = {"claim": quoted(true.claim), "reference": quoted(list(reference))}
                messages = prompt.messages(**values, predicted=quoted(list(predicted)))
                questions.append(Question(messages, Covered, _check, _TOKENS))
    recalls: dict[tuple[int, int], float] = {}
    errors: dict[int, str] = {}
    for (place, kind), outcome in zip(asked, llm.ask_many(questions), strict=True):
        if isinstance(outcome, Failure):
            errors.setdefault(place, str(outcome.error))
        else:
            recalls[place, kind] = outcome.value.reference_covered / outcome.value.reference_facts
    reason = next(iter(errors.values()), None)
    judged = [place for place in range(len(pairs)) if place not in errors]
    # If no question was answered, the claims without evidence alone would make a score.
    if not judged or (asked and not recalls):
        return Ev2r(None, None, None, len(errors), reason)
    mean = [sum(recalls.get((place, kind), 0.0) for place in judged) / len(judged) for kind in (0, 1)]
    right = [
        recalls.get((place, 1), 0.0) >= LEVEL
        and (made := pairs[place][1]) is not None
        and made.label == pairs[place][0].label
        for place in judged
    ]
    return Ev2r(mean[0], mean[1], sum(right) / len(judged), len(errors), reason)


def _check(reply: Covered) -> None:
    if not reply.reference_facts:
        raise ValueError("the reference has at least one fact")
    if reply.reference_covered > reply.reference_facts or reply.predicted_covered > reply.predicted_facts:
        raise ValueError("more facts are covered than there are")
