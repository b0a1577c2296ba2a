"""Which sentences of a document bear on a claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ..analysis import sentence_spans, terms
from ..types import Document, Sentence


def choose_sentences(claim: str, documents: Sequence[Document], count: int) -> list[tuple[Sentence, ...]]:
    """The up to `count` sentences of each document that share most with the claim, best first.

    A sentence's score is the share of the claim's terms that it has, each weighted by its rarity among the sentences
    of all these documents (inverse document frequency). Questions count half: they raise a matter and do not settle
    it. Sentences that share nothing are left out.
    """
    wanted = set(terms(claim))
    if not wanted or count == 0:
        return [() for _ in documents]
    candidates = [
        [(start, end, wanted.intersection(terms(d.text[start:end]))) for start, end in sentence_spans(d.text)]
        for d in documents
    ]
    found = Counter(term for sentences in candidates for _, _, shared in sentences for term in shared)
    total = sum(len(sentences) for sentences in candidates)
    weight = {term: math.log(1 + total / (1 + found[term])) for term in wanted}
    whole = sum(weight.values())
    chosen = []
    for document, sentences in zip(documents, candidates, strict=True):
        scored = []
        for start, end, shared in sentences:
            share = sum(weight[term] for term in sorted(shared)) / whole
            scored.append((share / 2 if document.text[end - 1] == "?" else share, start, end))
        best = sorted((item for item in scored if item[0] > 0), key=lambda item: (-item[0], item[1]))[:count]
        chosen.append(
            tuple(Sentence(document.text[start:end], "text", start, end, round(score, 6)) for score, start, end in best)
        )
    return chosen
