"""Which sentences of a document bear on a claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..core.analysis import clean, sentence_spans, terms
from ..core.errors import InvalidData, UsageError
from ..core.types import Document, Sentence, Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EvidenceMethod: TypeAlias = Literal["mix", "lexical", "embedding", "reranker"]
Embed: TypeAlias = Callable[[Sequence[str]], Vector]
"""Texts to vectors: float32 of unit length, shape [texts, dimensions]."""
Rerank: TypeAlias = Callable[[str, Sequence[str]], Sequence[float]]
"""A claim and sentences to one score in 0..1 for each sentence."""

MATCH_SHARE = 0.6
"""The weight of the comparison of tokens in the mix. `benchmarks/evidence.py` has the comparison."""
EMBEDDED_SENTENCES = 64
"""How many sentences of a document an embedding model or a reranker reads, or twice as many as are wanted: those that
share most with the claim."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A sentence of a document: where it stands, and its share of the claim's weighted terms."""

    start: int
    end: int
    text: str
    lexical: float


def choose_sentences(
    cases: Sequence[tuple[str, Sequence[Document]]],
    count: int,
    method: EvidenceMethod = "mix",
    embed: Embed | None = None,
    rerank: Rerank | None = None,
    match: Rerank | None = None,
    claim_vectors: Vector | None = None,
) -> list[list[tuple[Sentence, ...]]]:
    """For each claim and each of its documents the up to `count` sentences that bear most on the claim, best first.

    `lexical`: the share of the claim's terms that a sentence has, each weighted by its rarity among the sentences of
    all the claim's documents (inverse document frequency). `mix`: the weighted mean of that and of what `match` says,
    which compares the tokens of claim and sentence; without `match` it is `lexical`. `embedding`: the cosine of claim
    and sentence. `reranker`: what `rerank` says. Questions count half: they raise a matter and do not settle it.
    Sentences that score 0 are left out, and those that a model was not given to read (`EMBEDDED_SENTENCES`).

    All sentences of all cases are embedded in one call, equal ones once; a claim's sentences are matched or reranked in
    one call. `claim_vectors`, shape [cases, dimensions], are the claims' embeddings if they are known, of the same
    model.

    Raises UsageError if the method lacks its model, InvalidData where the model's answer can't be used.
    """
    if method == "embedding" and embed is None:
        raise UsageError(
            "the evidence method embedding needs an embedding model, and none is available. Use the method lexical"
        )
    if method == "reranker" and rerank is None:
        raise UsageError(
            "the evidence method reranker needs a reranker, and none is available. Use the method mix or lexical"
        )
    if count == 0:
        return [[() for _ in documents] for _, documents in cases]
    spans: dict[str, list[tuple[int, int]]] = {}
    for _, documents in cases:
        for document in documents:
            if document.text not in spans:
                spans[document.text] = sentence_spans(document.text)
    candidates = [_candidates(claim, documents, spans) for claim, documents in cases]
    if method == "reranker" and rerank is not None:
        reads = [_read(case, max(2 * count, EMBEDDED_SENTENCES)) for case in candidates]
        scores = [_scored(case[0], read, rerank, "the reranker") for case, read in zip(cases, reads, strict=True)]
    elif method == "embedding" and embed is not None:
        reads = [_read(case, max(2 * count, EMBEDDED_SENTENCES)) for case in candidates]
        scores = _by_embedding([claim for claim, _ in cases], reads, embed, claim_vectors)
    else:
        scores = [
            {candidate.text: candidate.lexical for sentences in case for candidate in sentences} for case in candidates
        ]
        if method == "mix" and match is not None:
            scores = [_mixed(case[0], lexical, match) for case, lexical in zip(cases, scores, strict=True)]
    return [
        [_best(document, sentences, scored, count) for document, sentences in zip(documents, case, strict=True)]
        for (_, documents), case, scored in zip(cases, candidates, scores, strict=True)
    ]


