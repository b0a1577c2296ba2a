"""Pairs made from what a sentence of an abstract says that one thing does to another, for the packaged stance model's
reader (`stance_pairs.py`).

A finding (`X was associated with Y`, `X reduced Y`) or a finding of no effect is said again in one of many ways, as an
abstract says it (evidence) and as a claim says it. Each finding gives pairs in which the claim, the evidence, or both
are reversed or denied, so that no word of one text decides alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_HEADING = re.compile(r"^(?:[A-Z][A-Z ,:&/-]{3,}\s)?\s*")
_LEAD = re.compile(
    r"^(?:(?:in contrast|however|moreover|furthermore|interestingly|importantly|notably|additionally|finally|thus"
    r"|therefore|overall|conversely|similarly|in addition|in conclusion|accordingly|consistently|surprisingly),?\s+)*"
    r"(?:(?:we|these (?:results|data|findings)|our (?:results|data|findings)|it has been)\s(?:\w+\s){0,3}?that\s)?",
    re.IGNORECASE,
)
_HAVE = r"(?:was|were|is|are|has been|have been)"
_ASSOCIATED = re.compile(
    rf"^(?P<x>.{{6,90}}?) {_HAVE} (?P<no>not )?(?:\w+ly )?(?:associated|correlated|linked) (?:with|to) "
    r"(?P<y>.{5,90}?)"
    r"(?=[.;(,]| (?:in|after|among|during|when|but|and was|and were)\b)"
)
_ACTED = re.compile(
    r"^(?P<x>.{6,90}?) (?:(?:did|does|do) (?P<no>not) )?(?:\w+ly )?(?P<verb>reduce[sd]?|decrease[sd]?|lower(?:s|ed)?"
    r"|increase[sd]?|raise[sd]?|improve[sd]?|enhance[sd]?|prevent(?:s|ed)?|inhibit(?:s|ed)?|suppress(?:es|ed)?"
    r"|block(?:s|ed)?|induce[sd]?|cause[sd]?|promote[sd]?|impair(?:s|ed)?) (?P<y>.{5,90}?)"
    r"(?=[.;(,]| (?:in|after|among|during|when|but|by|as|without|compared)\b)"
)
_ENDS = re.compile(
    r"\b(?:of|with|to|an?|the|in|for|from|on|at|also|\w*ly|shows?|showed|demonstrated?|exhibit(?:s|ed)?"
    r"|display(?:s|ed)?|report(?:s|ed)?|suggest(?:s|ed)?|produced?|consumed?|received?|found|experienced?|then"
    r"|further|only|order)$",
    re.IGNORECASE,
)
"""Words that no name of a thing ends with."""
_PLAIN = re.compile(r"^[\w][\w' /+-]*$")
_NO_NAME = re.compile(
    r"^(?:in|for|by|of|at|on|with|from|consistent|using|this|these|that|those|it|they|there|which|who|we|he|she|both"
    r"|all|each|such|although|while|whereas|when|after|if|because|since|as|but|and|to|here|their|its)\b"
    r"|\b(?:which|who|that|was|were|is|are|and|or|has|have|had|did|not"
    r"|no|neither|nor|respectively|significantly|by|been|be|being|than|can|could|may|will|we|increases?|decreases?"
    r"|reductions?)\b",
    re.IGNORECASE,
)
_MORE = re.compile(r"^(?:an? |the )?(?:\w+ly )?(?:increased|higher|greater|elevated|more|an increase in|increases in) ")
_LESS = re.compile(r"^(?:an? |the )?(?:\w+ly )?(?:reduced|lower|decreased|less|fewer|a decrease in|a reduction in) ")
_CLAIMED = {
    1: ("increases", "raises", "leads to more", "is linked to higher", "causes higher", "is associated with increased"),
    -1: ("reduces", "lowers", "leads to less", "is linked to lower", "cuts", "is associated with decreased"),
    0: ("causes", "leads to", "is linked to", "is associated with", "affects", "contributes to", "plays a part in"),
}
_SAID = {
    1: ("increased", "was associated with higher", "led to an increase in", "significantly raised"),
    -1: ("reduced", "was associated with lower", "led to a decrease in", "significantly lowered"),
    0: ("was associated with", "was linked to", "correlated with", "had an effect on"),
}
_NOTHING = (
    "{x} was not associated with {y}.",
    "{x} was not significantly associated with {y}.",
    "There was no association between {x} and {y}.",
    "We found no evidence that {x} affects {y}.",
    "{x} had no effect on {y}.",
    "{x} had no significant effect on {y}.",
    "{x} did not change {y}.",
    "There was no significant difference in {y} between those with and without {x}.",
    "No relation between {x} and {y} was found.",
    "{y} did not differ with {x}.",
    "{x} neither increased nor reduced {y}.",
    "The relative risk of {y} with {x} was {r} (95% CI {a} to {b}).",
    "The findings do not support a link between {x} and {y}.",
)
_DENIED = (
    "{x} has no effect on {y}.",
    "{x} does not affect {y}.",
    "{x} is not linked to {y}.",
    "{x} does not {v} {y}.",
)
_UP = ("increase", "raise", "improve", "enhance", "induce", "cause", "promote")


class Finding(NamedTuple):
    """What one thing does to another: 1 more of it, -1 less, 0 some relation. `null` denies it. `sentence` says so."""

    one: str
    other: str
    way: int
    null: bool
    sentence: str


def findings(sentences: Sequence[str]) -> Iterator[tuple[int, Finding]]:
    """The findings of an abstract, each with its sentence's place."""
    for place, sentence in enumerate(sentences):
        text = _LEAD.sub("", _HEADING.sub("", sentence))
        for pattern in (_ASSOCIATED, _ACTED):
            if not (found := pattern.match(text)):
                continue
            one, other = found["x"].strip(), found["y"].strip()
            way = 0
            if pattern is _ACTED:
                way = 1 if found["verb"].startswith(_UP) else -1
            elif more := _MORE.match(other):
                way, other = 1, other[more.end() :]
            elif less := _LESS.match(other):
                way, other = -1, other[less.end() :]
            if all(_names(name) for name in (one, other)):
                yield place, Finding(_inside(one), _inside(other), way, bool(found["no"]), sentence)
            break


