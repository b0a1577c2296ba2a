"""How a sentence differs from a claim whose words it shares: another number, the other direction, a denial, another
condition, the other order, less certainty, one word.

A sentence that repeats a claim's words can say the opposite. What differs is shown beside the sentence, and the
packaged model does not call such a sentence support. Quantities are read with their units, and so is a rate (`3 mm a
year`), which is never compared with an amount. `benchmarks/differences.py` measures this on pairs that differ in
nothing else.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from ..core.analysis import clean, one_spelling, terms, terms_of_word
from ..core.types import Difference
from .quantities import LARGE, SMALL, UNIT, agrees_with_any, quantities

NEGATION = r"not|no|never|without|cannot|neither|nor|none|lack\w*|fail\w*|absen\w*|unlikely|rarely|hardly|\w+n['’]t"
"""A word that denies what comes after it: a regular expression, for small letters."""
SHARED = 0.5
"""The least share of a claim's other words that a sentence must have to be about the same."""
TOKEN = re.compile(r"(?<![\w-])\d+(?:[.,]\d+)*|[^\W\d_]+(?:['’-][^\W\d_]+)*|[.,;:()]")
"""The digits of a name (IL-6, Ad26) are no number."""
_MORE = re.compile(
    r"increas\w*|rais(?:e|es|ed|ing)|ris(?:e|es|ing|en)|rose|higher|more|greater|improv\w*|enhanc\w*|elevat\w*|promot\w*"
    r"|induc\w*|upregulat\w*|accelerat\w*|gain(?:s|ed|ing)?|gr[eo]w\w*|expand\w*|warm(?:s|ed|ing|er)"
    r"|highest|strengthen\w*|widen\w*|(?:doubl|tripl)(?:e|es|ed|ing)"
)
_LESS = re.compile(
    r"decreas\w*|reduc\w*|lower(?:s|ed|ing)?|less|fewer|smaller|fall(?:s|ing|en)?|fell|declin\w*|drop(?:s|ped|ping)?"
    r"|impair\w*|inhibit\w*|suppress\w*|prevent\w*|downregulat\w*|los(?:e|es|ing|t|s|ses)|shr[iau]nk\w*|cool(?:s|ed|ing|er)"
    r"|slow(?:s|ed|ing|er)|worsen\w*|block(?:s|ed|ing)?|attenuat\w*|cuts?|lowest|weaken\w*|narrow(?:s|ed|ing)"
)
_ALONE = re.compile(r"ris\w+|rose|fall\w*|fell|declin\w*|drop\w*|gr[eo]w\w*|accelerat\w*|slow\w*|shr[iau]nk\w*")
"""Of these, what stands before them rises or falls."""
_DENIAL = re.compile(rf"(?:{NEGATION})")
GENERAL = re.compile(
    r"(?:risk|rate|level|number|incidence|amount|degree)s?|mean|average|total|significant(?:ly)?|since|from|than|has|have"
    r"|had|were|do|does|did|been|can|could|may|might|will|would|should|its|their|our|those|which|who|about|also"
)
"""Words that name nothing by themselves: a reduced risk of death is fewer deaths."""
_ENDS = frozenset(
    "by to from on since during with when after before compared between than at for as and but or".split()
)
_CONDITIONS = (
    "human patient people person individuals participant volunteer men women children adult"
    "/mouse mice murine rat rodent monkey pig hamster zebrafish",
    "man men male boy/woman women female girl",
    "adult/child children infant newborn pediatric paediatric adolescents",
    *"older/younger elderly/young mild/severe acute/chronic early/late earlier/later short/long high/low".split(),
    *"indoor/outdoor indoors/outdoors summer/winter arctic/antarctic northern/southern systolic/diastolic".split(),
    *"rural/urban primary/secondary oral/intravenous benign/malignant".split(),
)
"""Pairs of which a finding about one says nothing about the other."""
_UN = ("un", "in", "im", "ir", "non", "non-")
"""What makes a word its denial: unsafe, safe."""
_LABEL = re.compile(r"\b(type|grade|stage|phase|group|arm|cohort|class|model|site|strain|vitamin|plant) ([a-z]|\d+)\b")
"""A thing with a letter or a number as its name."""
_TURNS = re.compile(
    r"than|as|to|instead|(?:cause|trigger|drive|activate|regulate|kill|infect|follow|precede|depend|eat|attack"
    r"|affect|influence|predict|exceed|outperform|beat|replace)s?|drove|ate"
    r"|(?:caus|trigger|activat|regulat|kill|infect|follow|preced|attack|affect|influenc|predict|exceed|outperform|replac)ed"
)
"""What can't be turned round: that A causes B, or is more than B, is not that B causes A."""
REACH = "mean", "imply", "prove", "rule out"
"""What is denied by who says how far a finding reaches, and not that something is so."""
_REACHES = {"necessarily", *(one.split()[0] for one in REACH)}
_UNSURE = re.compile(
    r"\b(?:may|might|could|would|should|will|[Ii]f|[Uu]nless|[Hh]ad (?=.{0,80} would)|[Ee]xcept|[Pp]ossible|but not"
    rf"|retracted|(?:not|cannot) (?:{'|'.join(REACH)}|necessarily)|[Oo]f (?:those|the \w+) (?:who|that|which)"
    r"|until (?=\d{4})|at \w+ (?:above|below|over|under|beyond) (?=\d)"
    r"|(?:[Aa]ll|[Ee]very|[Ee]ach|[Aa]ny) (?:\w+ ){0,3}(?:but|except|save|apart from)"
    r"|[Oo]nly (?=(?:if|when|where|in|among|for|at|one|some|few)\b))\b"
)
"""What says that something may be, is to come, or holds in part. In capitals, May is a month."""
_CAUSES = re.compile(r"caus(?:es?|ed|ing)|leads?|led|due")
_LINKED = re.compile(r"(?:associat|correlat|link)(?:es?|ed|ions?|s)?|relat(?:ed|ions?|ionships?)")
_EFFECT = re.compile(
    r"affect|effect|associat|alter|chang|influenc|link|eviden|benefi|differ|show|f[io]u?nd|help|sign|indicat"
)
"""How words begin whose denial denies any effect."""
YEAR = re.compile(r"(?:1[89]|20)\d\d")
_MORE_THAN = re.compile(r"more|less|worse|\w+er")
_NEAR = 4
"""How many words after a denial or a direction it is about, and half of how many words of a text may turn it round."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text's words, and what their directions and denials are about."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    content: frozenset[str]
    """The stems of words that name things: without numbers, directions and denials."""
    ways: tuple[tuple[str, int, str], ...]
    """The stem that a direction is about, its sign (0: denied) and its words."""
    denied: tuple[tuple[frozenset[str], str], ...]
    """The stems that a denial is about, and its word."""


@functools.lru_cache(maxsize=4096)
def differences(claim: str, sentence: str) -> tuple[Difference, ...]:
    """What a sentence says differently from a claim with which it shares half of the words; none if it shares less."""
    mine, given = parsed(clean(claim)), parsed(clean(sentence))
    shared = mine.content & given.content
    if not shared or len(shared) < SHARED * len(mine.content):
        return ()
    ways = turned(mine, given)
    conditions = [*_conditions(mine, given)]
    if ways is None:
        told = {one.sentence.split()[0] for one in conditions}  # "without" denies "with", and nothing else
        ways = [*_ways(mine, given)] or [one for one in _denials(mine, given, shared) if one.sentence not in told]
    others = (*_numbers(clean(claim), clean(sentence)), *ways, *conditions)
    others += tuple(_certainty(mine, given, _UNSURE.search(claim), _UNSURE.finditer(sentence)))
    return (*others, *(one for one in _word(mine, given, shared) if one.sentence or not others))


# -- numbers


def _numbers(claim: str, sentence: str) -> Iterator[Difference]:
    given = quantities(sentence)
    for one in quantities(claim):
        same = [other for other in given if other.dimension == one.dimension]
        alike = [
            other for other in same if one.dimension or one.beside & other.beside or other.value == one.value >= 1e4
        ]
        if alike and not agrees_with_any(one, alike):
            # What is true of less than six hours may also be true of more than nine.
            others = all(other.side * one.side < 0 and other.value != one.value for other in alike)
            yield Difference(
                "condition" if others else "number",
                one.text,
                ", ".join(dict.fromkeys(other.text for other in alike[:3])),
            )


# -- directions and denials


@functools.lru_cache(maxsize=4096)
def parsed(text: str) -> Parsed:
    words = tuple(found.group().lower() for found in TOKEN.finditer(text))
    signs = [sign_of(word) for word in words]
    denies = [bool(_DENIAL.fullmatch(word)) for word in words]
    stems = tuple(
        "" if sign or denied or GENERAL.fullmatch(word) else next(iter(terms_of_word(one_spelling(word))), "")
        for word, sign, denied in zip(words, signs, denies, strict=True)
    )
    ways: list[tuple[str, int, str]] = []
    denied = []
    for place, word in enumerate(words):
        if signs[place]:
            no = next((words[at] for at in range(max(0, place - 3), place) if denies[at]), "")
            said = f"{no} {word}".strip()
            ways += [(stem, 0 if no else signs[place], said) for stem in _about(words, stems, place)]
        following = words[place + 1 : place + _NEAR]
        if denies[place] and _REACHES.isdisjoint(following[:1]) and {"whether", "if"}.isdisjoint(following):
            after = frozenset(stem for stem in _after(words, stems, place) if stem)
            denied.append((after, word))
    content = frozenset(stem for stem in stems if stem and not stem[0].isdigit() and stem not in SMALL)
    return Parsed(words, stems, content, tuple(ways), tuple(denied))


def sign_of(word: str) -> int:
    return bool(_MORE.fullmatch(word)) - bool(_LESS.fullmatch(word))


def _after(words: Sequence[str], stems: Sequence[str], place: int) -> list[str]:
    """The stems of the words that follow, up to a mark."""
    following = range(place + 1, min(len(words), place + 1 + _NEAR))
    return [stems[at] for at in itertools.takewhile(lambda at: words[at][0] not in ".,;:()", following)]


def _about(words: Sequence[str], stems: Sequence[str], place: int) -> list[str]:
    """What rises or falls: what follows up to a preposition, quantities left out; else what stands before."""
    following = range(place + 1, len(words))
    until = itertools.takewhile(lambda at: words[at][0] not in ".,;:()" and words[at] not in _ENDS, following)
    things = (at for at in until if not words[at][0].isdigit() and words[at] not in LARGE)
    found = [stems[at] for at in itertools.islice(things, _NEAR) if stems[at]]
    if not found or _ALONE.fullmatch(words[place]):
        before = range(place - 1, max(-1, place - 1 - _NEAR), -1)
        found += [stems[at] for at in before if stems[at]][:1]
    return found


def _ways(mine: Parsed, given: Parsed) -> Iterator[Difference]:
    for stem, sign, word in mine.ways:
        others = [
            (other, said)
            for about, other, said in given.ways
            if about == stem and (other or sign * sign_of(said.split()[-1]) >= 0)
        ]  # what does not prevent something can still increase it
        if sign and others and all(other != sign for other, _ in others):
            yield Difference("direction" if others[0][0] else "negation", word, others[0][1])
            return


def _denials(mine: Parsed, given: Parsed, shared: frozenset[str]) -> Iterator[Difference]:
    more = any(sign_of(word) > 0 or _CAUSES.fullmatch(word) for word in mine.words)
    denying = [
        (about, word)
        for about, word in given.denied
        if about & shared and not (more and sign_of(given.words[given.words.index(word) + 1]) < 0)
    ]
    if denying and not mine.denied:
        about, word = denying[0]
        yield Difference("negation", "", word)
        verb = given.words[given.words.index(word) + 1]  # "did not treat strokes" says nothing of "prevents strokes"
        ways = [way for stem, _, way in mine.ways if stem in about]
        if ways and not _EFFECT.match(verb) and about.issuperset(terms_of_word(verb)) and verb not in mine.words:
            yield Difference("word", ways[0], verb)
    elif not mine.denied and not given.denied:
        yield from itertools.islice((Difference("negation", *two) for two in _opposites(mine, given)), 1)
    elif mine.denied and not given.denied and len(shared) >= 0.6 * len(mine.content):
        yield Difference("negation", mine.denied[0][1], "")


def _opposites(mine: Parsed, given: Parsed) -> Iterator[tuple[str, str]]:
    """A word of each text that the other lacks, where one denies the other: "unsafe" and "safe"."""
    there = {tuple(terms_of_word(word)): word for word in _words_of(given.content - mine.content, given)}
    for word, un in itertools.product(_words_of(mine.content - given.content, mine), _UN):
        less = word.removeprefix(un) if len(word) > len(un) + 2 else word
        other = there.get(tuple(terms_of_word(un + word)), there.get(tuple(terms_of_word(less))))
        if other:
            yield word, other


def _certainty(
    mine: Parsed, given: Parsed, claimed: re.Match[str] | None, unsure: Iterator[re.Match[str]]
) -> Iterator[Difference]:
    """What only may be, and what goes together without being the cause."""
    cause = next(filter(_CAUSES.fullmatch, mine.words), None)
    linked = next(filter(_LINKED.fullmatch, given.words), None)
    about = (
        one
        for one in unsure
        if not mine.content.isdisjoint(terms(one.string[max(0, one.start() - 60) : one.end() + 60]))
    )
    if not claimed and (one := next(about, None)):
        yield Difference("certainty", "", one[0].strip())
    elif cause and linked and not given.denied and not any(map(_CAUSES.fullmatch, given.words)):
        yield Difference("certainty", cause, linked)


def _conditions(mine: Parsed, given: Parsed) -> Iterator[Difference]:
    people = _stems_of_conditions()[0][0]
    for two in _stems_of_conditions():
        for ours, theirs in itertools.permutations(two):
            named, instead = mine.content & ours, given.content & theirs
            # A claim is about people unless it says otherwise.
            if (named or ours is people) and instead and not (mine.content & theirs or given.content & ours):
                yield Difference("condition", _one_of(named, mine) if named else "", _one_of(instead, given))
    first, second = ([word for word in text.words if word in ("with", "without")] for text in (mine, given))
    if "than" in mine.words and first != second and sorted(first) == sorted(second):
        yield Difference("order", f"than {first[-1]}", f"than {second[-1]}")
    labels = dict(_LABEL.findall(" ".join(given.words)))
    for thing, one in _LABEL.findall(" ".join(mine.words)):
        if labels.get(thing, one) != one:
            yield Difference("condition", f"{thing} {one}", f"{thing} {labels[thing]}")
    others = _accompanied(given)
    for stem, said in _accompanied(mine).items():
        other = others.get(stem, said)
        if said.split()[0] != other.split()[0]:
            yield Difference("condition", said, other)


def _accompanied(text: Parsed) -> dict[str, str]:
    """What is "with" and "without" in a text, by its stem."""
    places = (at for at, word in enumerate(text.words) if word in ("with", "without"))
    things = ((at, next((one for one in range(at + 1, at + 3) if any(text.stems[one : one + 1])), 0)) for at in places)
    return {text.stems[one]: f"{text.words[at]} {text.words[one]}" for at, one in things if one}


@functools.cache
def _stems_of_conditions() -> list[list[frozenset[str]]]:
    return [[frozenset(terms(words)) for words in two.split("/")] for two in _CONDITIONS]


def _one_of(stems: frozenset[str], text: Parsed) -> str:
    return next(_words_of(stems, text))


def _words_of(stems: frozenset[str], text: Parsed) -> Iterator[str]:
    return (word for word, stem in zip(text.words, text.stems, strict=True) if (stem or word) in stems)


def turned(mine: Parsed, given: Parsed) -> list[Difference] | None:
    """Where a sentence with all of a claim's words says of the second what the claim says of the first; nothing where
    it says the opposite of it, which is the same ("B is less than A"). None if it does not turn the claim round."""
    if not mine.content <= given.content:
        return None
    for (word, *sides), (other, *others) in itertools.product(turns(mine), turns(given)):
        first = (sides[0] - sides[1]) & (others[1] - others[0])
        second = sides[1] - sides[0]
        if first and (not second or second & (others[0] - others[1])):
            if sign_of(word) * sign_of(other) < 0 and _MORE_THAN.fullmatch(word) and _MORE_THAN.fullmatch(other):
                return []
            if terms_of_word(word) == terms_of_word(other) or sign_of(word) * sign_of(other) > 0:
                return [Difference("order", f"{_one_of(first, mine)} … {word}", f"{other} … {_one_of(first, given)}")]
    return None


def turns(text: Parsed) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    """What can't be turned round, for "than" what is more or less, with the stems before and after it."""
    found = (
        (place, word)
        for place, (word, following) in enumerate(itertools.pairwise(text.words))
        if (_TURNS.fullmatch(word) and following != "by")
        or (sign_of(word) and not _MORE_THAN.fullmatch(word) and following not in {*_ENDS, "in", "of"})
        or (word == "but" and _DENIAL.fullmatch(following))
    )
    for place, word in itertools.islice(found, 2 * _NEAR):
        more = (one for one in reversed(text.words[:place]) if _MORE_THAN.fullmatch(one))
        before, after = text.stems[:place], text.stems[place + 1 :]
        yield next(more, word) if word == "than" else word, frozenset(before) - {""}, frozenset(after) - {""}


def _word(mine: Parsed, given: Parsed, shared: frozenset[str]) -> Iterator[Difference]:
    missing = mine.content - shared
    if len(missing) != 1 or len(shared) < 3:
        return
    place = mine.stems.index(next(iter(missing)))
    if UNIT.fullmatch(mine.words[place]):
        return  # `20 cm` and `200 mm` are the same
    instead = ""
    for kind, start, end, first, last in SequenceMatcher(None, mine.stems, given.stems, autojunk=False).get_opcodes():
        more = last - first - (end - start)
        if kind == "replace" and start <= place < end and more in (0, 2):  # two more for "did not"
            at = last - (end - place)
            instead = (
                given.words[at] if sign_of(given.words[at]) or (given.stems[at] in given.content and not more) else ""
            )
    yield Difference("word", mine.words[place], instead)