def _candidates(
    claim: str, documents: Sequence[Document], spans: dict[str, list[tuple[int, int]]]
) -> list[list[_Candidate]]:
    """The sentences of each document with their lexical scores."""
    wanted = set(terms(claim))
    shared = [
        [(start, end, wanted.intersection(terms(d.text[start:end]))) for start, end in spans[d.text]] for d in documents
    ]
    found = Counter(term for sentences in shared for _, _, words in sentences for term in words)
    total = sum(len(sentences) for sentences in shared)
    weight = {term: math.log(1 + total / (1 + found[term])) for term in wanted}
    whole = sum(weight.values())
    return [
        [
            # Summed in a fixed order, so that equal sentences have equal scores.
            _Candidate(
                start, end, d.text[start:end], sum(weight[term] for term in sorted(words)) / whole if whole else 0
            )
            for start, end, words in sentences
        ]
        for d, sentences in zip(documents, shared, strict=True)
    ]


def _read(case: Sequence[Sequence[_Candidate]], most: int) -> list[str]:
    """The sentences of a claim's documents that a model reads, equal ones once."""
    read: dict[str, None] = {}
    for sentences in case:
        # Sorting is stable: among equals the first ones of the document.
        for candidate in sorted(sentences, key=lambda candidate: -candidate.lexical)[:most]:
            read[candidate.text] = None
    return list(read)


def _mixed(claim: str, lexical: dict[str, float], match: Rerank) -> dict[str, float]:
    matched = _scored(claim, list(lexical), match, "the comparison of tokens")
    return {text: MATCH_SHARE * matched[text] + (1 - MATCH_SHARE) * value for text, value in lexical.items()}


def _scored(claim: str, read: Sequence[str], score: Rerank, who: str) -> dict[str, float]:
    if not read:
        return {}
    values = [float(value) for value in score(clean(claim), [clean(text) for text in read])]
    if len(values) != len(read) or not all(0 <= value <= 1 for value in values):
        raise InvalidData(
            f"{who} gave {len(values)} scores for {len(read)} sentences. It must give one for each, in 0..1"
        )
    return dict(zip(read, values, strict=True))


def _by_embedding(
    claims: Sequence[str], reads: Sequence[Sequence[str]], embed: Embed, claim_vectors: Vector | None
) -> list[dict[str, float]]:
    """The cosine of each sentence that was read, for each claim."""
    import numpy as np

    asked = [claim for claim, read in zip(claims, reads, strict=True) if read and claim_vectors is None]
    row = {
        text: number for number, text in enumerate(dict.fromkeys([*asked, *(text for read in reads for text in read)]))
    }
    if not row:
        return [{} for _ in claims]
    vectors = np.asarray(embed([clean(text) for text in row]), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(row) or not np.isfinite(vectors).all():
        raise InvalidData(
            f"the embedding model gave numbers of shape {vectors.shape} for {len(row)} sentences, or some are not "
            "finite. Use the evidence method lexical, or another model"
        )
    answer: list[dict[str, float]] = []
    for number, (claim, read) in enumerate(zip(claims, reads, strict=True)):
        if not read:
            answer.append({})
            continue
        claim_vector = vectors[row[claim]] if claim_vectors is None else claim_vectors[number]
        cosines = _cosines(vectors[[row[text] for text in read]], claim_vector)
        answer.append({text: float(cosine) for text, cosine in zip(read, cosines, strict=True)})
    return answer


def _cosines(sentences: Vector, claim: Vector) -> NDArray[np.float32]:
    """Between 0 and 1: what points away from the claim is as far from it as can be."""
    import numpy as np

    cosines: NDArray[np.float32] = np.clip(sentences @ claim, 0, 1)
    return cosines


def _best(
    document: Document, sentences: Sequence[_Candidate], scores: dict[str, float], count: int
) -> tuple[Sentence, ...]:
    scored = []
    for candidate in sentences:
        # What no model read is left out, as what shares nothing is.
        score = round(scores.get(candidate.text, 0.0) / (2 if candidate.text.endswith("?") else 1), 6)
        if score > 0:
            scored.append((-score, candidate.start, candidate))
    return tuple(
        Sentence(best.text, "text", best.start, best.end, -score)
        for score, _, best in sorted(scored, key=lambda item: item[:2])[:count]
    )
