"""Text from elsewhere, made safe to show."""

from __future__ import annotations

import re

# Besides control characters: those that turn the direction of the text around them.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SPACE = re.compile(r"[\t\n\u2028\u2029]")


def without_controls(text: str) -> str:
    """Text without what could steer a terminal or turn the text beside it; lines and tabs stay."""
    return _CONTROL.sub("", text)


def printable(text: str) -> str:
    """The same on one line."""
    return _SPACE.sub(" ", without_controls(text))


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit].rstrip()} …"
