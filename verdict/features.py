"""The counts of a claim and a document that the packaged stance model reads.

Of the document's sentence that is nearest to the claim: words, numbers and negations that both share. Of the `NEAR`
nearest sentences: the mean of `relations`. Of the whole document: how much of the claim it covers, and how near its
sentences and its title are.

A document mostly refutes a claim in the claim's own words, with one of them reversed: fewer for more, a negation,
another number. So `relations` compares directions and negations near the words that both share.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.analysis import clean, sentence_spans, terms
from ..core.types import Document

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NEAR = 3
"""How many of the nearest sentences are compared with the claim word by word."""
RELATIONS = 20
"""How many numbers `relations` gives."""
COUNTS = 26 + RELATIONS
"""The number of counts."""
ONE_SENTENCE = COUNTS - 8
"""The place among them of the one that is 1 for a document of one sentence, else 0."""
_DENIAL = re.compile(
    r"\b(?:not|no|never|without|cannot|neither|nor|none|lack\w*|fail\w*|absen\w*|false|myth|wrong|little|few|less|decrea\w*"
    r"|reduc\w*|inhibit\w*|low\w*|down\w*|declin\w*|prevent\w*|cool\w*)\b|n't\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def sentences_of(document: Document) -> list[str]:
    """The sentences of a document's text; its title if it has no text."""
    text = clean(document.text).strip()
    found = [text[start:end] for start, end in sentence_spans(text)] if text else []
    return found or [title for title in (clean(document.title).strip(),) if title]


def counts_and_nearest(
    pairs: Sequence[tuple[str, Document]], embed: Callable[[Sequence[str]], NDArray[np.float32]], *, read: int
) -> tuple[NDArray[np.float32], list[list[str]]]:
    """The counts of claims and documents, shape [pairs, COUNTS], and the `NEAR` sentences of each document that are
    nearest to its claim, in the document's order. `embed` makes unit vectors, shape [texts, dimensions].

    Of a document with more than `read` sentences, those are embedded that share most words with the claim. A document
    must have a sentence or a title.
    """
    import numpy as np

    all_sentences = [sentences_of(document) for _, document in pairs]
    chosen = [nearest_in_words(clean(claim), some, read) for (claim, _), some in zip(pairs, all_sentences, strict=True)]
    titles = [clean(document.title).strip() for _, document in pairs]
    texts = dict.fromkeys(
        [clean(claim) for claim, _ in pairs]
        + [some[place] for some, places in zip(all_sentences, chosen, strict=True) for place in places]
        + [title for title in titles if title]
    )
    vectors = embed(list(texts)) if texts else np.zeros((0, 0), np.float32)
    place_of = {text: number for number, text in enumerate(texts)}
    rows, near = [], []
    for (claim, _), some, places, title in zip(pairs, all_sentences, chosen, titles, strict=True):
        u = vectors[place_of[clean(claim)]]
        cosines = vectors[[place_of[some[place]] for place in places]] @ u
        order = np.argsort(-cosines, kind="stable")
        best = int(order[0])
        words = read_words(clean(claim))
        nearest = [places[number] for number in order[:NEAR]]
        said = [relations(words, read_words(some[place])) for place in nearest]
        rows.append(
            [
                *_counts(clean(claim), some[places[best]], title),
                *np.mean(said, axis=0),
                *_coverage(words.kinds, [*some, title]),
                *_placed(cosines[order], places[best], len(some)),
                float(vectors[place_of[title]] @ u) if title else 0.0,
            ]
        )
        if len(some) > NEAR and len(some) - 1 not in nearest:
            nearest[-1] = len(some) - 1
        near.append([some[place] for place in sorted(nearest)])
    return np.array(rows, dtype=np.float32).reshape(-1, COUNTS), near


def nearest_in_words(claim: str, texts: Sequence[str], most: int) -> list[int]:
    """The places of up to `most` texts that share most words with the claim, in order."""
    if len(texts) <= most:
        return list(range(len(texts)))
    wanted = set(terms(claim))
    shared = [len(wanted.intersection(terms(text))) for text in texts]
    return sorted(sorted(range(len(texts)), key=lambda number: (-shared[number], number))[:most])


def _counts(claim: str, sentence: str, title: str) -> list[float]:
    """The 13 counts and shares of words, numbers and denials in claim and sentence."""
    words, others = set(terms(claim)), set(terms(sentence))
    numbers, given = set(_NUMBER.findall(claim)), set(_NUMBER.findall(sentence))
    denied, denies = len(_DENIAL.findall(claim)), len(_DENIAL.findall(sentence))
    shared = len(words & others)
    return [
        shared / max(1, len(words)),
        shared / max(1, len(others)),
        len(words.intersection(terms(title))) / max(1, len(words)),
        len(numbers & given),
        len(numbers - given),
        len(numbers),
        len(given),
        denied,
        denies,
        abs(denied - denies),
        (denied > 0) != (denies > 0),
        len(words),
        len(others),
    ]


def _coverage(words: set[str], texts: Sequence[str]) -> list[float]:
    """How much of the claim's words the whole document has: 2 numbers."""
    given = set().union(*(read_words(text).kinds for text in texts))
    return [len(words & given) / max(1, len(words)), len(words - given)]


def _placed(cosines: NDArray[np.float32], best: int, count: int) -> list[float]:
    """Where of `count` sentences the nearest one stands, and how near those are that were read: 10 numbers.

    The cosines are sorted.
    """
    second = min(1, len(cosines) - 1)
    return [
        math.log1p(count),
        best / max(1, count - 1),
        best == count - 1,
        count == 1,
        float(cosines[0]),
        float(cosines[second]),
        float(cosines[0] - cosines[second]),
        float(cosines[:NEAR].mean()),
        float(cosines.mean()),
        float(cosines.std()),
    ]


# -- how the words of two texts relate

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
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[A-Za-z]+(?:['’]t)?|%")
_COMMA = re.compile(r"(?<=^0),|,(?=\d\d?$)")
"""Of a decimal: `3,5` is the number 3.5, and `1,000` stays."""
NEGATION = r"not|no|never|without|cannot|neither|nor|none|lack\w*|fail\w*|absen\w*|unlikely|rarely|hardly|\w+n['’]t"
"""A word that denies what comes after it: a regular expression, for small letters."""
_DENYING = re.compile(rf"{NEGATION}|false|myth|unaffected|unchanged|unrelated|independent\w*")
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
    words = tuple(_COMMA.sub(".", found.group().lower()) for found in _WORD.finditer(text))
    return Words(
        words,
        tuple((terms(word) or [""])[0] for word in words),
        tuple(bool(_UP.fullmatch(word)) - bool(_DOWN.fullmatch(word)) for word in words),
        tuple(bool(_DENYING.fullmatch(word)) for word in words),
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
