"""Questions to language models, their answers, and the errors in place of an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypedDict, TypeVar

from pydantic import BaseModel, ConfigDict

from ..core.errors import CcheckError, Incomplete, ServerError
from ..core.types import Usage


class Reply(BaseModel):
    """The shape of a reply: exactly these keys, each of its own type."""

    model_config = ConfigDict(extra="forbid", frozen=True)


T = TypeVar("T", bound=BaseModel)


class Message(TypedDict):
    """One turn of a conversation. `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A question to a model. `check` raises ValueError where a reply of the right shape makes no sense.

    `tokens`: about how many the answer needs, if that is many; twice as many are allowed then. `most`: how many are
    allowed at most, where the model's context has no room for more.
    """

    messages: tuple[Message, ...]
    reply: type[T]
    check: Callable[[T], object] | None = None
    tokens: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A model's answer. If the question was asked before, `usage.cached` is 1 and it cost nothing."""

    value: T
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failure:
    """A question without an answer, and what it cost nevertheless."""

    error: CcheckError
    usage: Usage


class InvalidReply(ServerError):
    """The model answered twice, and neither reply was valid. `value` is the last one if its shape was right."""

    def __init__(self, message: str, value: BaseModel | None = None) -> None:
        super().__init__(message)
        self.value = value


class Refused(ServerError):
    """The server will not answer any question: the key, the address or the model's name is wrong.

    `one`: where it answered others before, it may mean this one question only.
    """

    def __init__(self, message: str, *, one: bool = False) -> None:
        super().__init__(message)
        self.one = one


class Unreachable(ServerError):
    """The server did not recover while we waited: it is gone, or too busy."""


class BudgetSpent(Incomplete):
    """Not asked, because the limit on calls or cost is reached."""


def estimate_tokens(messages: Iterable[Message]) -> int:
    """About how many tokens the messages are, without the model's tokenizer: one for four characters of ASCII text,
    one for each other character, and four for each message. English prose is within a fifth of it."""
    total = 0.0
    for message in messages:
        other = sum(not character.isascii() for character in message["content"])
        total += 4 + (len(message["content"]) - other) / 4 + other
    return math.ceil(total)
