"""Evidence and verdict: which sentences bear on the claim, and what they say of it."""

from .evidence import choose_sentences
from .judge import NOT_SET_UP, Case, Judge, Judged, StanceMethod

__all__ = ["NOT_SET_UP", "Case", "Judge", "Judged", "StanceMethod", "choose_sentences"]
