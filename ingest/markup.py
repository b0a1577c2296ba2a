"""Titles and abstracts with markup, as Crossref (JATS), Europe PMC and OpenAlex (HTML) give them, as plain text."""

from __future__ import annotations

import html
import re

_BLOCK = re.compile(r"</?(?:jats:)?(?:p|h[1-6]|title|sec|br|div|li|list|list-item)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][\w:.-]*(?:\s[^<>]*)?/?>")
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")
_HEADING = re.compile(r"^\s*(?:abstract|summary)\s*[:.]?\s*\n", re.IGNORECASE)


def plain(text: str) -> str:
    """The text without tags and entities; blocks end lines. "p<0.05" is not a tag and stays."""
    if "<" not in text and "&" not in text:
        return text.strip()
    text = _TAG.sub("", _BLOCK.sub("\n", text))
    text = _LINES.sub("\n", _SPACES.sub(" ", html.unescape(text))).strip()
    return _HEADING.sub("", text, count=1)
