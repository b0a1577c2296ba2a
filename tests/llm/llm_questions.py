"""What the tests of the client of language models ask, and what they are answered."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from scripted_llm import Said, say, user_text

from ccheck.llm import Message, Question, Reply


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
