"""The counts of a claim and a document that the packaged stance model reads.

Of the document's sentence that is nearest to the claim: words, numbers and negations that both share. Of the `NEAR`
nearest sentences: the mean of `polarity.relations`. Of the whole document: how much of the claim it covers, and how
near its sentences and its title are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..core.analysis import clean, sentence_spans, terms
from ..core.types import Document
from .polarity import RELATIONS, read_words, relations

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NEAR = 3
"""How many of the nearest sentences are compared with the claim word by word."""
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
    chosen = [_nearest_words(clean(claim), some, read) for (claim, _), some in zip(pairs, all_sentences, strict=True)]
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
        near.append([some[place] for place in sorted(nearest)])
    return np.array(rows, dtype=np.float32).reshape(-1, COUNTS), near


def _nearest_words(claim: str, sentences: Sequence[str], most: int) -> list[int]:
    """The places of up to `most` sentences that share most words with the claim, in the document's order."""
    if len(sentences) <= most:
        return list(range(len(sentences)))
    wanted = set(terms(claim))
    shared = [len(wanted.intersection(terms(sentence))) for sentence in sentences]
    return sorted(sorted(range(len(sentences)), key=lambda number: (-shared[number], number))[:most])


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
