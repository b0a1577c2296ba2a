"""The shapes of a language model's answers, what makes no sense in them, and the stances that they mean."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ..core.types import Document, Label, Sentence, Stance
from ..llm.reply import check_numbers
from ..llm.types import Reply
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


_DIGITS: dict[int, StanceLabel] = {1: "NOT_ENOUGH_INFO", 2: "SUPPORTS", 3: "REFUTES"}

Single: TypeAlias = OneStep | Relevance | Polarity | Hybrid | LabelOnly | SideOnly | EvidenceOnly
"""The answers about one document."""


def check_single(reply: Single, document: Document) -> None:
    """Raises ValueError if a reply contradicts itself or quotes what the document does not say."""
    if isinstance(reply, LabelOnly | SideOnly | EvidenceOnly):
        return
    if not reply.rationale.strip():
        raise ValueError("rationale is empty")
    if isinstance(reply, Hybrid) and reply.relevant != (reply.polarity != "NONE"):
        raise ValueError(
            f"relevant is {str(reply.relevant).lower()} and polarity {reply.polarity}: polarity must be NONE exactly "
            "when relevant is false"
        )
    if not isinstance(reply, Relevance):
        _quoted(reply, document)


def meant(reply: Single, document: Document) -> tuple[Stance, tuple[Sentence, ...]]:
    """The stance and the quoted piece of the document. Of the first of two questions: that it leaves the claim open."""
    if isinstance(reply, EvidenceOnly):
        return Stance("NOT_ENOUGH_INFO"), ()
    if isinstance(reply, LabelOnly | SideOnly):
        return Stance(reply.label), ()
    if isinstance(reply, Relevance):
        return _stance("NOT_ENOUGH_INFO", reply.confidence, reply.rationale), ()
    return _stance(reply.label, reply.confidence, reply.rationale), _quoted(reply, document)


def check_batch(reply: Batch | Digits, size: int) -> None:
    """Raises ValueError if not each of the numbers 1 to `size` is answered once."""
    if isinstance(reply, Digits):
        if len(reply.answers) != size:  # which belongs to which would be a guess
            raise ValueError(f"answers has {len(reply.answers)} digits, and there are {size} pairs")
        return
    numbers = [item.number for item in reply.answers]
    check_numbers("answers", numbers, size, "pairs")
    if missing := sorted(set(range(1, size + 1)).difference(numbers)):
        raise ValueError(f"answers lacks the numbers {', '.join(map(str, missing[:20]))}")


def meant_by_number(reply: object, size: int) -> dict[int, Stance]:
    """The stances of a reply that are beyond doubt, by number, also of one that `check_batch` refuses.

    None if a number is foreign or occurs twice: then the numbering itself is in doubt.
    """
    if isinstance(reply, Digits) and len(reply.answers) == size:
        return {number: Stance(_DIGITS[digit]) for number, digit in enumerate(reply.answers, 1)}
    items = reply.answers if isinstance(reply, Batch) else []
    numbers = [item.number for item in items]
    if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(1, size + 1)):
        return {}
    return {item.number: _stance(item.label, item.confidence, item.rationale) for item in items}


def _quoted(reply: OneStep | Polarity | Hybrid, document: Document) -> tuple[Sentence, ...]:
    """The quoted piece of the document; none where the label needs none. Raises ValueError, see `find_quote`."""
    if reply.label == "NOT_ENOUGH_INFO" and not reply.quote.strip():
        return ()
    return (find_quote(document, reply.quote, reply.confidence),)


def _stance(label: Label, confidence: float, rationale: str) -> Stance:
    """A stance with a rationale on one line, of a length that can be shown."""
    reason = " ".join(rationale.split())
    return Stance(label, confidence, reason if len(reason) <= _RATIONALE else f"{reason[: _RATIONALE - 1]}…")
