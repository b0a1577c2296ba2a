"""Does anything in the collection bear on a claim? The probability that something that was found does.

A logistic model over what retrieval knows of the best hits, none of which depends on the size or the subject of the
collection: how near the nearest hit is and by how much it is nearer than the next, how much of the claim's words one
hit or one sentence has, by how much the best BM25 score stands out, and whether the retrievers agree. It was fitted on
claims of SciFact, Climate-FEVER and FEVER, each searched for in a collection with its documents, in the same
collection without them, and in the collections of the others. `benchmarks/relevance.py` fits it and measures it on
claims that were held apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.analysis import MADE_FOR, document_terms, sentence_spans, term_set
from ..core.stages import LEAST_RELEVANCE, Bm25, Dense, Retriever
from ..core.types import Hit

HITS = 10
"""How many of the best hits are looked at."""
SENTENCES, SENTENCE_HITS = 60, 5
"""How many sentences of a hit, and of how many hits."""
NOT_FOUND = 50
"""The rank of a hit that a retriever did not find."""


@dataclass(frozen=True, slots=True)
class Model:
    """A logistic model: the intercept and a weight for each feature. Below `least` nothing bears on the claim:
    `benchmarks/relevance.py` chooses it."""

    intercept: float
    weights: Mapping[str, float]
    least: float = LEAST_RELEVANCE

    def probability(self, features: Mapping[str, float]) -> float:
        total = self.intercept + sum(weight * features[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


@dataclass(frozen=True, slots=True)
class Calibrated:
    """An embedding model whose cosines are known: the models with BM25 beside it, and alone."""

    name: str
    both: Model
    cosines: Model
    near: float
    """By how much less a hit's cosine may be than the nearest one's. What lies farther shares a subject with the claim,
    and says nothing of it. `benchmarks/far.py` has the figures."""


CALIBRATED = {
    "954c654a": Calibrated(
        "bge-small-en-v1.5",
        Model(
            -7.473,
            {
                "cosine": 8.506,
                "cosine_gap": -2.968,
                "bm25_gap": 1.361,
                "words": -0.758,
                "sentence_words": 1.908,
                "agreement": 0.633,
            },
        ),
        Model(-6.722, {"cosine": 7.629, "cosine_gap": 1.926, "words": -0.001, "sentence_words": 1.849}),
        near=0.1,
    ),
    "ff6f51de": Calibrated(
        "all-MiniLM-L6-v2",
        Model(
            -5.029,
            {
                "cosine": 6.347,
                "cosine_gap": -3.351,
                "bm25_gap": 2.14,
                "words": 0.653,
                "sentence_words": 0.557,
                "agreement": 0.532,
            },
        ),
        Model(-4.179, {"cosine": 5.286, "cosine_gap": 0.002, "words": 0.91, "sentence_words": 1.077}),
        near=0.2,
    ),
}
"""By the beginning of the fingerprint of its weights. Other models' cosines mean something else."""
WORDS = Model(-1.937, {"bm25_gap": 1.286, "words": 1.269, "sentence_words": 1.844}, least=0.22)
"""Without cosines, or with those of another model."""


def relevance(
    claim: str, hits: Sequence[Hit], retrievers: Mapping[str, Retriever], fingerprint: str | None, gaps: bool = False
) -> float:
    """The probability that one of the hits, best first, bears on the claim; 0 without hits.

    `hits` have the scores and ranks of the `retrievers`. `fingerprint` is that of the store's main embedding. `gaps`:
    documents may lack vectors, so that words alone count where no cosine is known of the best by its words.
    """
    if not hits:
        return 0.0
    model, bm25, dense = model_for(retrievers, fingerprint)
    if gaps and dense and any(hit.ranks.get(bm25) == 1 and dense not in hit.scores for hit in hits if bm25):
        model, dense = WORDS, None
    return model.probability(features(claim, hits, bm25, dense))


