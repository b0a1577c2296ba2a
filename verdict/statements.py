"""How a claim stands to sentences of a document: stated by a clause, contradicted, or with the same words about
something else. `differences.py` tells what differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..core.analysis import clean, one_spelling, term_set, terms, terms_of_word
from .differences import GENERAL, TOKEN, YEAR, differences, parsed, sign_of, turned, turns
from .quantities import MOST

_APART = ("condition", "order")
_CLAUSE = re.compile(r";|\b(?:but|whereas|while|although)\b")
_OWN = re.compile(r"\W*(?:the|an?|their|his|her|its|our|they|it|he|she|we|this|these|those|most|some|all|no)\b")
"""How a clause with a subject of its own begins."""
_INSTEAD = re.compile(
    r"\b(?:unlike|in contrast (?:to|with)|rather than|instead of|as opposed to|whether|before \w+ing that"
    r"|(?:say|tell)s? (?:little|nothing)|(?:idea|notion|belief|myth|claim|assumption|rumou?r)s? that)\b[^,;.]*"
    r"|\b(?:contrary to|(?:provided|assuming) that)\b[^;.]*"
    r"|\b(?:(?:which|who|that) )?(?:\w+ ){0,3}?(?:(?:is|are|was|were|has been|have been|be|widely|often|been) )+"
    r"(?:said|believed|thought|assumed|claimed|supposed|expected|alleged|reported) to\b[^,;.]*",
    re.IGNORECASE,
)
"""What a sentence says of something else, or of what is not known or was only thought."""
_LEAD = (
    "thus, therefore, hence, overall, consequently, together, in conclusion, we conclude, here, our study, results, "
    "data, findings, found, find, show, shows, showed, demonstrate, demonstrated, confirm, confirmed, has, have, had, "
    "significantly, substantially, markedly, considerably, greatly, strongly, clearly, progressively, also"
)
"""What says no more of a statement than that it was found."""
_ALIKE = (
    (re.compile(r"\b(?:linked|tied|related) (?=(?:to|with)\b)|\bcorrelated (?=with\b)"), "associated "),
    (re.compile(r"\b(?:decreas(?:e[sd]?|ing)|lower(?:s|ed|ing)?|cuts?|diminish(?:e[sd]|ing)?)\b(?! than)"), "reduced"),
    (re.compile(r"\b(?:rais(?:e[sd]?|ing)|elevat(?:e[sd]?|ing)|higher)\b(?! than)"), "increased"),
    (re.compile(r"\b(?:declin(?:e[sd]?|ing)|drop(?:s|ped|ping)?)\b"), "fell"),
)
_FIGURES = re.compile(r" ?\((?=[^()]*\d)(?![^()]*\bp ?[=>≥] ?0?\.(?:0[5-9]|[1-9]))[^()]*\)", re.IGNORECASE)
"""Figures in brackets, but for a P value that is not significant."""
_AND = re.compile(r"\band\b")
_PASSIVE = re.compile(r"\b(?:is|are|was|were|been|being|be) (?:\w+ ){0,4}?(\w*(?:ed|en|wn|ne|ught|ade|uilt)) by (?!\d)")


class Compared(NamedTuple):
    """How a claim stands to sentences of a document."""

    stated: bool
    """In one a clause has every word of the claim, in its order, and no number, direction or denial differs."""
    words: int
    """How many words the claim has, without what makes it a question."""
    missing: int
    """How many of them the nearest one has not."""
    opposed: bool
    """In one a number, a direction, a denial or the order differs."""
    apart: bool
    """One tells of another condition, turns the claim round, or says otherwise of something else ("no fewer deaths in
    lung cancer" of breast cancer), and none has every word of the claim."""
    denied: bool
    """One tells another number or direction, or denies what the claim says. A claim's own denial, which a sentence
    lacks, does not count: that is often said in other words."""
    exchanged: bool
    """One has another word in the place of the claim's, and none states the claim."""
    unsure: bool
    """One says what may be, or goes together, where the claim says what is, or is the cause; none states the claim."""
    contrary: bool
    """In one a number or a direction differs."""


def compared(claim: str, sentences: Sequence[str]) -> Compared:
    claim, sentences = _plain(claim), [*map(_plain, sentences)]
    found = [differences(claim, sentence) for sentence in sentences]
    kinds = [{one.kind for one in some} for some in found]
    stated = any(some <= {"word"} and _states(sentence, claim) for sentence, some in zip(sentences, kinds, strict=True))
    apart = not stated and any(
        not some.isdisjoint(_APART) or ("word" in some and some & {"direction", "negation"}) for some in kinds
    )
    others = [one for some in found for one in some if one.kind not in (*_APART, "certainty", "word")]
    denied = any(one.kind != "negation" or one.sentence for one in others)
    told = set().union(*kinds)
    words = term_set(clean(claim)) - term_set("do does did")
    return Compared(
        stated,
        len(words),
        min((len(words - term_set(sentence)) for sentence in sentences), default=len(words)),
        bool(others) or "order" in told,
        apart,
        denied,
        not stated and any(one.kind == "word" and one.sentence for some in found for one in some),
        not stated and "certainty" in told,
        not {"number", "direction"}.isdisjoint(told),
    )


def repeats(claim: str, sentence: str) -> bool:
    """Whether a clause of a sentence says what a claim says, and nothing else."""
    claim, sentence = _plain(claim), _FIGURES.sub("", _plain(sentence))
    return not differences(claim, sentence) and _states(sentence, claim, alone=True)


def _plain(text: str) -> str:
    """A text with one word for those that mean the same."""
    text = one_spelling(text)
    for words, word in _ALIKE:
        text = words.sub(word, text)
    return text


def contradicts(claim: str, sentence: str) -> bool:
    """Whether a clause of a sentence says what a claim says but for a number, a direction or a denial, and hardly
    anything else. Another year, the number of a name (GPT-4), "hardly" or a lack of evidence contradicts nothing."""
    wanted = term_set(clean(claim))
    for clause in _clauses(clean(sentence)) if differences(claim, sentence) else ():
        found, given = differences(claim, clause), term_set(clause)
        if len(found) == 1 and len(wanted - given) <= 1 and len(given - wanted) <= 2 and "evid" not in given - wanted:
            (one,) = found
            named = YEAR.fullmatch(one.claim) or re.search(rf"[\w-]{re.escape(one.claim)}", claim)
            opposed = one.kind in ("direction", "negation") or (one.kind == "number" and not named)
            if one.sentence and opposed and not one.sentence.startswith("hardly "):
                return True
    return False


def _states(sentence: str, claim: str, *, alone: bool = False) -> bool:
    """Whether a clause of a sentence, with what the clauses share, has every word of a claim, in the claim's order;
    `alone`: and no other."""
    sentence, claim = clean(sentence), clean(claim)
    wanted, mine = term_set(claim), parsed(claim)
    if not (wanted <= term_set(sentence) or mine.content <= parsed(sentence).content):
        return False
    order = [stem for word in mine.words if not GENERAL.fullmatch(word) for stem in terms_of_word(word)]
    whole = len(_clauses(claim)) > 1
    any_order = _PASSIVE.search(claim) or any(word != "than" for word, *_ in turns(mine))

    def fits(clause: str) -> bool:
        given, passive = terms(clause), _PASSIVE.search(clause)
        if passive and not _PASSIVE.search(claim) and wanted.issuperset(terms_of_word(passive[1])):
            return not _in_order(order, given)
        # What stands last in a claim may stand first in a sentence: "in the Arctic, …".
        starts = range(1 if whole else max(1, min(MOST, len(order))))
        return bool(any_order or passive) or any(_in_order(order[at:] + order[:at], given) for at in starts)

    def says(clause: str) -> bool:
        words, given = parsed(clause), term_set(clause)
        more = given - wanted - term_set(_LEAD) if alone else frozenset()
        round_ = turned(mine, words)
        if round_ is not None:  # "B is less than A" has "less" for "more"
            return not round_ and len(more) <= 1
        same = wanted <= given and not more and len(words.denied) == len(mine.denied)
        return same and fits(clause)

    parts = [sentence] if whole else _clauses(sentence)
    parts = parts if _INSTEAD.search(claim) else [_INSTEAD.sub(" ", one) for one in parts]
    return any(map(says, parts))


def _clauses(sentence: str) -> list[str]:
    """The parts of a sentence that say something of different things, each with what stands before them all. "and"
    joins two if both have a number or a direction, or if they share a word."""
    made: list[str] = []
    for part in _CLAUSE.split(sentence, MOST):
        first, *others = _AND.split(part, MOST)
        made.append(first)
        for one in others:
            apart = made[-1] != _head(made[-1]) and one != _head(one)
            if apart or not term_set(made[-1]).isdisjoint(terms(one)):
                made.append(one)
            else:
                made[-1] += "and" + one
    head = _head(made[0])
    shared = head if head != made[0] or not any(term_set(head) & term_set(one) for one in made[1:]) else ""
    return [made[0], *(one if _OWN.match(one) else shared + one for one in made[1:])]


def _head(part: str) -> str:
    """A part of a sentence up to its first number or direction."""
    tokens = ((at.start(), at[0].lower()) for at in TOKEN.finditer(part))
    return part[: next((at for at, word in tokens if word[0].isdigit() or sign_of(word)), len(part))]


def _in_order(wanted: Sequence[str], given: Sequence[str]) -> bool:
    rest = iter(given)
    return all(one in rest for one in wanted)
