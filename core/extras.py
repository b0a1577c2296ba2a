"""Whether optional parts are installed."""

from __future__ import annotations

import importlib.util

from .errors import MissingExtra


def require(purpose: str, extra: str, *modules: str) -> None:
    """Raises MissingExtra unless these modules, which the extra brings, are installed. Imports none of them."""
    if not all(importlib.util.find_spec(name) for name in modules):
        raise MissingExtra(purpose, extra)