def _names(text: str) -> bool:
    return bool(_PLAIN.match(text)) and not _NO_NAME.search(text) and not _ENDS.search(text) and len(text.split()) <= 9


def _inside(name: str) -> str:
    """The name as it stands inside a sentence, without its article."""
    name = re.sub(r"^(?:the|an?)\s+", "", name, flags=re.IGNORECASE)
    first, _, rest = name.partition(" ")
    return f"{first[:1].lower()}{first[1:]} {rest}".strip() if first[1:].islower() else name


def variants(finding: Finding, draw: random.Random) -> list[tuple[str, str, bool]]:
    """Claims, each with a sentence of evidence and whether the evidence supports it."""
    nothing = finding.sentence if finding.null else _said_nothing(finding, draw)
    claim = _claim(finding, finding.way, draw)
    denied = draw.choice(_DENIED).format(
        x=_first(finding.one), y=finding.other, v={1: "increase", -1: "reduce", 0: "cause"}[finding.way]
    )
    made = [(claim, nothing, False), (denied, nothing, True)]
    if finding.null:
        return made if draw.random() < 0.5 else made[:1]
    made = [made[0], (claim, finding.sentence, True)]
    if draw.random() < 0.4:
        made.append((denied, draw.choice((finding.sentence, _said(finding, finding.way, draw))), False))
    if draw.random() < 0.4:
        made.append((denied, nothing, True))
    if finding.way and draw.random() < 0.6:
        made.append((claim, _said(finding, -finding.way, draw), False))
    return made


def _claim(finding: Finding, way: int, draw: random.Random) -> str:
    return f"{_first(finding.one)} {draw.choice(_CLAIMED[way])} {finding.other}."


def _said(finding: Finding, way: int, draw: random.Random) -> str:
    return f"{_first(finding.one)} {draw.choice(_SAID[way])} {finding.other}."


def _said_nothing(finding: Finding, draw: random.Random) -> str:
    ratio = round(draw.uniform(0.92, 1.09), 2)
    width = draw.uniform(0.12, 0.3)
    made = draw.choice(_NOTHING).format(
        x=finding.one, y=finding.other, r=ratio, a=round(ratio - width, 2), b=round(ratio + width, 2)
    )
    return _first(made)


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]
