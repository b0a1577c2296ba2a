"""The test that a reranker must pass before it is served: known pairs, in the right order, the same each time.

Servers were seen that gave every pair the same score without an error (vLLM, issue 27857).
"""

from __future__ import annotations

import math
from typing import Literal

from ...core.errors import InvalidData
from ..types import Scorer

PAIRS = (
    (
        "What causes sea level to rise?",
        "Sea level rises because sea water expands as it warms and because glaciers and ice sheets melt.",
        "The recipe needs two eggs, a cup of flour and a pinch of salt.",
    ),
    (
        "How is malaria transmitted?",
        "Malaria is transmitted to people through the bites of infected female Anopheles mosquitoes.",
        "The museum opens at ten in the morning and is closed on Mondays.",
    ),
    (
        "Which planet is the largest in the solar system?",
        "Jupiter is the largest planet of the solar system, with more than twice the mass of all others together.",
        "She learned to play the violin at the age of six.",
    ),
)
"""A query, a passage that answers it, and one that has nothing to do with it."""
TOLERANCE = 0.05
"""How far the same pair's scores may differ, relative to the largest: bfloat16 in other batches rounds otherwise."""

Canary = Literal["order", "repeat"]


def check_scorer(scorer: Scorer, canary: Canary = "order") -> None:
    """`repeat` leaves out the order, for models that were not trained.

    Raises InvalidData if a score is not finite, all are the same, the same pair gets another score the second time,
    or a passage that answers a query comes out below one that does not.
    """
    encoded = [one for query, *passages in PAIRS for one in scorer.encode(query, passages)]
    first, second = scorer.score(encoded), scorer.score(list(reversed(encoded)))[::-1]
    if len(first) != len(encoded) or not all(map(math.isfinite, (*first, *second))):
        raise _wrong(scorer, "a score is not a number")
    if len(set(first)) == 1:
        raise _wrong(scorer, f"every pair has the same score, {first[0]:g}")
    furthest = max(abs(a - b) for a, b in zip(first, second, strict=True))
    if furthest > TOLERANCE * max(1.0, *map(abs, first)):
        raise _wrong(scorer, f"the same pair's scores differ by {furthest:g} from one time to the next")
    if canary == "order":
        for (query, *_), answers, other in zip(PAIRS, first[::2], first[1::2], strict=True):
            if not answers > other:
                raise _wrong(
                    scorer,
                    f"for {query!r}, a passage that answers it scores {answers:g}, and one that does not "
                    f"scores {other:g}. "
                    "Is this a trained reranker with the right prompt? --canary repeat serves it anyway",
                )


def _wrong(scorer: Scorer, what: str) -> InvalidData:
    return InvalidData(f"the model {scorer.name} failed the check with known pairs: {what}")
