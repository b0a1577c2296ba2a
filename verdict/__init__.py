"""Evidence and verdict: which sentences bear on the claim, and what they say about it."""

from .evidence import choose_sentences
from .judge import (
    Case,
    Judge,
    Judged,
    StanceMethod,
    all_judged,
    conclude,
    no_claim,
    nothing_bears,
    of_parts,
    with_stances,
)
from .packaged_model import is_packaged

__all__ = [
    "Case",
    "Judge",
    "Judged",
    "StanceMethod",
    "all_judged",
    "choose_sentences",
    "conclude",
    "is_packaged",
    "no_claim",
    "nothing_bears",
    "of_parts",
    "with_stances",
]
