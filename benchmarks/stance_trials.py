"""Claims about what trials found, in many wordings, from Evidence Inference's questions: an outcome that rose, fell or
did not differ gives claims that are supported and claims that are refuted."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ccheck.core.analysis import terms

UP, DOWN, SAME = "increased", "decreased", "no difference"
_OTHER_WAY = {UP: DOWN, DOWN: UP, SAME: SAME}
_CLAIMS = {
    UP: (
        "{i} increases {o} compared with {c}.",
        "{i} raises {o}.",
        "{o} is higher with {i} than with {c}.",
        "Compared with {c}, {i} leads to more {o}.",
        "People given {i} had higher {o} than those given {c}.",
        "{i} led to a significant increase in {o} compared with {c}.",
        "{i} pushes up {o}.",
        "{o} went up with {i}.",
        "There was more {o} in the {i} group than in the {c} group.",
        "{i} boosts {o} more than {c} does.",
        "{i} is linked to greater {o}.",
        "Taking {i} rather than {c} means more {o}.",
    ),
    DOWN: (
        "{i} reduces {o} compared with {c}.",
        "{i} lowers {o}.",
        "{o} is lower with {i} than with {c}.",
        "Compared with {c}, {i} leads to less {o}.",
        "People given {i} had lower {o} than those given {c}.",
        "{i} led to a significant decrease in {o} compared with {c}.",
        "{i} brings down {o}.",
        "{o} went down with {i}.",
        "There was less {o} in the {i} group than in the {c} group.",
        "{i} cuts {o} more than {c} does.",
        "{i} is linked to less {o}.",
        "Taking {i} rather than {c} means less {o}.",
    ),
    SAME: (
        "{i} makes no difference to {o} compared with {c}.",
        "{i} has no effect on {o}.",
        "{o} is about the same with {i} and with {c}.",
        "There is no significant difference in {o} between {i} and {c}.",
        "{o} did not differ between people given {i} and those given {c}.",
        "{i} does not change {o}.",
        "{i} and {c} are alike as to {o}.",
        "Taking {i} rather than {c} neither raises nor lowers {o}.",
    ),
}
_DENIED = {  # what each denies
    "{i} does not increase {o} compared with {c}.": UP,
    "{i} does not lead to more {o} than {c}.": UP,
    "{o} is not higher with {i}.": UP,
    "{i} does not reduce {o} compared with {c}.": DOWN,
    "{i} fails to lower {o}.": DOWN,
    "{o} is not lower with {i} than with {c}.": DOWN,
    "{i} affects {o}.": SAME,
    "{i} changes {o} compared with {c}.": SAME,
}
Claimed = tuple[str, bool]
"""A claim, and whether the trial supports it."""


def claim_that(question: Mapping[str, Any], way: str, draw: random.Random, *, swap: float = 0.0) -> str:
    """A claim that the outcome rose, fell or did not differ; with a probability `swap` told of the comparator."""
    first, second = question["intervention"], question["comparator"]
    words = _CLAIMS[way]
    if draw.random() < swap:
        first, second, words = second, first, tuple(one for one in _CLAIMS[_OTHER_WAY[way]] if "{c}" in one)
    return _filled(draw.choice(words), question["outcome"], first, second)


def claims(question: Mapping[str, Any], draw: random.Random) -> list[Claimed]:
    """Claims to learn from: one that is supported, one or two that are refuted, and one with a denial."""
    way = question["label"]
    others = [other for other in _CLAIMS if other != way]
    draw.shuffle(others)
    made = [
        (claim_that(question, way, draw, swap=0.15), True),
        (claim_that(question, others[0], draw, swap=0.15), False),
    ]
    if draw.random() < 0.4:
        made.append((claim_that(question, others[1], draw, swap=0.15), False))
    if draw.random() < 0.5:
        text, denied = draw.choice(list(_DENIED.items()))
        first, second = question["intervention"], question["comparator"]
        made.append((_filled(text, question["outcome"], first, second), way != denied))
    return made


def other_outcomes(questions: Sequence[Mapping[str, Any]], draw: random.Random) -> list[tuple[str, str]]:
    """Claims about one outcome with what the same trial says of another: these are open."""
    by_article: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for question in questions:
        by_article[question["article"]].append(question)
    made = []
    for question in questions:
        wanted = set(terms(question["outcome"]))
        for other in draw.sample(by_article[question["article"]], len(by_article[question["article"]])):
            said = " ".join(other["evidence"])
            if wanted and len(wanted & set(terms(said))) <= 0.34 * len(wanted):
                made.append((claim_that(question, draw.choice((UP, DOWN, SAME)), draw), said))
                break
    return made


def _filled(words: str, outcome: str, first: str, second: str) -> str:
    made = words.format(o=_inside(outcome), i=_inside(first), c=_inside(second))
    return made[:1].upper() + made[1:]


def _inside(name: str) -> str:
    """The name as it stands inside a sentence."""
    name = " ".join(name.split()).rstrip(".")
    word = name.split(" ")[0]
    return name[:1].lower() + name[1:] if word[1:].islower() else name
