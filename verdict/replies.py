"""The shapes of a language model's answers, what makes no sense in them, and the stances that they mean."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..core.types import Document, Label, Sentence, Stance
from ..llm import Reply
from .quotes import find_quote

Confidence = Annotated[float, Field(ge=0, le=1)]
StanceLabel = Literal["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO"]
_RATIONALE = 1_000
"""Characters of a rationale that are kept."""


class OneStep(Reply):
    """The reason, the sentence that shows it, the label: in this order, since models write from left to right."""

    rationale: str
    quote: str
    label: StanceLabel
    confidence: Confidence


class Relevance(Reply):
    """Whether there is evidence at all."""

    rationale: str
    relevant: bool
    confidence: Confidence


class Polarity(Reply):
    """On which side the evidence stands."""

    rationale: str
    quote: str
    label: Literal["SUPPORTS", "REFUTES"]
    confidence: Confidence


class Hybrid(Reply):
    """Relevance first, then polarity, in one reply."""

    rationale: str
    quote: str
    relevant: bool
    polarity: Literal["SUPPORTS", "REFUTES", "NONE"]
    confidence: Confidence

    @property
    def label(self) -> StanceLabel:
        return "NOT_ENOUGH_INFO" if self.polarity == "NONE" else self.polarity


class BatchItem(Reply):
    """The answer for one pair of many."""

    number: int
    rationale: str
    label: StanceLabel
    confidence: Confidence


class Batch(Reply):
    """The answers for many pairs."""

    answers: list[BatchItem]


class LabelOnly(Reply):
    """What the paper's prompts ask for: the label, no reason and no confidence."""

    label: StanceLabel


class SideOnly(Reply):
    """The second of the paper's two questions."""

    label: Literal["SUPPORTS", "REFUTES"]


class EvidenceOnly(Reply):
    """The first of the paper's two questions."""

    label: Literal["EVIDENCE", "UNKNOWN"]

    @property
    def relevant(self) -> bool:
        return self.label == "EVIDENCE"


class Digits(Reply):
    """The paper's answers for many pairs: 1 not enough information, 2 supports, 3 refutes."""

    answers: list[Annotated[int, Field(ge=1, le=3)]]

    @property
    def labels(self) -> list[StanceLabel]:
        return [_DIGITS[digit] for digit in self.answers]


_DIGITS: dict[int, StanceLabel] = {1: "NOT_ENOUGH_INFO", 2: "SUPPORTS", 3: "REFUTES"}


class Conclusion(Reply):
    """What follows for the claim."""

    rationale: str
    label: Literal["SUPPORTS", "REFUTES", "CONFLICTING", "NOT_ENOUGH_INFO"]
    confidence: Confidence


Quoting = OneStep | Polarity | Hybrid


def check_quoting(reply: Quoting, document: Document) -> None:
    """Raises ValueError if a reply contradicts itself or quotes what the document does not say."""
    check_rationale(reply)
    if isinstance(reply, Hybrid) and reply.relevant != (reply.polarity != "NONE"):
        raise ValueError(
            f"relevant is {str(reply.relevant).lower()} and polarity {reply.polarity}: polarity must be NONE exactly "
            "when relevant is false"
        )
    quote_of(reply, document)


def check_rationale(reply: OneStep | Relevance | Polarity | Hybrid | Conclusion) -> None:
    if not reply.rationale.strip():
        raise ValueError("rationale is empty")


def check_batch(reply: Batch, size: int) -> None:
    """Raises ValueError if not each of the numbers 1 to `size` is answered once."""
    numbers = [item.number for item in reply.answers]
    if strange := sorted(set(numbers).difference(range(1, size + 1))):
        raise ValueError(f"answers has the number {strange[0]}, and the pairs are numbered 1 to {size}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"answers has the number {next(n for n in numbers if numbers.count(n) > 1)} more than once")
    if missing := sorted(set(range(1, size + 1)).difference(numbers)):
        raise ValueError(f"answers lacks the numbers {', '.join(map(str, missing[:20]))}")


def check_digits(reply: Digits, size: int) -> None:
    """Raises ValueError if there is not one digit for each pair: which belongs to which would be a guess."""
    if len(reply.answers) != size:
        raise ValueError(f"answers has {len(reply.answers)} digits, and there are {size} pairs")


def sure_answers(reply: Batch, size: int) -> dict[int, BatchItem]:
    """The answers of a reply that `check_batch` refuses which are beyond doubt all the same, by number.

    None if a number is foreign or occurs twice: then the numbering itself is in doubt.
    """
    numbers = [item.number for item in reply.answers]
    if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(1, size + 1)):
        return {}
    return {item.number: item for item in reply.answers}


def quote_of(reply: Quoting, document: Document) -> tuple[Sentence, ...]:
    """The quoted piece of the document; none where the label needs none. Raises ValueError, see `find_quote`."""
    if reply.label == "NOT_ENOUGH_INFO" and not reply.quote.strip():
        return ()
    return (find_quote(document, reply.quote, reply.confidence),)


def stance_of(label: Label, confidence: float, rationale: str) -> Stance:
    """A stance with a rationale on one line, of a length that can be shown."""
    reason = " ".join(rationale.split())
    return Stance(label, confidence, reason if len(reason) <= _RATIONALE else f"{reason[: _RATIONALE - 1]}…")
