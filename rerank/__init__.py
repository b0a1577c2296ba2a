"""Rerankers: texts in, scores out, in the order given."""

from .types import Encoded, Reranker, Scorer, Scores, sigmoid

__all__ = ["Encoded", "Reranker", "Scorer", "Scores", "sigmoid"]
