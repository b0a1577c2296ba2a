"""The shapes of a language model's replies about questions, and what makes no sense in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from ...core.analysis import clean
from ...core.types import Label
from ...llm import Reply

QUESTION_CHARS = 1_000
QUERY_CHARS = 1_000
ANSWER_CHARS = 10_000
_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}", "\N{GREEK QUESTION MARK}")
_YES_NO = re.compile(
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must)(?:n['’]t)?\b",
    re.IGNORECASE,
)
_ALTERNATIVES = re.compile(r"\bor\b", re.IGNORECASE)
_BEGINS_SO = re.compile(r"(?:yes|no)\b", re.IGNORECASE)


class Questions(Reply):
    """What the claim says and what it hangs on; then the questions."""

    analysis: str
    questions: list[str]


class Queries(Reply):
    """What to search for."""

    queries: list[str]


class PassageAnswer(Reply):
    """The reasons, whether the passages answer the question, the answer, and the numbers of the passages it cites."""

    reasoning: str
    answerable: bool
    answer: str
    passages: list[int]


class Veracity(Reply):
    """The reasons and the label, in AVeriTeC's spelling."""

    reasoning: str
    label: Literal["Supported", "Refuted", "Conflicting Evidence/Cherrypicking", "Not Enough Evidence"]


VERACITY: dict[str, Label] = {
    "Supported": "SUPPORTS",
    "Refuted": "REFUTES",
    "Conflicting Evidence/Cherrypicking": "CONFLICTING",
    "Not Enough Evidence": "NOT_ENOUGH_INFO",
}
"""AVeriTeC's labels, and ours."""


def one_line(text: str) -> str:
    """On one line, without what no index takes."""
    return " ".join(clean(text).split())


def distinct(texts: Sequence[str]) -> list[str]:
    """The texts on one line each, without those that have neither letter nor digit or differ from an earlier one in
    capitals only."""
    found: dict[str, str] = {}
    for text in map(one_line, texts):
        if any(map(str.isalnum, text)):
            found.setdefault(text.casefold(), text)
    return list(found.values())


def check_questions(reply: Questions) -> None:
    questions = distinct(reply.questions)
    if not questions:
        raise ValueError("it has no question")
    for question in questions:
        if not question.endswith(_MARKS):
            raise ValueError(f"{question[:80]!r} is not a question: it must end with a question mark")
        if len(question) > QUESTION_CHARS:
            raise ValueError(f"a question has {len(question):,} characters; the limit is {QUESTION_CHARS:,}")


def check_queries(reply: Queries) -> None:
    queries = distinct(reply.queries)
    if not queries:
        raise ValueError("it has no query")
    if any(len(query) > QUERY_CHARS for query in queries):
        raise ValueError(f"a query has more than {QUERY_CHARS:,} characters")


def is_yes_no(question: str) -> bool:
    """Whether an English question wants yes or no; one that offers alternatives does not."""
    return _YES_NO.match(question) is not None and _ALTERNATIVES.search(question) is None


def check_answer(question: str, passages: int) -> Callable[[PassageAnswer], None]:
    """Returns a check for answers to `question` from `passages` passages, which are numbered from 1."""

    def check(reply: PassageAnswer) -> None:
        if not reply.answerable:
            return
        answer = one_line(reply.answer)
        if not answer:
            raise ValueError("the answer is empty")
        if len(answer) > ANSWER_CHARS:
            raise ValueError(f"the answer has {len(answer):,} characters; the limit is {ANSWER_CHARS:,}")
        if not reply.passages:
            raise ValueError("the answer cites no passage; without one, answerable must be false")
        strange = [number for number in reply.passages if not 1 <= number <= passages]
        if strange:
            raise ValueError(f"there is no passage {strange[0]}; they are numbered from 1 to {passages}")
        if is_yes_no(question) and not _BEGINS_SO.match(answer):
            raise ValueError("the question wants yes or no, so the answer must begin with Yes or No")

    return check


def check_veracity(reply: Veracity) -> None:
    if not one_line(reply.reasoning):
        raise ValueError("the reasoning is empty")
