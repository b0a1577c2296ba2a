"""How a sentence differs from a claim whose words it shares: another number, the other direction, a denial, another
condition, the other order, one word.

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
from typing import NamedTuple

from ..core.analysis import clean, term_set, terms, terms_of_word
from ..core.types import Difference

NEGATION = r"not|no|never|without|cannot|neither|nor|none|lack\w*|fail\w*|absen\w*|unlikely|rarely|hardly|\w+n['’]t"
"""A word that denies what comes after it: a regular expression, for small letters."""
SHARED = 0.5
"""The least share of a claim's other words that a sentence must have to be about the same."""
_UNITS: dict[str, dict[str, float]] = {
    "pressure": {"mm ?hg": 1, "kpa": 7.5006, "hpa|mbar": 0.75006},
    "percent": {"%": 1, "percent": 1, "per cent": 1, "percentage points?": 1},
    "length": {
        "mm|millimet(?:er|re)s?": 1e-3,
        "cm|centimet(?:er|re)s?": 1e-2,
        "m|met(?:er|re)s?": 1,
        "km|kilomet(?:er|re)s?": 1e3,
        "inch(?:es)?": 0.0254,
        "f(?:oo|ee)t": 0.3048,
        "miles?": 1609,
    },
    "mass": {
        "µg|μg|mcg|micrograms?": 1e-6,
        "mg|milligrams?": 1e-3,
        "g|grams?": 1,
        "kg|kilograms?": 1e3,
        "t|tons?|tonnes?": 1e6,
        "gigatons?|gigatonnes?|gt": 1e15,
    },
    "volume": {"ml|millilit(?:er|re)s?": 1e-3, "l|lit(?:er|re)s?": 1},
    "time": {
        "microseconds?|µs|μs": 1e-6 / 86400,
        "milliseconds?|(?-i:ms)": 1e-3 / 86400,
        "seconds?": 1 / 86400,
        "minutes?|min": 1 / 1440,
        "hours?|h": 1 / 24,
        "days?": 1,
        "weeks?": 7,
        "months?": 30.44,
        "years?|yr": 365.25,
        "decades?": 3652.5,
        "centur(?:y|ies)": 36525,
    },
    "temperature": {"°c|°|degrees?(?: celsius| centigrade| c)?": 1, "°f|degrees? fahrenheit": 5 / 9},
    "share": {"ppm|parts per million": 1e-6, "ppb|parts per billion": 1e-9},
    "times": {"fold|times": 1},
    "power": {"kw": 1e3, "mw|megawatts?": 1e6, "gw|gigawatts?": 1e9, "tw|terawatts?": 1e12},
}
"""The dimensions, and how much of its own a unit is."""
_FACTORS = {unit: (name, factor) for name, units in _UNITS.items() for unit, factor in units.items()}
_SMALL = dict(zip("two three four five six seven eight nine ten eleven twelve".split(), range(2, 13), strict=True))
_TIMES = {"halv": 0.5, "doubl": 2, "tripl": 3, "quadrupl": 4}
_LARGE = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_UNIT = re.compile("|".join((*_FACTORS, *_LARGE)))
_QUANTITY = re.compile(
    rf"(?<![\w.,])(?P<value>(?P<comma>(?:0,\d+|\d+,\d\d?)(?![.,]?\d|\s?(?:and|or|&)\s?\d+(?!,?\d)))"
    rf"|\d{{1,3}}(?:(?:,\d{{3}})+|(?:\s\d{{3}})+(?!\d))(?:\.\d+)?|\d+(?:\.\d+)?|(?:{'|'.join(_SMALL)})\b)"
    rf"(?:[\s-]?(?P<scale>{'|'.join(_LARGE)})\b)?"
    rf"(?:[\s-]?(?:{'|'.join(f'(?P<u{place}>{unit})' for place, unit in enumerate(_FACTORS))})(?!\w)"
    r"(?P<rate>\s?(?:an?|per|each|every|/)\s?(?:year|decade|century|day|week|month|hour|yr|kg|person|capita)\b"
    r"|\s?(?:annually|yearly|daily|weekly))?)?",
    re.IGNORECASE,
)
_MULTIPLIED = re.compile(rf"\b({'|'.join(_TIMES)})(?:ed|es|ing)\b", re.IGNORECASE)
_INTERVAL = re.compile(
    r"\b9[059](?:\.\d)?\s?%\s?(?:ci|cis|confidence|credible|uncertainty)\b.{0,40}?"
    r"\d+(?:[.,]\d+)?\s?(?:-|–|to|,|and)\s?\d+(?:[.,]\d+)?%?|\bp\s?[<=>≤]\s?0?[.,]\d+",
    re.IGNORECASE,
)
"""A confidence interval or a p value, whose numbers are not the finding."""
_RANGE = re.compile(r"\s?(?:to|and|or|[-–,])\s?(?=\d)")
"""`40 to 50 %`: both have the unit."""
_MEASURED = re.compile(r"\b(?:by|of|to|from|than|at|was|is|were|are|mean|average|median|between(?: \S+ and)?)|[=±]")
"""What stands before one number. Without it or a unit, `3,5` may be a list, as in `groups 3,5`, and no decimal."""
_WORDS = re.compile(r"[^\W\d_]+")
_ABOVE = re.compile(r"(?:more|greater|higher|longer) than|over|above|at least|exceed\w*|[>≥]", re.IGNORECASE)
_BELOW = re.compile(r"(?:less|fewer|lower|smaller) than|under|below|at most|up to|[<≤]", re.IGNORECASE)
_ABOUT = re.compile(r"about|around|roughly|approximately|nearly|almost|some|a little \w+|just \w+|~", re.IGNORECASE)
_TOKEN = re.compile(r"(?<![\w-])\d+(?:[.,]\d+)*|[^\W\d_]+(?:['’-][^\W\d_]+)*|[.,;:()]")
"""The digits of a name (IL-6, Ad26) are no number."""
_MORE = re.compile(
    r"increas\w*|rais(?:e|es|ed|ing)|ris(?:e|es|ing|en)|rose|higher|more|greater|improv\w*|enhanc\w*|elevat\w*|promot\w*"
    r"|induc\w*|upregulat\w*|accelerat\w*|gain(?:s|ed|ing)?|gr[eo]w\w*|expand\w*|warm(?:s|ed|ing|er)"
)
_LESS = re.compile(
    r"decreas\w*|reduc\w*|lower(?:s|ed|ing)?|less|fewer|smaller|fall(?:s|ing|en)?|fell|declin\w*|drop(?:s|ped|ping)?"
    r"|impair\w*|inhibit\w*|suppress\w*|prevent\w*|downregulat\w*|los(?:e|es|ing|t|s|ses)|shr[iau]nk\w*|cool(?:s|ed|ing|er)"
    r"|slow(?:s|ed|ing|er)|worsen\w*|block(?:s|ed|ing)?|attenuat\w*|cuts?"
)
_ALONE = re.compile(r"ris\w+|rose|fall\w*|fell|declin\w*|drop\w*|gr[eo]w\w*|accelerat\w*|slow\w*|shr[iau]nk\w*")
"""Of these, what stands before them rises or falls."""
_DENIAL = re.compile(rf"(?:{NEGATION})")
_GENERAL = re.compile(
    r"(?:risk|rate|level|number|incidence|amount|degree)s?|mean|average|total|significant(?:ly)?|since|from|than|has|have"
    r"|had|do|does|did|been|can|could|may|might|will|would|should|its|their|our|those|which|who|about|also"
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
_APART = ("condition", "order")
_TURNS = re.compile(
    r"than|(?:cause|prevent|lead|induce|trigger|drive|promote|inhibit|activate|suppress|regulate|kill)s?|led|drove"
    r"|(?:caus|prevent|induc|trigger|promot|inhibit|activat|suppress|regulat|kill)ed"
)
"""What can't be turned round: that A causes B, or is more than B, is not that B causes A."""
_YEAR = re.compile(r"(?:1[89]|20)\d\d")
_MORE_THAN = re.compile(r"more|less|worse|\w+er")
_MOST = 50
"""How many quantities of a text are read."""
_NEAR = 4
"""How many words after a denial or a direction it is about, and how many words of a text may turn it round."""


@dataclass(frozen=True, slots=True)
class _Quantity:
    text: str
    value: float
    dimension: str
    about: bool
    side: int
    """1 for more than the value, -1 for less, 0 for the value itself."""
    beside: frozenset[str] = frozenset()
    """The words around it. A number without a unit is compared with one that shares a word."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A text's words, and what their directions and denials are about."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    content: frozenset[str]
    """The stems of words that name things: without numbers, directions and denials."""
    ways: tuple[tuple[str, int, str], ...]
    """The stem that a direction is about, its sign (0: denied) and its words."""
    denied: tuple[tuple[frozenset[str], str], ...]
    """The stems that a denial is about, and its word."""


def differences(claim: str, sentence: str) -> tuple[Difference, ...]:
    """What a sentence says differently from a claim with which it shares half of the words; none if it shares less."""
    mine, given = _read(clean(claim)), _read(clean(sentence))
    shared = mine.content & given.content
    if not shared or len(shared) < SHARED * len(mine.content):
        return ()
    ways = _turned(mine, given)
    conditions = [*_conditions(mine, given)]
    if ways is None:
        told = {one.sentence.split()[0] for one in conditions}  # "without" denies "with", and nothing else
        ways = [*_ways(mine, given)] or [one for one in _denials(mine, given, shared) if one.sentence not in told]
    others = (*_numbers(clean(claim), clean(sentence)), *ways, *conditions, *_exchanged(mine, given))
    return (*others, *(one for one in _word(mine, given, shared) if one.sentence or not others))


class Compared(NamedTuple):
    """How a claim stands to sentences of a document."""

    stated: bool
    """One has every word of the claim, and no number, direction or denial differs."""
    opposed: bool
    """In one a number, a direction, a denial or the order differs."""
    apart: bool
    """One tells of another condition, turns the claim round, or says otherwise of something else ("no fewer deaths in
    lung cancer" of breast cancer), and none has every word of the claim."""
    denied: bool
    """One tells another number or direction, or denies what the claim says. A claim's own denial, which a sentence
    lacks, does not count: that is often said in other words."""


def compared(claim: str, sentences: Sequence[str]) -> Compared:
    words = term_set(clean(claim))
    found = [differences(claim, sentence) for sentence in sentences]
    kinds = [{one.kind for one in some} for some in found]
    stated = any(
        some <= {"word"} and words <= term_set(sentence) for sentence, some in zip(sentences, kinds, strict=True)
    )
    apart = not stated and any(
        not some.isdisjoint(_APART) or ("word" in some and some & {"direction", "negation"}) for some in kinds
    )
    denied = any(
        one.kind != "negation" or one.sentence for some in found for one in some if one.kind not in (*_APART, "word")
    )
    return Compared(stated, not set().union(*kinds) <= {"condition", "word"}, apart, denied)


# -- numbers


def _numbers(claim: str, sentence: str) -> Iterator[Difference]:
    given = quantities(sentence)
    for one in quantities(claim):
        same = [other for other in given if other.dimension == one.dimension]
        alike = [other for other in same if one.dimension or one.beside & other.beside]
        if alike and not any(_agrees(one, value) for value in _values(alike)):
            yield Difference("number", one.text, ", ".join(dict.fromkeys(other.text for other in alike[:3])))


@functools.lru_cache(maxsize=4096)
def quantities(text: str) -> tuple[_Quantity, ...]:
    """The quantities of a text. The dimension of a number without a unit is empty."""
    text = _INTERVAL.sub(lambda found: " " * len(found.group()), text)
    made: list[_Quantity] = []
    following = ("", 1.0)
    for one in reversed(list(itertools.islice(_QUANTITY.finditer(text), _MOST))):
        unit = next((name for place, name in enumerate(_FACTORS) if one[f"u{place}"]), None)
        written, scale, after = one["value"].lower(), (one["scale"] or "").lower(), text[one.end() :]
        if unit is not None:
            dimension, factor = _FACTORS[unit]
            dimension += re.sub(r"\W|per|an?\b|each|every", "", (one["rate"] or "").lower())
        else:
            dimension, factor = following if _RANGE.match(after) else ("", 1.0)
        following = (dimension, factor)
        before = text[max(0, one.start() - 24) : one.start()].rstrip()
        side = _ends_with(_ABOVE, before) - _ends_with(_BELOW, before)
        beside = " ".join(_WORDS.findall(before)[-2:] + _WORDS.findall(after[:24])[:1])
        about = _ends_with(_ABOUT, before)
        if one["comma"]:
            counted = dimension or scale or about or side or after.startswith(("-fold", " times"))
            decimal = counted or written[0] == "0" or _ends_with(_MEASURED, before)
            written = written.replace(",", ".") if decimal else written.partition(",")[0]
        value = (_SMALL.get(written) or float(re.sub(r"[,\s]", "", written))) * _LARGE.get(scale, 1)
        said = one.group().strip()
        made.append(_Quantity(said, value * factor, dimension, about, side, frozenset(terms(beside))))
    times = (_Quantity(one[0], _TIMES[one[1].lower()], "times", True, 0) for one in _MULTIPLIED.finditer(text))
    return (*reversed(made), *times)


def _ends_with(pattern: re.Pattern[str], text: str) -> bool:
    return any(found.end() == len(text) for found in pattern.finditer(text))


def _values(given: Sequence[_Quantity]) -> list[_Quantity]:
    """The quantities, and how far two of them are apart, which a claim may say in one number."""
    made = list(given)
    for one, other in itertools.combinations(given, 2):
        apart = abs(one.value - other.value)
        made.append(_Quantity("", apart, one.dimension, True, 0))
        if one.dimension == "percent" and max(one.value, other.value) > 0:
            made.append(_Quantity("", 100 * apart / max(one.value, other.value), one.dimension, True, 0))
    return made


def _agrees(one: _Quantity, other: _Quantity) -> bool:
    if not one.dimension and not one.about and not one.side:
        return one.value == other.value
    if one.side and (other.value - one.value) * one.side >= 0:
        return True
    allowed = 0.15 if one.about or other.about or one.side or other.side else 0.05
    return abs(one.value - other.value) <= allowed * max(one.value, other.value)


# -- directions and denials


@functools.lru_cache(maxsize=4096)
def _read(text: str) -> _Read:
    words = tuple(found.group().lower() for found in _TOKEN.finditer(text))
    signs = [_sign(word) for word in words]
    denies = [bool(_DENIAL.fullmatch(word)) for word in words]
    stems = tuple(
        "" if sign or denied or _GENERAL.fullmatch(word) else next(iter(terms_of_word(word)), "")
        for word, sign, denied in zip(words, signs, denies, strict=True)
    )
    ways: list[tuple[str, int, str]] = []
    denied = []
    for place, word in enumerate(words):
        if signs[place]:
            no = next((words[at] for at in range(max(0, place - 3), place) if denies[at]), "")
            said = f"{no} {word}".strip()
            ways += [(stem, 0 if no else signs[place], said) for stem in _about(words, stems, place)]
        if denies[place]:
            after = frozenset(stem for stem in _after(words, stems, place) if stem)
            denied.append((after, word))
    content = frozenset(stem for stem in stems if stem and not stem[0].isdigit() and stem not in _SMALL)
    return _Read(words, stems, content, tuple(ways), tuple(denied))


def _sign(word: str) -> int:
    return bool(_MORE.fullmatch(word)) - bool(_LESS.fullmatch(word))


def _after(words: Sequence[str], stems: Sequence[str], place: int) -> list[str]:
    """The stems of the words that follow, up to a mark."""
    following = range(place + 1, min(len(words), place + 1 + _NEAR))
    return [stems[at] for at in itertools.takewhile(lambda at: words[at][0] not in ".,;:()", following)]


def _about(words: Sequence[str], stems: Sequence[str], place: int) -> list[str]:
    """What rises or falls: what follows up to a preposition, quantities left out; else what stands before."""
    following = range(place + 1, len(words))
    until = itertools.takewhile(lambda at: words[at][0] not in ".,;:()" and words[at] not in _ENDS, following)
    things = (at for at in until if not words[at][0].isdigit() and words[at] not in _LARGE)
    found = [stems[at] for at in itertools.islice(things, _NEAR) if stems[at]]
    if not found or _ALONE.fullmatch(words[place]):
        before = range(place - 1, max(-1, place - 1 - _NEAR), -1)
        found += [stems[at] for at in before if stems[at]][:1]
    return found


def _ways(mine: _Read, given: _Read) -> Iterator[Difference]:
    for stem, sign, word in mine.ways:
        others = [(other, said) for about, other, said in given.ways if about == stem]
        if sign and others and all(other != sign for other, _ in others):
            yield Difference("direction" if others[0][0] else "negation", word, others[0][1])
            return


def _denials(mine: _Read, given: _Read, shared: frozenset[str]) -> Iterator[Difference]:
    denying = [word for about, word in given.denied if about & shared]
    if denying and not mine.denied:
        yield Difference("negation", "", denying[0])
    elif mine.denied and not given.denied and len(shared) >= 0.6 * len(mine.content):
        yield Difference("negation", mine.denied[0][1], "")


def _conditions(mine: _Read, given: _Read) -> Iterator[Difference]:
    for two in _stems_of_conditions():
        for ours, theirs in itertools.permutations(two):
            named, instead = mine.content & ours, given.content & theirs
            if named and instead and not (mine.content & theirs or given.content & ours):
                yield Difference("condition", _one_of(named, mine), _one_of(instead, given))
    others = _accompanied(given)
    for stem, said in _accompanied(mine).items():
        other = others.get(stem, said)
        if said.split()[0] != other.split()[0]:
            yield Difference("condition", said, other)


def _accompanied(text: _Read) -> dict[str, str]:
    """What is "with" and "without" in a text, by its stem."""
    pairs = itertools.pairwise(zip(text.words, text.stems, strict=True))
    return {stem: f"{word} {one}" for (word, _), (one, stem) in pairs if stem and word in ("with", "without")}


@functools.cache
def _stems_of_conditions() -> list[list[frozenset[str]]]:
    return [[frozenset(terms(words)) for words in two.split("/")] for two in _CONDITIONS]


def _one_of(stems: frozenset[str], text: _Read) -> str:
    return next(word for word, stem in zip(text.words, text.stems, strict=True) if (stem or word) in stems)


def _turned(mine: _Read, given: _Read) -> list[Difference] | None:
    """Where a sentence with all of a claim's words says of the second what the claim says of the first; nothing where
    it says the opposite of it, which is the same ("B is less than A"). None if it does not turn the claim round."""
    if not mine.content <= given.content:
        return None
    for (word, *sides), (other, *others) in itertools.product(_turns(mine), _turns(given)):
        first = (sides[0] - sides[1]) & (others[1] - others[0])
        if first and sides[1] - sides[0] <= others[0] - others[1]:
            if _sign(word) * _sign(other) < 0:
                return []
            if terms_of_word(word) == terms_of_word(other):
                return [Difference("order", f"{_one_of(first, mine)} … {word}", f"{other} … {_one_of(first, given)}")]
    return None


def _turns(text: _Read) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    """What can't be turned round, for "than" what is more or less, with the stems before and after it."""
    places = (place for place, word in enumerate(text.words) if _TURNS.fullmatch(word))
    for place in itertools.islice(places, _NEAR):
        if text.words[place + 1 : place + 2] != ("by",):
            word = text.words[place]
            more = (one for one in reversed(text.words[:place]) if _MORE_THAN.fullmatch(one))
            before, after = text.stems[:place], text.stems[place + 1 :]
            yield next(more, word) if word == "than" else word, frozenset(before) - {""}, frozenset(after) - {""}


def _exchanged(mine: _Read, given: _Read) -> Iterator[Difference]:
    """Where two numbers are told of each other's: "5 % of women and 7 % of men" for "7 % of women and 5 % of men"."""
    for after in (True, False):
        ours, theirs = _told_of(mine, after), _told_of(given, after)
        for (one, first), (other, second) in itertools.combinations(list(ours.items())[:_MOST], 2):
            its, others = theirs.get(one, first), theirs.get(other, second)
            told = (first - second) & others - its
            if told and (second - first) & its - others:
                yield Difference("order", f"{one} … {_one_of(told, mine)}", f"{other} … {_one_of(told, given)}")
                return


def _told_of(text: _Read, after: bool) -> dict[str, frozenset[str]]:
    """What stands between a text's numbers, by the number before it or after it. A year is no number here."""
    made: dict[str, frozenset[str]] = {}
    number, some = "", set[str]()
    for word, stem in list(zip(text.words, text.stems, strict=True))[:: 1 if after else -1]:
        if word[0].isdigit() and not _YEAR.fullmatch(word):
            made[number], number, some = frozenset(some), word, set()
        elif stem or word in ("from", "to"):
            some.add(stem or word)
    made[number] = frozenset(some)
    return {number: some for number, some in made.items() if number}


def _word(mine: _Read, given: _Read, shared: frozenset[str]) -> Iterator[Difference]:
    missing = mine.content - shared
    if len(missing) != 1 or len(shared) < 3:
        return
    place = mine.stems.index(next(iter(missing)))
    if _UNIT.fullmatch(mine.words[place]):
        return  # `20 cm` and `200 mm` are the same
    instead = ""
    for kind, start, end, first, last in SequenceMatcher(None, mine.stems, given.stems, autojunk=False).get_opcodes():
        if kind == "replace" and start <= place < end and last - first == end - start:
            at = first + place - start
            instead = given.words[at] if given.stems[at] in given.content else ""
    yield Difference("word", mine.words[place], instead)
