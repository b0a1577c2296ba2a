"""Judges: claims with their evidence in, a stance for each document and a verdict for each claim out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..core.analysis import MADE_FOR, foreign_language
from ..core.errors import CcheckError
from ..core.types import Claim, Evidence, Sentence, Stance, Usage, Verdict, document_text
from .labels import STANCES

GROUP = 64
"""About how many pairs a method reads together. The claims of a group are ready together."""
NO_TEXT = "the document has neither title nor text"


class Judge(Protocol):
    """A user's own judge, of one claim. An exception becomes the verdict's error, never a label."""

    def __call__(self, claim: Claim, evidence: Sequence[Evidence]) -> tuple[Sequence[Stance], Verdict]:
        """The stance of each piece of evidence, in order, and the verdict."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """A claim with the evidence to judge, best first."""

    claim: Claim
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """A method's answer for a case: a stance for each piece of evidence, in order.

    `quotes` are the sentences that the method itself gave as its reasons, for each piece of evidence, with the offsets
    at which they stand in the document; empty if it gives none. `seconds`: what the case took, if the method knows; of
    cases that are read together, each has its share.
    """

    stances: tuple[Stance, ...]
    quotes: tuple[tuple[Sentence, ...], ...] = ()
    usage: Usage = field(default_factory=Usage)
    seconds: float | None = None


class StanceMethod(Protocol):
    """Tells what documents say about claims. `name` is its name in results: `llm:gpt-4.1 (one-step)`,
    `stance:FOLDER`."""

    name: str

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """One for each case, in order, each as soon as it is there.

        A document that can't be judged gets a stance without a label, with its error. Raises CcheckError for failures
        that concern all.
        """
        ...


def all_judged(method: StanceMethod, cases: Sequence[Case]) -> Iterator[Judged]:
    """One for each case. If the method fails altogether, the remaining cases have its error."""
    done = 0
    try:
        for judged in method(cases):
            done += 1
            yield judged
    except CcheckError as error:
        for case in cases[done:]:
            yield Judged(tuple(Stance(None, error=str(error)) for _ in case.evidence))


def in_groups(cases: Sequence[Case], judge: Callable[[list[Case]], Iterable[Judged]]) -> Iterator[Judged]:
    """What `judge` says of the cases, about `GROUP` pieces of evidence at a time."""
    group: list[Case] = []
    for number, case in enumerate(cases, 1):
        group.append(case)
        if number == len(cases) or sum(len(case.evidence) for case in group) >= GROUP:
            started = time.perf_counter()
            judged = list(judge(group))
            share = (time.perf_counter() - started) / len(group)
            yield from (replace(one, seconds=share) for one in judged)
            group = []


def likeliest(probabilities: Sequence[float], threshold: float = 0.0) -> Stance:
    """The stance of the label with the highest probability. `probabilities` are in the order of `STANCES`.

    NOT_ENOUGH_INFO if that is a side with a probability below the threshold.
    """
    named: dict[str, float] = {label: round(float(it), 6) for label, it in zip(STANCES, probabilities, strict=True)}
    label = max(STANCES, key=lambda label: named[label])
    if named[label] < threshold:
        label = "NOT_ENOUGH_INFO"
    return Stance(label, named[label], probabilities=named)


class EnglishOnly:
    """A `StanceMethod` around another one, which gets only English claims and documents: in other languages it would
    take shared names for support."""

    def __init__(self, method: StanceMethod) -> None:
        self.method = method
        self.name = method.name

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """One for each case, in order. A pair in another language gets a stance without a label, and the reason."""
        reasons = [[_reason(case, piece) for piece in case.evidence] for case in cases]
        asked = [
            replace(case, evidence=tuple(piece for piece, why in zip(case.evidence, some, strict=True) if why is None))
            for case, some in zip(cases, reasons, strict=True)
        ]
        for judged, some in zip(self.method(asked), reasons, strict=False):
            stances, quotes = iter(judged.stances), iter(judged.quotes)
            yield replace(
                judged,
                stances=tuple(next(stances) if why is None else Stance(None, error=why) for why in some),
                quotes=tuple(next(quotes) if why is None else () for why in some) if judged.quotes else (),
            )


def _reason(case: Case, piece: Evidence) -> str | None:
    """Why a pair is not judged; None if it is."""
    document = piece.document
    for what, text in (("claim", case.claim.text), ("document", document.text or document_text(document.title, ""))):
        if (language := foreign_language(text)) is not None:
            return (
                f"the {what} seems to be in {language}, and this judge was made for {MADE_FOR}. Use a language model "
                "(--llm), which reads other languages"
            )
    return None


def with_stances(evidence: Sequence[Evidence], judged: Judged, count: int) -> tuple[Evidence, ...]:
    """The evidence with stances; a method's own quotes come before the sentences that were chosen."""
    quotes = judged.quotes or ((),) * len(judged.stances)
    read = [
        replace(piece, stance=stance, sentences=_first(own, piece.sentences, count))
        for piece, stance, own in zip(evidence, judged.stances, quotes, strict=False)
    ]
    return (*read, *evidence[len(read) :])


def _first(own: Sequence[Sentence], chosen: Sequence[Sentence], count: int) -> tuple[Sentence, ...]:
    apart = [
        one
        for one in chosen
        if not any(one.field == quote.field and one.start < quote.end and quote.start < one.end for quote in own)
    ]
    return (*own, *apart)[: max(count, len(own))]
