"""Expressions that are common in passages which say how something was found: "in the absence of", "were assigned to".

Learned as Bölücü et al. do (SDP 2024, 4.2): for each labelled passage the longest sequence of tokens that it shares
with another one, if it has a verb, an adjective or a noun. Without a tagger, a word counts as one of these if it is in
no closed class (articles, pronouns, prepositions, conjunctions, auxiliaries, adverbs in -ly) and has letters.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ..core.errors import InvalidData
from ..core.files import read_text, write_text

_TOKEN = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|[^\w\s]")
_CLOSED = frozenset(
    """
    a an the this that these those some any no each every all both either neither such
    i we you he she it they me us him her them my our your his its their one who whom which whose what
    of in on at by for with from to into onto over under above below between among through during before after
    about against within without across along around behind beyond near per than via as upon toward towards up down out
    off     and or but nor so yet if because while whereas although though since until unless when where how why whether
    is are was were be been being am do does did done has have had having can could may might must shall
    should will would     not also only very more most less least then there here thus
    hence too even just both same other another
    """.split()
)
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

    def save(self, path: str | Path) -> None:
        """Raises UsageError if the file can't be written."""
        write_text(path, "".join(f"{one}\n" for one in self.expressions), "the expressions")


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, in lower case."""
    return [token.lower() for token in _TOKEN.findall(text[:MOST])]


def is_content(token: str) -> bool:
    """Whether a token can be a verb, an adjective or a noun."""
    return token not in _CLOSED and not token.endswith("ly") and any(character.isalpha() for character in token)


def learn(passages: Sequence[tuple[str, str]], *, most_words: int = 8) -> Expressions:
    """The expressions of labelled passages, (article, text) each, those found in most passages first.

    A sequence counts as shared only between passages of two articles, since those of one repeat its own words. It has
    two to `most_words` tokens and no punctuation.
    """
    texts = list(dict.fromkeys(passages))
    holders: dict[tuple[str, ...], set[str]] = {}
    sequences: list[list[tuple[str, ...]]] = []
    for article, text in texts:
        words = tokens(text)
        own: dict[tuple[str, ...], None] = {}
        for length in range(most_words, 1, -1):
            for start in range(len(words) - length + 1):
                sequence = tuple(words[start : start + length])
                if all(word[0].isalnum() for word in sequence) and any(map(is_content, sequence)):
                    own[sequence] = None
        sequences.append(list(own))
        for sequence in own:
            holders.setdefault(sequence, set()).add(article)
    found: Counter[str] = Counter()
    for own_sequences in sequences:
        shared = [one for one in own_sequences if len(holders[one]) > 1]
        longest = max((len(one) for one in shared), default=0)
        found.update(" ".join(one) for one in shared if len(one) == longest)
    return Expressions(tuple(name for name, _ in sorted(found.items(), key=lambda item: (-item[1], item[0]))))


def packaged() -> Expressions:
    """ccheck's own list."""
    return _listed((files(f"{__package__}") / "expressions.txt").read_text(encoding="utf-8"))


def load(path: str | Path) -> Expressions:
    """Reads what `save` wrote: a text file with one expression per line. Raises NotFound or InvalidData."""
    found = _listed(read_text(path, "the expressions"))
    if not found.expressions:
        raise InvalidData(f"{path} has no expressions. Make a list with ccheck train expressions")
    return found


def _listed(text: str) -> Expressions:
    return Expressions(tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")))
