"""What confidence intervals and p-values say, in words, for a reader that cannot reckon.

"The relative risk was 0.92 (95 % CI 0.68 to 1.24)" finds no difference, and has the words of one that does.
"""

from __future__ import annotations

import re

NOT_SIGNIFICANT, SIGNIFICANT = "no significant difference", "significant"
LEVEL = 0.05
"""The level at which the field calls a difference significant; an interval is taken to be one of 95 %."""

_NUMBER = r"[-+−–]?\s?\d{0,6}[.·]?\d{1,6}"
_INTERVAL = re.compile(
    r"(?P<open>\s?[(\[]\s?|[,;]?\s?)(?:with an?\s)?(?:9\d(?:[.·]\d)?\s?(?:%|percent|per cent)?\s?)?"
    r"(?:(?:(?:confidence|credible|uncertainty)\s)?\bintervals?\b(?:\s?[(\[]CIs?[)\]])?|\bC\.?I\.?s?\b|\bCrI\b)"
    rf"[\s:=.,(\[]{{0,3}}(?:(?:of|from|was)\s)?(?P<low>{_NUMBER})\s?%?\s?(?:to|and|[-–—−]|[,;]\s)\s?(?P<high>{_NUMBER})(?![.,]?\d)"
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
    return _P_VALUE.sub(_of_p, _INTERVAL.sub(_of_interval, sentence))


def _of_interval(found: re.Match[str]) -> str:
    low, high = _value(found["low"]), _value(found["high"])
    if low > high:  # "-12 - -5", read as -12 and 5
        high = abs(high)
    before = found.string[: found.start()]
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
