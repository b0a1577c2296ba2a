"""Who judges: from claims with their evidence to a stance for each document and a verdict for each claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..types import Claim, Evidence, Sentence, Stance, Usage, Verdict


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
    """What a method says of a case: a stance for each piece of evidence, in order.

    `quotes` are the sentences that the method itself gave as its reasons, for each piece of evidence, with the offsets
    at which they stand in the document; empty where it gives none.
    """

    stances: tuple[Stance, ...]
    quotes: tuple[tuple[Sentence, ...], ...] = ()
    usage: Usage = field(default_factory=Usage)


class StanceMethod(Protocol):
    """Tells what documents say of claims. `name` is how results call it: `llm:gpt-4.1 (one-step)`, `stance:FOLDER`."""

    name: str

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """One for each case, in order, each as soon as it is there.

        What can't be judged is a stance without a label, with its error. Raises CcheckError for what fails for all.
        """
        ...
