"""Whether a text is a claim at all. A question that yes or no answers is judged like the claim that yes would be; other
questions have no verdict.

Of 20,377 claims of SciFact, FEVER, Climate-FEVER, AVeriTeC, CliniFact and COVID-Fact, none is taken for an open
question and 7 for a yes/no question, which they are.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from ..core.analysis import sentence_spans
from ..core.types import Verdict
from .questions import is_yes_no

Wording: TypeAlias = Literal["statement", "yes_no_question", "open_question"]

_ASKS = re.compile(
    r"(?:(?:in|on|at|to|for|from|by|with|of)\s)?(?:what|which|who|whom|whose|when|where|why|how)\b", re.IGNORECASE
)
YES_NO = "the claim is a question: SUPPORTS means that the answer is yes, REFUTES that it is no"


def wording_of(text: str) -> Wording:
    """What an English text is. What has several sentences or no question mark counts as a statement."""
    text = text.strip()
    if not text.endswith("?") or len(sentence_spans(text)) != 1:
        return "statement"
    if is_yes_no(text):
        return "yes_no_question"
    return "open_question" if _ASKS.match(text) else "statement"


def no_claim() -> Verdict:
    """The verdict on a question that yes or no does not answer."""
    why = "this question is not answered by yes or no, so there is nothing to support or refute. Write a claim instead"
    return Verdict("NOT_ENOUGH_INFO", None, why, "wording", reason="no_claim")
