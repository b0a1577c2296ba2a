"""What the tests of the client of language models ask, and what they are answered."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import Field
from scripted_llm import Said, say, user_text

from ccheck.llm.model import LanguageModel
from ccheck.llm.types import Message, Question, Reply


@pytest.fixture(name="open_model")
def patient_models(open_model: Callable[..., LanguageModel]) -> Callable[..., LanguageModel]:
    """Models that have the time to try again."""
    return functools.partial(open_model, llm_retry_seconds=30)


class Number(Reply):
    number: int
    share: float = Field(ge=0, le=1)


GOOD = {"number": 7, "share": 0.5}


def words(text: str = "How many?") -> tuple[Message, ...]:
    return ({"role": "system", "content": "Count."}, {"role": "user", "content": text})


def many(count: int) -> list[Question[Number]]:
    return [Question(words(f"question {number}"), Number) for number in range(count)]


def numbered(request: dict[str, Any]) -> Said:
    return say({"number": int(user_text(request).split()[1]), "share": 1})
