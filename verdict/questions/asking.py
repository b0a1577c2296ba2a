"""Questions to a language model, as in the system OldJoe at AVeriTeC (Ftouhi et al., FEVER 2025, appendices A to D).

Claims, questions and passages are put into prompts as JSON strings: they can't end their own quotation marks or begin a
line, and the reply's shape is fixed whatever they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...core.stages import QuestionsStage
from ...core.types import NO_ANSWER, Hit, QuestionAnswer, Verdict
from ...llm import LanguageModel, Message, Prompt, Question, estimate_tokens, load_prompt, quoted, refuse_unknown
from .replies import (
    VERACITY,
    PassageAnswer,
    Queries,
    Questions,
    Veracity,
    check_answer,
    check_queries,
    check_questions,
    check_veracity,
    one_line,
)
from .sources import page_url, source_name

PROMPTS: Final = {
    "questions": ("claim", "count"),
    "queries": ("question", "count"),
    "answer": ("question", "passages"),
    "veracity": ("claim", "answers"),
}
"""The prompts of this room, and the placeholders that each must have."""
CLAIM_CHARS = 10_000
"""Characters of a claim that the model reads."""
RATIONALE_CHARS = 1_000
URL_CHARS = 300
_QUESTION_TOKENS, _QUERY_TOKENS, _ANSWER_TOKENS, _VERACITY_TOKENS = 60, 30, 250, 200
_INEXACT = 1.2
"""How much larger a prompt can be than `estimate_tokens` says."""
_REPLY_TOKENS = 1_000
"""Room for an answer and the thoughts before it, which passages leave."""
NOTHING_ANSWERED = "None of the questions could be answered from the pages."


class Asking:
    """The questions to a language model, with the prompts loaded.

    Raises InvalidData or NotFound for prompts of the user's that can't be used.
    """

    def __init__(self, llm: LanguageModel, stage: QuestionsStage, known_prompts: Sequence[str]) -> None:
        """`known_prompts` are those of other rooms, which the user's folder of prompts may hold too."""
        refuse_unknown(llm.prompts_dir, (*PROMPTS, *known_prompts))
        self.llm, self.stage = llm, stage
        self.name = f"llm:{llm.name} (questions)"
        """The name of the method in results."""
        self._prompts: dict[str, Prompt] = {
            name: load_prompt(__package__, name, placeholders, llm.prompts_dir)
            for name, placeholders in PROMPTS.items()
        }

    def questions(self, claim: str) -> Question[Questions]:
        messages = self._prompts["questions"].messages(claim=_claim(claim), count=str(self.stage.count))
        return Question(messages, Questions, check_questions, 200 + _QUESTION_TOKENS * self.stage.count)

    def queries(self, question: str) -> Question[Queries]:
        messages = self._prompts["queries"].messages(question=quoted(question), count=str(self.stage.queries))
        return Question(messages, Queries, check_queries, _QUERY_TOKENS * self.stage.queries)

    def answer(self, question: str, hits: Sequence[Hit]) -> tuple[Question[PassageAnswer], int]:
        """The question with as many of the passages as fit into the model's context, at least one, and how many."""
        lines: list[str] = []
        context = self.stage.context
        size = estimate_tokens(self._answer(question, lines).messages)
        for number, hit in enumerate(hits, 1):
            line = _passage(number, hit)
            longer = size + _tokens(line)
            if lines and longer * _INEXACT > context - _REPLY_TOKENS:
                break
            lines.append(line)
            size = longer
        asked = self._answer(question, lines)
        return replace(asked, most=max(_REPLY_TOKENS, int(context - size * _INEXACT))), len(lines)

    def veracity(self, claim: str, answers: Sequence[QuestionAnswer]) -> Question[Veracity]:
        """The question that asks for the verdict. Questions that failed are left out of it."""
        lines = [quoted({"question": one.question, "answer": one.answer}) for one in answers if one.answer is not None]
        messages = self._prompts["veracity"].messages(claim=_claim(claim), answers="\n".join(lines))
        return Question(messages, Veracity, check_veracity, _VERACITY_TOKENS)

    def verdict(self, reply: Veracity) -> Verdict:
        rationale = one_line(reply.reasoning)[:RATIONALE_CHARS]
        return Verdict(VERACITY[reply.label], None, rationale, self.name)

    def _answer(self, question: str, lines: Sequence[str]) -> Question[PassageAnswer]:
        messages: tuple[Message, ...] = self._prompts["answer"].messages(
            question=quoted(question), passages="\n".join(lines)
        )
        return Question(messages, PassageAnswer, check_answer(question, len(lines)), _ANSWER_TOKENS)


def verdict_without_model(answers: Sequence[QuestionAnswer], method: str) -> Verdict | None:
    """The verdict where no answer says anything, so that no model has to be asked; None if one has to be.

    Gaps alone leave the claim open. If questions failed, a gap beside them decides nothing: no verdict.
    """
    if any(one.answered for one in answers):
        return None
    failed = [one for one in answers if one.error is not None]
    if failed:
        said = f"{len(failed)} of {len(answers)} questions failed and none was answered: {failed[0].error}"
        return Verdict(None, method=method, error=said)
    return Verdict("NOT_ENOUGH_INFO", None, NOTHING_ANSWERED, method)


def read_answer(question: str, reply: PassageAnswer) -> tuple[str, tuple[int, ...]]:
    """The answer, and the places of the passages that it cites, from 0; a gap cites none."""
    if not reply.answerable:
        return NO_ANSWER, ()
    return one_line(reply.answer), tuple(number - 1 for number in dict.fromkeys(reply.passages))


def _claim(claim: str) -> str:
    return quoted(claim[:CLAIM_CHARS])


def _passage(number: int, hit: Hit) -> str:
    document = hit.document
    shown: dict[str, object] = {"number": number, "source": source_name(document)}
    if (url := page_url(document)) is not None:
        shown["url"] = url[:URL_CHARS]
    if document.published is not None:
        shown["date"] = document.published
    if document.title:
        shown["title"] = document.title[:URL_CHARS]
    return quoted(shown | {"text": hit.read.text})


def _tokens(line: str) -> int:
    return estimate_tokens([{"role": "user", "content": line}])
