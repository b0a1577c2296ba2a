"""A scripted server that asks and answers questions: what it says is given by the kind of reply that is wanted."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scripted_llm import Said, ScriptedLlm, say, scripted, user_text

QUESTIONS = (
    "How much has the sea level risen since 1900?",
    "Is the sea level still rising?",
    "Who measures the sea level?",
    "How fast did the sea level rise in the last ten years?",
)
RECIPE = """
[ingest.units.chunk]
cut = "chunk"
characters = 300
[retrievers.bm25]
units = "chunk"
depth = 8
[fusion]
k = 4
[questions]
queries = 1
{more}
[verdict]
method = "llm"
"""

Answerer = Callable[[str], Any]
"""From the user's message to what the model says: a `Said`, or a value that becomes JSON."""


def kind_of(request: dict[str, Any]) -> str:
    """`Questions`, `Queries`, `PassageAnswer` or `Veracity`: the name of the schema that the server is given."""
    return str(request["response_format"]["json_schema"]["name"])


def passages_of(text: str) -> list[dict[str, Any]]:
    """The passages in the user's message of a question to be answered."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"number"')]


def asked_of(text: str) -> str:
    """The question that is to be answered or searched for, in the user's message."""
    line = next(line for line in text.splitlines() if line.startswith("Question: "))
    return str(json.loads(line.removeprefix("Question: ")))


def cite_first(text: str) -> dict[str, Any]:
    """An answer that quotes its first passage."""
    first = passages_of(text)[0]
    begin = "Yes. " if asked_of(text).startswith("Is ") else ""
    answer = f"{begin}As reported by {first['source']}: {first['text'][:100]}"
    return {"reasoning": "The first passage says so.", "answerable": True, "answer": answer, "passages": [1]}


GAP = {"reasoning": "Nothing bears on it.", "answerable": False, "answer": "", "passages": []}
SAYS: dict[str, Answerer] = {
    "Questions": lambda text: {"analysis": "It is about the sea.", "questions": list(QUESTIONS)},
    "Queries": lambda text: {"queries": [f"according to scientists {asked_of(text)}"]},
    "PassageAnswer": cite_first,
    "Veracity": lambda text: {"reasoning": "The answers say so.", "label": "Supported"},
}


@contextmanager
def questioned(**says: Answerer) -> Iterator[ScriptedLlm]:
    """The server. `says` has what it says to some kinds of request, in place of `SAYS`."""

    def answer(request: dict[str, Any]) -> Said:
        said = (SAYS | says)[kind_of(request)](user_text(request))
        return said if isinstance(said, Said) else say(said)

    with scripted(answer) as llm:
        yield llm
