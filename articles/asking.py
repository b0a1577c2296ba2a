"""Asks language models to describe an article's elements, and to order elements and select sentences by number."""

from __future__ import annotations

from collections.abc import Sequence

from ..llm import LanguageModel, Reply, load_prompt, quoted

ELEMENTS, PASSAGES = ("claim", "count", "elements", "chunks"), ("claim", "count", "sentences")
ELEMENT = ("label", "text")
"""The placeholders of the prompts."""
CHUNK_CHARS = 6_000
"""Characters of a piece of the article that the model reads."""


class ElementOrder(Reply):
    """The numbers of elements, best first."""

    order: list[int]


class Selection(Reply):
    """The numbers of sentences."""

    selected: list[int]


class Description(Reply):
    """What an element presents."""

    description: str


def rephrased(llm: LanguageModel, label: str, text: str) -> str:
    """What the element with this label presents, given the text that stands for it."""
    prompt = load_prompt(__package__, "figure-description", ELEMENT, llm.prompts_dir)
    messages = prompt.messages(label=quoted(label), text=quoted(text[:CHUNK_CHARS]))
    return llm.ask(messages, Description).value.description


def ordered(llm: LanguageModel, claim: str, labels: Sequence[str], chunks: Sequence[str]) -> list[int]:
    """The numbers of the elements with these labels, from 0, best first."""
    prompt = load_prompt(__package__, "figures", ELEMENTS, llm.prompts_dir)
    read = "\n".join(quoted(text[:CHUNK_CHARS]) for text in chunks)
    messages = prompt.messages(
        claim=quoted(claim), count=str(len(labels)), elements=_numbered("label", labels), chunks=read
    )
    answer = llm.ask(messages, ElementOrder, check=lambda reply: _check(reply.order, len(labels)))
    return [number - 1 for number in answer.value.order]


def selected(llm: LanguageModel, claim: str, texts: Sequence[str]) -> list[int]:
    """The numbers of the sentences, from 0, that ground the claim."""
    prompt = load_prompt(__package__, "grounding-passages", PASSAGES, llm.prompts_dir)
    messages = prompt.messages(claim=quoted(claim), count=str(len(texts)), sentences=_numbered("sentence", texts))
    answer = llm.ask(messages, Selection, check=lambda reply: _check(reply.selected, len(texts)))
    return [number - 1 for number in answer.value.selected]


def _check(numbers: Sequence[int], count: int) -> None:
    """Raises ValueError, whose message the model reads."""
    if wrong := next((number for number in numbers if not 1 <= number <= count), None):
        raise ValueError(f"{wrong} is not one of the numbers 1 to {count}")
    if len(set(numbers)) < len(numbers):
        raise ValueError("a number occurs more than once")


def _numbered(name: str, texts: Sequence[str]) -> str:
    return "\n".join(
        f'{{"number": {number}, "{name}": {quoted(text[:CHUNK_CHARS])}}}' for number, text in enumerate(texts, 1)
    )
