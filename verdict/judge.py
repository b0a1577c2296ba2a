"""Who judges: from a claim and its evidence to a stance for each document and a verdict for the claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..types import Claim, Evidence, Stance, Verdict

NOT_SET_UP = (
    "no verdict model is set up: read the sentences and judge for yourself, or give your own by ccheck.open(judge=...)"
)


class Judge(Protocol):
    """Judges one claim. An exception becomes the verdict's error, never a label."""

    def __call__(self, claim: Claim, evidence: Sequence[Evidence]) -> tuple[Sequence[Stance], Verdict]:
        """The stance of each piece of evidence, in order, and the verdict."""
        ...
