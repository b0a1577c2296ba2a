"""Expressions that are common in passages which say how something was found: "in the absence of", "were assigned to".

Bölücü et al. (SDP 2024, 4.2) filter with such a list.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ..core.errors import InvalidData
from ..core.files import read_text

_TOKEN = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|[^\w\s]")
MOST = 50_000
"""Characters of one passage that are read."""


@dataclass(frozen=True)
class Expressions:
    """A list of expressions, in lower case, tokens joined by single spaces."""

    expressions: tuple[str, ...]

    @functools.cached_property
    def _sequences(self) -> dict[str, list[tuple[str, ...]]]:
        found: dict[str, list[tuple[str, ...]]] = {}
        for expression in self.expressions:
            words = tuple(tokens(expression))
            if words:
                found.setdefault(words[0], []).append(words)
        return found

    def found_in(self, text: str) -> bool:
        """Whether the text holds one of the expressions, as whole words."""
        words = tokens(text)
        return any(
            tuple(words[start : start + len(sequence)]) == sequence
            for start, word in enumerate(words)
            for sequence in self._sequences.get(word, ())
        )


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, in lower case."""
    return [token.lower() for token in _TOKEN.findall(text[:MOST])]


def packaged() -> Expressions:
    """ccheck's own list."""
    return _listed((files(f"{__package__}") / "expressions.txt").read_text(encoding="utf-8"))


def load(path: str | Path) -> Expressions:
    """Reads a text file with one expression per line. Raises NotFound, or InvalidData if it has none."""
    found = _listed(read_text(path, "the expressions"))
    if not found.expressions:
        raise InvalidData(f"{path} has no expressions. Write one on each line")
    return found


def _listed(text: str) -> Expressions:
    return Expressions(tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")))
