"""Questions to a language model, as in the system OldJoe at AVeriTeC (Ftouhi et al., FEVER 2025, appendices A to D),
and what its answers mean.

Claims, questions and passages are put into prompts as JSON strings: they can't end their own quotation marks or begin a
line, and the reply's shape is fixed whatever they say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal
from urllib.parse import urlsplit

from ..core.analysis import clean, is_yes_no
from ..core.question import NO_ANSWER, QuestionAnswer
from ..core.stages import QuestionsStage
from ..core.text import shortened
from ..core.types import Document, Hit, Label, Verdict
from ..llm.model import LanguageModel
from ..llm.prompts import Prompt, load_prompt, quoted, refuse_unknown
from ..llm.types import Message, Question, Reply, T, estimate_tokens

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
QUESTION_CHARS = 1_000
QUERY_CHARS = 1_000
ANSWER_CHARS = 10_000
_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}", "\N{GREEK QUESTION MARK}")
_BEGINS_SO = re.compile(r"(?:yes|no)\b", re.IGNORECASE)
SOURCE_CHARS = 80
_ARCHIVES = ("web.archive.org", "archive.org", "perma.cc", "archive.ph", "archive.is")


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


# -- asking


class Asking:
    """The questions to a language model, with the prompts loaded.

    Raises InvalidData or NotFound for prompts of the user's that can't be used.
    """

    def __init__(
        self,
        llm: LanguageModel,
        stage: QuestionsStage,
        asker: LanguageModel | None = None,
    ) -> None:
        """`asker` writes the questions and queries, by default `llm`."""
        refuse_unknown(llm.prompts_dir)
        self.llm, self.stage, self.asker = llm, stage, asker or llm
        self.name = f"llm:{llm.name} (questions)"
        """The name of the method in results."""
        self._prompts: dict[str, Prompt] = {
            name: load_prompt(__package__, name, placeholders, llm.prompts_dir)
            for name, placeholders in PROMPTS.items()
        }

    def questions(self, claim: str) -> Question[Questions]:
        messages = self._prompts["questions"].messages(claim=_claim(claim), count=str(self.stage.count))
        return self._fitting(Question(messages, Questions, check_questions, 200 + _QUESTION_TOKENS * self.stage.count))

    def queries(self, question: str) -> Question[Queries]:
        messages = self._prompts["queries"].messages(question=quoted(question), count=str(self.stage.queries))
        return self._fitting(Question(messages, Queries, check_queries, _QUERY_TOKENS * self.stage.queries))

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
        return self._fitting(self._answer(question, lines)), len(lines)

    def veracity(self, claim: str, answers: Sequence[QuestionAnswer]) -> Question[Veracity]:
        """The question that asks for the verdict. Questions that failed are left out of it."""
        lines = [quoted({"question": one.question, "answer": one.answer}) for one in answers if one.answer is not None]
        messages = self._prompts["veracity"].messages(claim=_claim(claim), answers="\n".join(lines))
        return self._fitting(Question(messages, Veracity, check_veracity, _VERACITY_TOKENS))

    def verdict(self, reply: Veracity) -> Verdict:
        rationale = one_line(reply.reasoning)[:RATIONALE_CHARS]
        return Verdict(VERACITY[reply.label], None, rationale, self.name)

    def _fitting(self, question: Question[T]) -> Question[T]:
        """The question, with an answer no longer than the model's context has room for."""
        room = int(self.stage.context - estimate_tokens(question.messages) * _INEXACT)
        return replace(question, most=max(_REPLY_TOKENS, room))

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


# -- where a passage comes from


def page_url(document: Document) -> str | None:
    """The address of a page: its `url`, else its id if that is one."""
    for value in (document.metadata.get("url"), document.metadata.get("source_url"), document.id):
        if isinstance(value, str) and value.startswith(("http://", "https://")):
            return value
    return None


def source_name(document: Document) -> str:
    """The name of the site where the page has one (`source`, `sitename`), else its host, else its title or id.

    An address in a web archive counts as the page that was archived.
    """
    for field in ("source", "sitename"):
        value = document.metadata.get(field)
        if isinstance(value, str) and value:
            return shortened(value, SOURCE_CHARS)
    url = page_url(document)
    if url is not None:
        return shortened(_host(url), SOURCE_CHARS)
    return shortened(document.title or document.id, SOURCE_CHARS)


def _host(url: str) -> str:
    try:
        host = urlsplit(url).hostname or url
    except ValueError:
        return url
    inner = max(url.find("http://", 8), url.find("https://", 8))
    if host in _ARCHIVES and inner > 0:
        return _host(url[inner:])
    return host.removeprefix("www.")
