"""The probability that something in the collection bears on a claim."""

from __future__ import annotations

import dataclasses

import pytest

import ccheck
from ccheck.core.stages import Bm25, Dense
from ccheck.core.types import Document, Hit
from ccheck.demo import CORPUS
from ccheck.pipeline import relevance

RETRIEVERS = {"bm25": Bm25(), "dense": Dense()}
CLAIM = "Sea level rose by twenty centimetres during the last century."
WEIGHTS = next(f"{begin}00" for begin, one in relevance.CALIBRATED.items() if "MiniLM" in one.name)


def hits(*found: tuple[str, float, float]) -> list[Hit]:
    """Hits of (text, BM25 score, cosine), best first."""
    return [
        Hit(
            rank,
            Document(str(rank), "", text),
            1 / rank,
            {"bm25": bm25, "dense": cosine},
            {"bm25": rank, "dense": rank},
        )
        for rank, (text, bm25, cosine) in enumerate(found, 1)
    ]


NEAR = hits(("Global sea level rose twenty centimetres in the last century.", 30.0, 0.85), ("Seas.", 8.0, 0.4))
FAR = hits(("Mice lack the receptor.", 2.0, 0.08), ("Cells divide in the last phase.", 1.9, 0.07))


def test_what_says_the_same_is_relevant_and_what_shares_a_word_is_not():
    assert relevance.relevance(CLAIM, NEAR, RETRIEVERS, WEIGHTS) > 0.6
    assert relevance.relevance(CLAIM, FAR, RETRIEVERS, WEIGHTS) < 0.1
    assert relevance.relevance(CLAIM, [], RETRIEVERS, WEIGHTS) == 0.0


def test_cosines_of_other_models_do_not_count():
    nearer = [dataclasses.replace(hit, scores={**hit.scores, "dense": 0.99}) for hit in FAR]
    assert relevance.relevance(CLAIM, nearer, RETRIEVERS, WEIGHTS) > 0.3
    other = relevance.relevance(CLAIM, nearer, RETRIEVERS, "another")
    assert other == relevance.relevance(CLAIM, FAR, RETRIEVERS, "another") < 0.3


def test_nothing_depends_on_the_height_of_bm25_scores():
    """They grow with the collection."""
    higher = [dataclasses.replace(hit, scores={**hit.scores, "bm25": 3 * hit.scores["bm25"]}) for hit in NEAR]
    one, other = (relevance.relevance(CLAIM, some, RETRIEVERS, WEIGHTS) for some in (NEAR, higher))
    assert abs(one - other) < 1e-9


def test_each_estimate_has_its_own_limit():
    known = relevance.calibrated(WEIGHTS)
    models = {
        "both": relevance.model_for(RETRIEVERS, WEIGHTS)[0],
        "cosines": relevance.model_for({"dense": Dense()}, WEIGHTS)[0],
        "words": relevance.model_for({"bm25": Bm25()}, WEIGHTS)[0],
        "other": relevance.model_for(RETRIEVERS, "another")[0],
    }
    assert models == {"both": known.both, "cosines": known.cosines, "words": relevance.WORDS, "other": relevance.WORDS}
    assert relevance.WORDS.least < known.both.least


def test_between_the_limits_only_bm25_alone_goes_on_to_the_judge(tmp_path, monkeypatch):
    monkeypatch.setattr("ccheck.pipeline.steps.relevance", lambda *_: 0.23)
    with ccheck.open(str(tmp_path / "store"), recipe="bm25", rerank="none") as checker:
        checker.ingest(str(CORPUS), dense=False)
        assert checker.check(CLAIM).verdict.method != "relevance"
    with ccheck.open(str(tmp_path / "store"), recipe="bm25", rerank="none") as checker:
        monkeypatch.setattr("ccheck.pipeline.steps.relevance", lambda *_: 0.21)
        assert checker.check(CLAIM).verdict.method == "relevance"


UNRELATED = [
    "Violins from Cremona were compared in a blind test with new ones. Players preferred the new violins.",
    "Kiwi birds smell earthworms at night. Their beaks have nostrils at the tip.",
    "Chess openings of club players were recorded since 1900. The Sicilian defence has risen to first place.",
    "Toddlers were given building blocks. Nobody was harmed, and towers rose by twenty centimetres.",
]
"""Papers that share words with the claims below and say nothing about them."""


@pytest.mark.parametrize(
    "claim", ["sea level has risen 20 cm since 1900", "The MMR jab given to toddlers causes autism."]
)
def test_unrelated_papers_change_no_verdict_and_more_of_them_make_none_surer(tmp_path, claim):
    """Judged by the packaged model, with a collection that has them and with one that has not."""
    verdicts = []
    for name, more in (("without", []), ("with", UNRELATED)):
        with ccheck.open(str(tmp_path / name), recipe="bm25", rerank="none") as checker:
            checker.ingest(str(CORPUS), *({"_id": f"u{n}", "text": text} for n, text in enumerate(more)), dense=False)
            verdicts += [checker.check(claim, k=k).verdict for k in (3, 10)]
    assert len({verdict.label for verdict in verdicts}) == 1, verdicts
    (few, many), (few_among, many_among) = verdicts[:2], verdicts[2:]
    assert many.confidence <= few.confidence and many_among.confidence <= few_among.confidence
    # A paper between two others moves the second one down a rank, which counts a thirtieth.
    assert few_among.confidence == pytest.approx(few.confidence, abs=0.05)
