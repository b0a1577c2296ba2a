"""Runs a recipe: a `Checker` that turns claims into results, and what an ingest needs for it."""

from .checker import Checker

__all__ = ["Checker"]
