"""Asks language models to describe an article's elements, and to order elements and select sentences by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..llm import LanguageModel, Reply, load_prompt, quoted
from .figures import Order, Rephrase
from .passages import Select

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


def rephrase_elements(model: Callable[[str | None], LanguageModel]) -> Rephrase:
    """Asks the language model of a name what an element presents, given the text that stands for it."""

    def rephrase(label: str, text: str, name: str | None) -> str:
        llm = model(name)
        prompt = load_prompt(__package__, "figure-description", ELEMENT, llm.prompts_dir)
        messages = prompt.messages(label=quoted(label), text=quoted(text[:CHUNK_CHARS]))
        return llm.ask(messages, Description).value.description

    return rephrase


def order_elements(model: Callable[[str | None], LanguageModel]) -> Order:
    """Asks the language model of a name, which is opened when it is first asked. Numbers begin at 0."""

    def order(claim: str, labels: Sequence[str], chunks: Sequence[str], name: str | None) -> list[int]:
        llm = model(name)
        prompt = load_prompt(__package__, "figures", ELEMENTS, llm.prompts_dir)
        messages = prompt.messages(
            claim=quoted(claim), count=str(len(labels)), elements=_numbered("label", labels), chunks=_listed(chunks)
        )
        answer = llm.ask(messages, ElementOrder, check=lambda reply: _check(reply.order, len(labels)))
        return [number - 1 for number in answer.value.order]

    return order


def select_texts(model: Callable[[str | None], LanguageModel]) -> Select:
    """The same for selecting sentences."""

    def select(claim: str, texts: Sequence[str], name: str | None) -> list[int]:
        llm = model(name)
        prompt = load_prompt(__package__, "grounding-passages", PASSAGES, llm.prompts_dir)
        messages = prompt.messages(claim=quoted(claim), count=str(len(texts)), sentences=_numbered("sentence", texts))
        answer = llm.ask(messages, Selection, check=lambda reply: _check(reply.selected, len(texts)))
        return [number - 1 for number in answer.value.selected]

    return select


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


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(quoted(text[:CHUNK_CHARS]) for text in texts)
