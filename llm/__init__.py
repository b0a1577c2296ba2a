"""Language models: asking one over HTTP for answers of a given shape, with a cache, a budget and retries."""

from .budget import Budget, open_budget
from .model import LanguageModel, open_llm
from .prompts import LabelledPair, Prompt, load_pairs, load_prompt, quoted, refuse_unknown
from .types import (
    Answer,
    BudgetSpent,
    Failure,
    InvalidReply,
    Message,
    Question,
    Refused,
    Reply,
    Unreachable,
    estimate_tokens,
)

__all__ = [
    "Answer",
    "Budget",
    "BudgetSpent",
    "Failure",
    "InvalidReply",
    "LabelledPair",
    "LanguageModel",
    "Message",
    "Prompt",
    "Question",
    "Refused",
    "Reply",
    "Unreachable",
    "estimate_tokens",
    "load_pairs",
    "load_prompt",
    "open_budget",
    "open_llm",
    "quoted",
    "refuse_unknown",
]
