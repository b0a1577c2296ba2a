"""Texts that a language model writes about each document, by which people can find it too.

A summary with words that people search by, and posts of social media about it, as in appendix D of the CheckThat! 2025
system on task 4b ("additional documents").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from ..core.cache import memory_key
from ..core.errors import CcheckError, UsageError
from ..core.layout import AdditionalTexts
from ..core.stages import AdditionalStage
from ..core.types import Document, Usage
from ..llm.model import LanguageModel
from ..llm.prompts import load_prompt, quoted
from ..llm.types import (
    Answer,
    BudgetSpent,
    Failure,
    InvalidReply,
    Question,
    Refused,
    Reply,
    Unreachable,
    estimate_tokens,
)
from .documents import clean

PROMPTS = {"additional-summary": ("document",), "additional-posts": ("document", "count")}
"""The prompts of this room and the placeholders that each must have."""
LONGEST = 20_000
"""Characters of a document that the model reads, about 5,000 tokens: an abstract and far more."""
LONGEST_SUMMARY, LONGEST_POST = 4_000, 1_000
"""Characters; what is longer is not what was asked for."""
TOKENS_SUMMARY, TOKENS_POST = 150, 60
"""Tokens of an answer, and of each post, for estimates."""

Written: TypeAlias = "tuple[str, ...] | CcheckError"


class Summary(Reply):
    """What the model answers when it is asked for a summary."""

    summary: str

    def texts(self) -> dict[str, str]:
        return {"the summary": self.summary}


class Posts(Reply):
    """What the model answers when it is asked for posts."""

    posts: list[str]

    def texts(self) -> dict[str, str]:
        return {f"post {number}": post for number, post in enumerate(self.posts, 1)}


class AdditionalWriter:
    """Writes about documents, with `questions_each`. `usage` is what it cost so far."""

    def __init__(self, llm: LanguageModel, stage: AdditionalStage) -> None:
        """Raises UsageError if the stage asks for no text, InvalidData or NotFound for prompts that can't be used."""
        if not stage.summary and not stage.posts:
            raise UsageError(
                "[ingest.additional] asks for neither a summary nor posts: set one of them, or leave the table out"
            )
        self._llm, self._stage = llm, stage
        names = ["additional-summary"] * stage.summary + ["additional-posts"] * bool(stage.posts)
        self._prompts = {name: load_prompt(__package__, name, PROMPTS[name], llm.prompts_dir) for name in names}
        asked = (part for name, one in self._prompts.items() for part in (name, one.system, one.user))
        identity = memory_key(*map(str.encode, asked)).hex()[:16]
        self.spec = AdditionalTexts(llm.name, stage.summary, stage.posts, identity)
        self.usage = Usage()
        self.questions_each = len(self._prompts)

    def write(
        self, documents: Sequence[Document], on_done: Callable[[int], None] = lambda done: None
    ) -> tuple[list[Written | None], CcheckError | None]:
        """The texts about each document, the summary first, or why they could not be written.

        The second value says why it was given up, if it was: what may be spent is spent, or the server is gone or
        answers nobody. Documents that were not asked about for that reason have None in place of texts. `on_done`
        is told how many documents have all their answers.
        """
        questions = [question for document in documents for question in self._questions(document)]
        answers = self._llm.ask_many(questions)
        written: list[Written | None] = []
        stopped: CcheckError | None = None
        try:
            for _ in documents:
                texts = self._texts([next(answers) for _ in range(self.questions_each)])
                if isinstance(texts, (BudgetSpent, Unreachable, Refused)):
                    stopped = stopped or texts
                    written.append(None)
                else:
                    written.append(texts)
                on_done(len(written))
        except Refused as error:  # before anything was answered
            stopped = error
        return [*written, *[None] * (len(documents) - len(written))], stopped

    def plan(self, documents: Sequence[Document]) -> Usage:
        """What the questions about documents, `questions_each`, would cost, estimated without asking them."""
        questions = [question for document in documents for question in self._questions(document)]
        new = [question for question in questions if not self._llm.is_cached(question)]
        read = sum(estimate_tokens(question.messages) for question in new)
        said = sum(TOKENS_SUMMARY if one.reply is Summary else TOKENS_POST * self._stage.posts for one in new)
        return Usage(len(new), read, said, len(questions) - len(new))

    def _questions(self, document: Document) -> Iterator[Question[Any]]:
        paper, count = quoted({"title": document.title, "text": document.text[:LONGEST]}), self._stage.posts
        if (prompt := self._prompts.get("additional-summary")) is not None:
            yield Question(prompt.messages(document=paper), Summary, lambda reply: _check(reply, 1, LONGEST_SUMMARY))
        if (prompt := self._prompts.get("additional-posts")) is not None:
            messages = prompt.messages(document=paper, count=str(count))
            yield Question(messages, Posts, lambda reply: _check(reply, count, LONGEST_POST), 80 * count)

    def _texts(self, answers: Sequence[Answer[Any] | Failure]) -> Written:
        texts: list[str] = []
        errors: list[CcheckError] = []
        for answer in answers:
            self.usage += answer.usage
            if isinstance(answer, Failure):
                errors.append(answer.error)
            else:
                texts += map(clean, answer.value.texts().values())
        # One that concerns all documents comes before one that concerns this one.
        return min(errors, key=lambda error: isinstance(error, InvalidReply), default=tuple(texts))


def _check(reply: Summary | Posts, count: int, most: int) -> None:
    texts = reply.texts()
    if len(texts) != count:
        raise ValueError(f"expected {count} posts, got {len(texts)}")
    for what, text in texts.items():
        if not clean(text):
            raise ValueError(f"{what} is empty")
        if len(text) > most:
            raise ValueError(f"{what} has {len(text):,} characters, more than the limit of {most:,}")
