"""How the words of a claim and of a sentence relate: shared words, directions, negations, numbers.

A document mostly refutes a claim in the claim's own words, with one of them reversed: fewer for more, a negation,
another number. So directions and negations are compared near the words that both share.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.analysis import terms

OPPOSITES = {
    "increase": "decrease",
    "increases": "decreases",
    "increased": "decreased",
    "increasing": "decreasing",
    "higher": "lower",
    "high": "low",
    "more": "less",
    "many": "few",
    "greater": "smaller",
    "stronger": "weaker",
    "promotes": "inhibits",
    "promote": "inhibit",
    "activates": "inhibits",
    "activation": "inhibition",
    "enhances": "impairs",
    "enhance": "impair",
    "enhanced": "impaired",
    "improves": "worsens",
    "improved": "worsened",
    "induces": "prevents",
    "induced": "prevented",
    "causes": "prevents",
    "upregulated": "downregulated",
    "upregulation": "downregulation",
    "positive": "negative",
    "gain": "loss",
    "rise": "fall",
    "rises": "falls",
    "rising": "falling",
    "warming": "cooling",
    "warmer": "colder",
    "melting": "growing",
    "essential": "dispensable",
    "sufficient": "insufficient",
    "effective": "ineffective",
    "susceptible": "resistant",
    "beneficial": "harmful",
    "before": "after",
}
BOTH_WAYS = {second: first for first, second in OPPOSITES.items()} | OPPOSITES
"""Each word with its opposite."""
RELATIONS = 20
"""How many numbers `relations` gives."""
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[A-Za-z]+(?:['’]t)?|%")
NEGATION = r"not|no|never|without|cannot|neither|nor|none|lack\w*|fail\w*|absen\w*|unlikely|rarely|hardly|\w+n['’]t"
"""A word that denies what comes after it: a regular expression, for small letters."""
_DENIAL = re.compile(rf"{NEGATION}|false|myth|unaffected|unchanged|unrelated|independent\w*")
_UP = re.compile(
    r"increas\w*|high\w*|more|great\w*|larg\w*|strong\w*|promot\w*|activat\w*|enhanc\w*|improv\w*|induc\w*|caus\w*"
    r"|upregulat\w*|positiv\w*|gain\w*|ris(?:e|es|ing|en)|rose|warm\w*|hot\w*|accelerat\w*|grow\w*|grew|expan\w*"
    r"|elevat\w*|driv\w*|stimulat\w*|rais\w*|exceed\w*|above|long\w*|fast\w*|most|effective|essential|sufficient"
    r"|susceptib\w*|benefi\w*|contribut\w*"
)
_DOWN = re.compile(
    r"decreas\w*|low\w*|less|few\w*|small\w*|weak\w*|inhibit\w*|suppress\w*|impair\w*|reduc\w*|prevent\w*"
    r"|downregulat\w*|negativ\w*|loss\w*|los(?:e|t|ing)|fall\w*|fell|cool\w*|cold\w*|slow\w*|declin\w*|shr[iu]nk\w*"
    r"|deplet\w*|attenuat\w*|block\w*|deficien\w*|below|short\w*|least|ineffective|insufficient|dispensab\w*"
    r"|resistan\w*|harmful|diminish\w*|delet\w*|protect\w*|limit\w*"
)
_BEFORE, _AFTER, _AFTER_DENIAL = 4, 3, 2
"""How many words around a shared one its direction and its denial are looked for in: denials mostly come before."""


@dataclass(frozen=True, slots=True)
class Words:
    """A text's words, in order. `stems` are empty for words that are not indexed; `directions` are 1 for more, -1 for
    less, 0 for neither."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    directions: tuple[int, ...]
    denials: tuple[bool, ...]

    @property
    def kinds(self) -> set[str]:
        """The stems, each once."""
        return {stem for stem in self.stems if stem}

    @property
    def direction(self) -> int:
        """The sign of all directions together."""
        return _sign(sum(self.directions))

    def direction_near(self, place: int) -> int:
        return _sign(sum(self.directions[max(0, place - _BEFORE) : place + _AFTER + 1]))

    def denied_near(self, place: int) -> bool:
        return any(self.denials[max(0, place - _BEFORE) : place + _AFTER_DENIAL + 1])


@functools.lru_cache(maxsize=4096)
def read_words(text: str) -> Words:
    """The words of a text."""
    words = tuple(found.group().lower() for found in _WORD.finditer(text))
    return Words(
        words,
        tuple((terms(word) or [""])[0] for word in words),
        tuple(bool(_UP.fullmatch(word)) - bool(_DOWN.fullmatch(word)) for word in words),
        tuple(bool(_DENIAL.fullmatch(word)) for word in words),
    )


def relations(claim: Words, sentence: Words) -> list[float]:
    """`RELATIONS` numbers: shares of words and pairs of words, how many shared words are told in the same or in the
    opposite direction, denied or not; the same of both texts as a whole; and numbers, shared or other ones."""
    mine, given = claim.kinds, sentence.kinds
    shared = mine & given
    first: dict[str, int] = {}
    for place, stem in enumerate(sentence.stems):
        first.setdefault(stem, place)
    met = same = opposite = turned = denied = 0
    for place, stem in enumerate(claim.stems):
        if stem not in shared:
            continue
        there = first[stem]
        denies = sentence.denied_near(there)
        differs = claim.denied_near(place) != denies
        way = claim.direction_near(place) * sentence.direction_near(there) * (-1 if differs else 1)
        met += 1
        turned += differs
        denied += denies
        same += way > 0
        opposite += way < 0
    met = max(1, met)
    pairs, given_pairs = _pairs(claim.stems), _pairs(sentence.stems)
    words = set(sentence.words)
    opposed = sum(BOTH_WAYS.get(word, word) in words and word not in words for word in claim.words)
    claim_denies, denies = any(claim.denials), any(sentence.denials)
    ways = claim.direction * sentence.direction
    numbers, given_numbers = _numbers(claim.words), _numbers(sentence.words)
    return [
        len(shared) / max(1, len(mine)),
        len(shared) / max(1, len(given)),
        len(pairs & given_pairs) / max(1, len(pairs)),
        len(mine - given),
        same / met,
        opposite / met,
        turned / met,
        denied / met,
        opposed,
        len(_directed(claim) & _directed(sentence)),
        ways,
        -ways if claim_denies != denies else ways,
        claim_denies,
        denies,
        claim_denies != denies,
        len(numbers & given_numbers),
        len(numbers - given_numbers),
        _other_values(claim.words, sentence.words),
        sum(claim.directions),
        sum(sentence.directions),
    ]


def _pairs(stems: Sequence[str]) -> set[tuple[str, str]]:
    return {(one, other) for one, other in itertools.pairwise(stems) if one and other}


def _directed(text: Words) -> set[str]:
    return {word for word, direction in zip(text.words, text.directions, strict=True) if direction}


def _numbers(words: Sequence[str]) -> set[str]:
    return {word for word in words if word[0].isdigit()}


def _other_values(claim: Sequence[str], sentence: Sequence[str]) -> int:
    """How many of the claim's numbers the sentence lacks while it has another of the same unit."""
    given = _numbers(sentence)
    units = {unit for value, unit in itertools.pairwise(sentence) if value[0].isdigit()}
    return sum(value[0].isdigit() and value not in given and unit in units for value, unit in itertools.pairwise(claim))


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
