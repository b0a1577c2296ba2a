"""Finding what a language model quotes in the document that it quotes from."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from ..core.types import Document, Sentence
from .differences import NEGATION

_SAME = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201f\u2033", '"'),
    }
)
_HYPHENS = "-\u2010\u2011"
_DASHES = f"{_HYPHENS}\u2012\u2013\u2212"
"""Between numbers, or before one, these belong to it; an em dash does not."""
_FEWEST_WORDS = 3
_LAST_WORD = re.compile(r"([a-z]+(?:'[a-z]+)?)[\s\"'(\[-]*$")
"""The word before a quote, in the same clause."""
_NEGATION = re.compile(rf"{NEGATION}|non")
_BETWEEN = re.compile(r"an?|the|any|all|at|be|been|being|found|shown|seen|of|so|that|to|very|(?!only)\w+ly")
"""Words that may stand between a negation and what it denies: not at all, failed to be, not significantly."""
_MOST_BETWEEN = 3


def find_quote(document: Document, quote: str, score: float) -> Sentence:
    """Where a quote stands in the text or the title: the document's own characters, with exact offsets.

    Runs of white space count as one space, and typographic variants (dashes, quotation marks, compatibility forms such
    as the subscript in CO2, invisible format characters) as their plain forms; nothing else may differ. It begins and
    ends where words and numbers do, and no negation stands right before it: "effective" is not what "ineffective" or
    "not effective" says.
    Raises ValueError, in words for the model that quoted, where the quote is not there or too short to show anything.
    """
    wanted = _folded(quote)[0].strip()
    fields: tuple[tuple[Literal["text", "title"], str], ...] = (("text", document.text), ("title", document.title))
    if not wanted:
        raise ValueError("quote is empty, and this label needs one")
    problem = "quote is not in the paper: copy it character by character from the paper's title or text"
    for name, text in fields:
        folded, places = _folded(text)
        at = folded.find(wanted)
        while at >= 0:
            start, end = places[at], places[at + len(wanted) - 1] + 1
            if _joined(folded, places, text, at) or _joined(folded, places, text, at + len(wanted)):
                problem = "quote begins or ends inside a word or number of the paper: copy whole ones"
            elif (negation := _negation_before(folded, at)) is not None:
                problem = f"quote leaves out the {negation!r} before it, which turns its meaning: copy that, too"
            elif len(wanted.split()) < _FEWEST_WORDS and wanted != folded.strip():
                raise ValueError(f"quote is too short: give at least {_FEWEST_WORDS} words of the paper")
            else:
                return Sentence(text[start:end], name, start, end, score)
            at = folded.find(wanted, at + 1)
    raise ValueError(problem)


def _joined(folded: str, places: list[int], text: str, at: int) -> bool:
    """Whether what stands before a place and what stands behind it are of one word or number."""
    before, behind = folded[max(0, at - 2) : at], folded[at : at + 2]
    if not before or not behind:
        return False
    left, right = before[-1], behind[0]
    if _is_word(left) and _is_word(right):
        return not (_needs_no_space(left) or _needs_no_space(right))
    # The sign before a number.
    if text[places[at - 1]] in _DASHES and right.isdigit() and not _is_word(before[:-1]):
        return True
    for mark, place, other, beyond in ((left, at - 1, before[:-1], right), (right, at, left, behind[1:])):
        if not (_is_word(other) and _is_word(beyond)):
            continue
        original = text[places[place]]
        if mark == "'" or original in _HYPHENS:
            return True
        if (mark in ".," or original in _DASHES) and other.isdigit() and beyond.isdigit():
            return True
    return False


def _is_word(character: str) -> bool:
    """Whether it is a letter, digit or accent. Of no character: no."""
    return character.isalnum() or character == "_" or (character != "" and unicodedata.category(character)[0] == "M")


def _needs_no_space(character: str) -> bool:
    """Chinese, Japanese and Korean: their words are not told apart by spaces."""
    return unicodedata.east_asian_width(character) in "WF"


def _negation_before(folded: str, at: int) -> str | None:
    """The word that denies what stands at a place."""
    rest = folded[max(0, at - 200) : at].lower()
    for _ in range(_MOST_BETWEEN + 1):
        found = _LAST_WORD.search(rest)
        if found is None:
            return None
        if _NEGATION.fullmatch(found[1]):
            return found[1]
        if not _BETWEEN.fullmatch(found[1]):
            return None
        rest = rest[: found.start()]
    return None


def _folded(text: str) -> tuple[str, list[int]]:
    """The text as it is compared, and for each of its characters the place in `text` where it stands."""
    kept: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        if character.isspace():
            if kept and kept[-1] == " ":
                continue
            character = " "
        elif unicodedata.category(character) == "Cf":
            continue
        else:
            plain = unicodedata.normalize("NFKC", character)
            character = (plain if len(plain) == 1 else character).translate(_SAME)
        kept.append(character)
        places.append(place)
    return "".join(kept), places
