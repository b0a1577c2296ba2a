"""Finding what a language model quotes in the document that it quotes from."""

from __future__ import annotations

import unicodedata
from typing import Literal

from ..types import Document, Sentence

_SAME = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201f\u2033", '"'),
    }
)
_FEWEST_WORDS = 3


def find_quote(document: Document, quote: str, score: float) -> Sentence:
    """Where a quote stands in the text or the title: the document's own characters, with exact offsets.

    Runs of white space count as one space, and typographic variants (dashes, quotation marks, compatibility forms such
    as the subscript in CO2, invisible format characters) as their plain forms; nothing else may differ.
    Raises ValueError, in words for the model that quoted, where the quote is not there or too short to show anything.
    """
    wanted, _ = _folded(quote.strip())
    fields: tuple[tuple[Literal["text", "title"], str], ...] = (("text", document.text), ("title", document.title))
    if not wanted.strip():
        raise ValueError("quote is empty, and this label needs one")
    for name, text in fields:
        folded, places = _folded(text)
        at = folded.find(wanted)
        if at >= 0:
            if len(wanted.split()) < _FEWEST_WORDS and wanted != folded.strip():
                raise ValueError(f"quote is too short: give at least {_FEWEST_WORDS} words of the paper")
            start, end = places[at], places[at + len(wanted) - 1] + 1
            return Sentence(text[start:end], name, start, end, score)
    raise ValueError("quote is not in the paper: copy it character by character from the paper's title or text")


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
