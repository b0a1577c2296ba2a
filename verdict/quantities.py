"""The quantities that a text tells, with their units, and what its statistics say.

A rate (`3 mm a year`) is never compared with an amount. A number without a unit is compared with one that shares a word
beside it.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.analysis import terms

MOST = 50
"""How many quantities of a text are read."""
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
SMALL = dict(zip("two three four five six seven eight nine ten eleven twelve".split(), range(2, 13), strict=True))
_TIMES = {"halv": 0.5, "doubl": 2, "tripl": 3, "quadrupl": 4}
LARGE = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
UNIT = re.compile("|".join((*_FACTORS, *LARGE)))
_QUANTITY = re.compile(
    rf"(?<![\w.,])(?P<value>(?P<comma>(?:0,\d+|\d+,\d\d?)(?![.,]?\d|\s?(?:and|or|&)\s?\d+(?!,?\d)))"
    rf"|\d{{1,3}}(?:(?:,\d{{3}})+|(?:\s\d{{3}})+(?!\d))(?:\.\d+)?|\d+(?:\.\d+)?|(?:{'|'.join(SMALL)})\b)"
    rf"(?:[\s-]?(?P<scale>{'|'.join(LARGE)})\b)?"
    rf"(?:[\s-]?(?:{'|'.join(f'(?P<u{place}>{unit})' for place, unit in enumerate(_FACTORS))})(?!\w)"
    r"(?P<rate>\s?(?:an?|per|each|every|/)\s?(?:year|decade|century|day|week|month|hour|yr|kg|person|capita)\b"
    r"|\s?(?:annually|yearly|daily|weekly))?)?",
    re.IGNORECASE,
)
_MULTIPLIED = re.compile(rf"\b({'|'.join(_TIMES)})(?:ed|es|ing)\b", re.IGNORECASE)
_INTERVAL = re.compile(
    r"\b9[059](?:\.\d)?\s?%\s?(?:ci|cis|confidence|credible|uncertainty)\b.{0,40}?"
    r"\d+(?:[.,]\d+)?\s?(?:-|–|to|,|and)\s?\d+(?:[.,]\d+)?%?|\bp\s?[<=>≤]\s?0?[.,]\d+"
    r"|\b\d+:\d+\b",
    re.IGNORECASE,
)
"""A confidence interval or a p value, whose numbers are not the finding; the time of a clock, or a ratio."""
_RANGE = re.compile(rf"\s?(?:to|and|or|[-–,])\s?(?=\d|(?:{'|'.join(SMALL)})\b)")
"""`40 to 50 %`: both have the unit."""
_MEASURED = re.compile(r"\b(?:by|of|to|from|than|at|was|is|were|are|mean|average|median|between(?: \S+ and)?)|[=±]")
"""What stands before one number. Without it or a unit, `3,5` may be a list, as in `groups 3,5`, and no decimal."""
_WORDS = re.compile(r"[^\W\d_]+")
_ABOVE = re.compile(r"(?:more|greater|higher|longer) than|over|above|at least|exceed\w*|[>≥]", re.IGNORECASE)
_BELOW = re.compile(r"(?:less|fewer|lower|smaller) than|under|below|at most|up to|[<≤]", re.IGNORECASE)
_ABOUT = re.compile(r"about|around|roughly|approximately|nearly|almost|some|a little \w+|just \w+|~", re.IGNORECASE)


ROUND = 1e5
"""From which number on a claim may round one without saying so, as it may one with a unit."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a text; `value` is in the unit whose factor is 1, or as written without a unit."""

    text: str
    value: float
    dimension: str
    about: bool
    side: int
    """1 for more than the value, -1 for less, 0 for the value itself."""
    beside: frozenset[str] = frozenset()
    """The words around it. A number without a unit is compared with one that shares a word."""


@functools.lru_cache(maxsize=4096)
def quantities(text: str) -> tuple[Quantity, ...]:
    """The quantities of a text. The dimension of a number without a unit is empty."""
    text = _INTERVAL.sub(lambda found: " " * len(found.group()), text)
    made: list[Quantity] = []
    following = ("", 1.0)
    for one in reversed(list(itertools.islice(_QUANTITY.finditer(text), MOST))):
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
        value = (SMALL.get(written) or float(re.sub(r"[,\s]", "", written))) * LARGE.get(scale, 1)
        said = one.group().strip()
        made.append(Quantity(said, value * factor, dimension, about, side, frozenset(terms(beside))))
    times = (Quantity(one[0], _TIMES[one[1].lower()], "times", True, 0) for one in _MULTIPLIED.finditer(text))
    return (*reversed(made), *times)


def dimensions(text: str) -> set[str]:
    """Those of a text's quantities that have a unit."""
    return {one.dimension for one in quantities(text) if one.dimension}


def _ends_with(pattern: re.Pattern[str], text: str) -> bool:
    return any(found.end() == len(text) for found in pattern.finditer(text))


def agrees_with_any(one: Quantity, given: Sequence[Quantity]) -> bool:
    """Whether a claim may say one in this way of what is given, or of how far two of them are apart."""
    return any(_agrees(one, value) for value in _values(given))