def model_for(retrievers: Mapping[str, Retriever], fingerprint: str | None) -> tuple[Model, str | None, str | None]:
    """The model that estimates for these retrievers, and the names of those whose scores it reads by words and by
    vectors."""
    dense = [name for name, stage in retrievers.items() if isinstance(stage, Dense) and not stage.model]
    words = [name for name, stage in retrievers.items() if isinstance(stage, Bm25)]
    known = calibrated(fingerprint) if dense else None
    bm25 = words[0] if words else None
    model = WORDS if known is None else known.cosines if bm25 is None else known.both
    return model, bm25, dense[0] if known else None


def far_hits(hits: Sequence[Hit], retrievers: Mapping[str, Retriever], fingerprint: str | None) -> frozenset[int]:
    """The places of the hits that lie much farther from the claim than the nearest; none without cosines that are
    known."""
    *_, dense = model_for(retrievers, fingerprint)
    known, cosines = calibrated(fingerprint), _scores(hits, dense)
    if dense is None or known is None or not cosines:
        return frozenset()
    least = cosines[0] - known.near
    return frozenset(place for place, hit in enumerate(hits) if hit.scores.get(dense, least) < least)


def calibrated(fingerprint: str | None) -> Calibrated | None:
    """What is known of the model with these weights."""
    return CALIBRATED.get((fingerprint or "")[:8])


def retrieval_is_weak(language: str, retrievers: Mapping[str, Retriever], fingerprint: str | None) -> list[str]:
    """The warning about a claim in a language that these retrievers were not made for; none if they may know it."""
    known = calibrated(fingerprint)
    made_for = [known.name] if known else []
    if any(isinstance(stage, Bm25) and stage.analysis is None for stage in retrievers.values()):
        made_for = ["the analysis of words for BM25", *made_for]
    if not made_for:
        return []
    return [
        f"retrieval is weak: the claim seems to be in {language}, and {' and '.join(made_for)} "
        f"{'were' if len(made_for) > 1 else 'was'} made for {MADE_FOR}. Papers that bear on it may be missing"
    ]


def features(claim: str, hits: Sequence[Hit], bm25: str | None, dense: str | None) -> dict[str, float]:
    """Returns the features that the models read. `bm25` and `dense` are names of retrievers, None if there is none."""
    hits = hits[:HITS]
    wanted = term_set(claim)
    count = max(1, len(wanted))
    shares = [
        len(wanted.intersection(document_terms(hit.document.title if hit.unit is None else "", hit.read.text))) / count
        for hit in hits
    ]
    nearest = max(range(len(hits)), key=lambda place: (shares[place], -place))
    read = {*range(min(SENTENCE_HITS, len(hits))), nearest}
    cosines = _scores(hits, dense)
    scores = _scores(hits, bm25)
    return {
        "cosine": cosines[0] if cosines else 0.0,
        "cosine_gap": _gap(cosines),
        "bm25_gap": _gap(scores) / scores[0] if scores and scores[0] > 0 else 0.0,
        "words": max(shares),
        "sentence_words": max(_best_sentence(hits[place], wanted) for place in read) / count,
        "agreement": _agreement(hits, bm25, dense),
    }


def _scores(hits: Sequence[Hit], name: str | None) -> list[float]:
    return sorted((hit.scores[name] for hit in hits if name in hit.scores), reverse=True) if name is not None else []


def _gap(scores: Sequence[float]) -> float:
    """How far the best score is above the mean of the next four."""
    rest = scores[1:5]
    return scores[0] - sum(rest) / len(rest) if rest else 0.0


def _best_sentence(hit: Hit, wanted: frozenset[str]) -> int:
    """How many of the words one sentence, or the title, has."""
    text = hit.read.text
    parts = [text[start:end] for start, end in sentence_spans(text)[:SENTENCES]]
    return max(len(wanted & term_set(part)) for part in [hit.document.title, *parts])


def _agreement(hits: Sequence[Hit], bm25: str | None, dense: str | None) -> float:
    """One over BM25's rank of what is nearest by its vector."""
    if bm25 is None or dense is None:
        return 0.0
    first = next((hit for hit in hits if hit.ranks.get(dense) == 1), None)
    return 1 / first.ranks.get(bm25, NOT_FOUND) if first is not None else 0.0
