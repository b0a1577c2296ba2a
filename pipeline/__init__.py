"""What runs a recipe: a `Checker` from claims to results, and what an ingest needs for it."""

from .checker import Checker

__all__ = ["Checker"]