def _values(given: Sequence[Quantity]) -> list[Quantity]:
    """The quantities, and how far two of them are apart, which a claim may say in one number."""
    made = list(given)
    for one, other in itertools.combinations(given, 2):
        apart = abs(one.value - other.value)
        made.append(Quantity("", apart, one.dimension, True, 0))
        if one.dimension == "percent" and max(one.value, other.value) > 0:
            made.append(Quantity("", 100 * apart / max(one.value, other.value), one.dimension, True, 0))
    return made


def _agrees(one: Quantity, other: Quantity) -> bool:
    if not one.dimension and not one.about and not one.side and one.value < ROUND:
        return one.value == other.value
    if one.side and (other.value - one.value) * one.side >= 0:
        return True
    allowed = 0.15 if one.about or other.about or one.side or other.side else 0.05
    return abs(one.value - other.value) <= allowed * max(one.value, other.value)


# -- statistics, for a reader that cannot reckon

NOT_SIGNIFICANT, SIGNIFICANT = "no significant difference", "significant"
LEVEL = 0.05
"""The level at which the field calls a difference significant; an interval is taken to be one of 95 %."""
BEFORE = 300
"""In how many characters before an interval stands what it is one of."""

_SIGNED = r"[-+−–]?\s?\d{0,6}[.·]?\d{1,6}"
_BOUNDS = re.compile(
    r"(?P<open>\s?[(\[]\s?|[,;]?\s?)(?:with an?\s)?(?:9\d(?:[.·]\d)?\s?(?:%|percent|per cent)?\s?)?"
    r"(?:(?:(?:confidence|credible|uncertainty)\s)?\bintervals?\b(?:\s?[(\[]CIs?[)\]])?|\bC\.?I\.?s?\b|\bCrI\b)"
    rf"[\s:=.,(\[]{{0,3}}(?:(?:of|from|was)\s)?(?P<low>{_SIGNED})\s?%?\s?(?:to|and|[-–—−]|[,;]\s)\s?(?P<high>{_SIGNED})(?![.,]?\d)"
    r"\s?%?(?P<close>[)\]]{0,2})",
    re.IGNORECASE,
)
_RATIO = re.compile(r"\b(?:ratios?|[a-z]?OR|[a-z]?RR|[a-z]?HR|IRR|PR|SIR|SMR|[Rr]isks?|odds|[Hh]azards?)\b")
_DIFFERENCE = re.compile(
    r"\b(?:differences?|changes?|S?MD|WMD|effects?|slope|coefficient|beta|decreased?|increased?|reductions?)\b|β",
    re.IGNORECASE,
)
_P_VALUE = re.compile(
    r"\bp(?:[- ]?values?)?(?: for [a-z]{1,20})?\s?"
    r"(?:(?P<sign>[=<>≤≥]|of|was)\s?(?P<value>[01]?[.·]\d{1,6})|[=:]?\s?\(?n\.?s\b\.?\)?)"
    r"|\(\s?n\.?s\.?\s?\)",
    re.IGNORECASE,
)


def in_words(sentence: str) -> str:
    """A sentence in which an interval is replaced by what it says, and a p-value is followed by it.

    An interval of a ratio is one of no difference if it holds 1, that of any other difference if it holds 0. An
    interval of neither, as of a share, is left as it is.
    """
    return _P_VALUE.sub(_of_p, _BOUNDS.sub(_of_interval, sentence))


def _of_interval(found: re.Match[str]) -> str:
    low, high = _value(found["low"]), _value(found["high"])
    if low > high:  # "-12 - -5", read as -12 and 5
        high = abs(high)
    before = found.string[max(0, found.start() - BEFORE) : found.start()]
    ratio, difference = _last(_RATIO, before), _last(_DIFFERENCE, before)
    if low > high or (low > 0 and max(ratio, difference) < 0):
        return found[0]
    as_ratio = low > 0 and ratio >= 0 and (ratio > difference or low < 1 < high)
    says = NOT_SIGNIFICANT if low <= as_ratio <= high else SIGNIFICANT
    if found["open"].strip() in ("(", "["):
        return f" ({says})" if found["close"] else f" ({says}"
    return f", {says}{found['close']}"


def _of_p(found: re.Match[str]) -> str:
    value, sign = found["value"], (found["sign"] or "").lower()
    if value is None:
        return f"{found[0]}, {NOT_SIGNIFICANT}"
    p = _value(value)
    if p > LEVEL or (p == LEVEL and sign in (">", "≥")):
        return found[0] if p > 1 or sign in ("<", "≤") else f"{found[0]}, {NOT_SIGNIFICANT}"
    return found[0] if sign in (">", "≥") else f"{found[0]}, {SIGNIFICANT}"


def _last(pattern: re.Pattern[str], text: str) -> int:
    """Where a pattern begins for the last time; -1 if nowhere."""
    return max((one.start() for one in pattern.finditer(text)), default=-1)


def _value(text: str) -> float:
    return float(re.sub(r"\s", "", text).replace("·", ".").replace("−", "-").replace("–", "-"))
