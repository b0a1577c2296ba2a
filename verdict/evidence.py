"""Which sentences of a document bear on a claim: its results and conclusions before its background and methods."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..core.analysis import clean, sentence_spans, term_set
from ..core.errors import InvalidData
from ..core.types import Document, Role, Sentence
from .differences import differences
from .quantities import dimensions
from .roles import roles_of

Match: TypeAlias = Callable[[str, Sequence[str]], Sequence[float]]
"""A claim and sentences to one score in 0..1 for each sentence."""

MATCH_SHARE = 0.6
"""The weight of the comparison of tokens, beside that of words. `benchmarks/evidence.py` has the comparison."""

NOT_FOUND = 0.4
"""The factor for the score of a sentence that states no result or conclusion."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A sentence of a document: where it stands, its share of the claim's weighted terms, its role, and the probability
    that it states what was found."""

    start: int
    end: int
    text: str
    lexical: float
    role: Role | None
    found: float


def choose_sentences(
    cases: Sequence[tuple[str, Sequence[Document]]], count: int, match: Match | None = None
) -> list[list[tuple[Sentence, ...]]]:
    """For each claim and each of its documents the up to `count` sentences that bear most on the claim, best first.

    The score is the weighted mean of two: the share of the claim's terms that a sentence has, each weighted by its
    rarity among the sentences of all the claim's documents (inverse document frequency), and what `match` says, which
    compares the tokens of claim and sentence; without `match` it is the first alone. Background, aim and method repeat
    a claim's words and do not settle it, so what is no result or conclusion gets `NOT_FOUND` of its score, graded by
    the probability of its role. Sentences that score 0 are left out. Raises InvalidData where `match` gives no scores.
    """
    if count == 0:
        return [[() for _ in documents] for _, documents in cases]
    chosen = []
    for claim, documents in cases:
        candidates = _candidates(claim, [document.text for document in documents])
        scores = {one.text: one.lexical for sentences in candidates for one in sentences}
        if match is not None and scores:
            scores = _mixed(claim, scores, match)
        chosen.append([_best(claim, sentences, scores, count) for sentences in candidates])
    return chosen


def nearest_in_words(claim: str, texts: Sequence[str], most: int) -> list[int]:
    """The places of up to `most` texts that share most words with the claim, in order. A quantity of the same kind as
    one of the claim's counts as a word. Of texts that share as many, the later come first: results and conclusions
    follow what was asked and done."""
    if len(texts) <= most:
        return list(range(len(texts)))
    wanted, kinds = term_set(claim), dimensions(claim)
    shared = [len(wanted & term_set(text)) + len(kinds and kinds & dimensions(text)) for text in texts]
    return sorted(sorted(range(len(texts)), key=lambda number: (-shared[number], -number))[:most])


def _candidates(claim: str, texts: Sequence[str]) -> list[list[_Candidate]]:
    """The sentences of each document's text with their lexical scores."""
    wanted = term_set(claim)
    shared = [
        [(start, end, text[start:end], wanted & term_set(text[start:end])) for start, end in sentence_spans(text)]
        for text in texts
    ]
    found = Counter(term for sentences in shared for *_, words in sentences for term in words)
    total = sum(map(len, shared))
    weight = {term: math.log(1 + total / (1 + found[term])) for term in wanted}
    whole = sum(weight.values())
    return [
        [
            # Summed in a fixed order, so that equal sentences have equal scores.
            _Candidate(
                start, end, text, sum(weight[term] for term in sorted(words)) / whole if whole else 0, role, found
            )
            for (start, end, text, words), role, found in zip(sentences, its.roles, its.found, strict=True)
        ]
        for sentences, its in zip(shared, map(roles_of, texts), strict=True)
    ]


def _mixed(claim: str, lexical: Mapping[str, float], match: Match) -> dict[str, float]:
    values = [float(value) for value in match(clean(claim), [clean(text) for text in lexical])]
    if len(values) != len(lexical) or not all(0 <= value <= 1 for value in values):
        raise InvalidData(
            f"the comparison of tokens gave {len(values)} scores for {len(lexical)} sentences. It must give one for "
            "each, in 0..1"
        )
    pairs = zip(lexical.items(), values, strict=True)
    return {text: MATCH_SHARE * value + (1 - MATCH_SHARE) * share for (text, share), value in pairs}


def _best(claim: str, sentences: Sequence[_Candidate], scores: Mapping[str, float], count: int) -> tuple[Sentence, ...]:
    scored = [(round(scores[one.text] * (NOT_FOUND + (1 - NOT_FOUND) * one.found), 6), one) for one in sentences]
    best = sorted(scored, key=lambda pair: (-pair[0], pair[1].start))[:count]
    return tuple(
        Sentence(one.text, "text", one.start, one.end, score, one.role, differences=differences(claim, one.text))
        for score, one in best
        if score > 0
    )
