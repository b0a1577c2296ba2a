"""Rerankers: texts in, scores out, in the order given."""

from .types import AnyReranker, Encoded, HitReranker, Reranker, Scorer, Scores, sigmoid

__all__ = ["AnyReranker", "Encoded", "HitReranker", "Reranker", "Scorer", "Scores", "sigmoid"]
