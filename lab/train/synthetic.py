"""Pairs with stances made from documents without labels: weak supervision for stance models.

A shortened sentence is supported by the passage around it. With its direction, polarity or a number changed, it is
refuted. A passage far from it leaves it open. Negations are put into documents too, so that no word of the claim
decides alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence

from ...core.analysis import clean, sentence_spans
from ...verdict.features import BOTH_WAYS
from .stance_rows import StanceRow

_WORD = re.compile(r"[A-Za-z]+")
_AUXILIARY = re.compile(r"\b(?:is|are|was|were|can|could|may|will|does|do|did|has|have|had|should)\b(?! not\b)")
_DENIAL = re.compile(r"\b(?:do|does|did) not |\bnot |\bnever ")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")
_FACTORS = (0.1, 0.3, 0.5, 2.0, 3.0, 10.0)
_WORDS = (6, 60)


def contradicted(text: str, draw: random.Random) -> str | None:
    """The statement made false: a word turned into its opposite, a denial put in or taken out, or another number.

    None if the text offers nothing of that kind.
    """
    turned = [match for match in _WORD.finditer(text) if match.group().lower() in BOTH_WAYS]
    auxiliaries = list(_AUXILIARY.finditer(text))
    denials = list(_DENIAL.finditer(text))
    numbers = list(_NUMBER.finditer(text))
    ways = [found for found in (turned, auxiliaries, denials, numbers) if found]
    if not ways:
        return None
    way = draw.choice(ways)
    match = draw.choice(way)
    word = match.group()
    if way is turned:
        new = BOTH_WAYS[word.lower()]
        new = new.capitalize() if word[0].isupper() else new
    elif way is auxiliaries:
        new = f"{word} not"
    elif way is denials:
        new = ""
    else:
        new = _other_number(word, draw)
    return f"{text[: match.start()]}{new}{text[match.end() :]}"


def _other_number(word: str, draw: random.Random) -> str:
    places = len(word.partition(".")[2])
    new = f"{float(word) * draw.choice(_FACTORS):.{places}f}"
    return new if new != word else f"{float(word) + 7:.{places}f}"


def shortened(text: str, draw: random.Random) -> str:
    """The statement with about a tenth of its words left out, and at times one of its clauses."""
    clauses = re.split(r"(?<=[,;:])\s+", text)
    if len(clauses) > 1 and draw.random() < 0.5:
        clauses.pop(draw.randrange(len(clauses)))
    words = [word for word in " ".join(clauses).split() if draw.random() > 0.1]
    return " ".join(words) or text


def weak_rows(documents: Mapping[str, tuple[str, str]], count: int, seed: int) -> Iterator[StanceRow]:
    """Up to `count` pairs from documents (id: title and text), in an order drawn by the seed."""
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    ids = sorted(documents)
    draw.shuffle(ids)
    made = 0
    for id_ in ids:
        title, text = (clean(part).strip() for part in documents[id_])
        for row in _of_document(id_, title, [text[start:end] for start, end in sentence_spans(text)], draw):
            if made == count:
                return
            made += 1
            yield row


def _of_document(id_: str, title: str, sentences: Sequence[str], draw: random.Random) -> Iterator[StanceRow]:
    usable = [number for number, sentence in enumerate(sentences) if _WORDS[0] <= len(sentence.split()) <= _WORDS[1]]
    if len(sentences) < 3 or not usable:
        return
    place = draw.choice(usable)
    first = max(0, place - draw.randrange(3))
    around = list(sentences[first : first + 4])
    claim = shortened(sentences[place], draw)
    false = contradicted(claim, draw)
    name = f"weak:{id_}"

    def row(said: str, passage: Sequence[str], label: str) -> StanceRow:
        return StanceRow(said, " ".join(passage), label, name, id_)  # type: ignore[arg-type]

    yield row(claim, around, "SUPPORTS")
    far = [number for number in range(len(sentences)) if abs(number - place) > 3]
    if far:
        at = draw.choice(far)
        said = false if false is not None and draw.random() < 0.4 else claim
        yield row(said, sentences[max(0, at - 2) : at + 1], "NOT_ENOUGH_INFO")
    if false is None:
        return
    yield row(false, around, "REFUTES")
    if draw.random() < 0.5:
        turned = contradicted(sentences[place], draw)
        if turned is not None and turned != sentences[place]:
            inside = list(around)
            inside[place - first] = turned
            yield row(claim, inside, "REFUTES")
    if title and len(title.split()) >= _WORDS[0]:
        yield row(title, sentences[-4:], "SUPPORTS")
        other = contradicted(title, draw)
        if other is not None:
            yield row(other, sentences[-4:], "REFUTES")
