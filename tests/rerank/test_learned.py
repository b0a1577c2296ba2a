"""A learned reranker: its trees are scikit-learn's, its file is checked, and it orders hits by their scores."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from programs import loaded

from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.runtime import Runtime
from ccheck.core.stages import LearnedStage
from ccheck.core.types import Claim, Document, Evidence, Hit, Ranking, Result, Unit
from ccheck.lab.train.learned_reranker import (
    LearnedRerankerOptions,
    exported,
    fitted,
    save_learned_reranker,
    train_learned_reranker,
)
from ccheck.rerank.apply import Place, rerank_many
from ccheck.rerank.learned import LearnedModel, feature_names, features, load_learned, parse_learned
from ccheck.rerank.open import open_reranker

RETRIEVERS = ["bm25", "dense"]
OPTIONS = LearnedRerankerOptions(trees=30, folds=3)
WORDS = "sea level ice sheet carbon coral ocean warming rain forest soil wind".split()


def hits_of(claim: str, seed: int, relevant: str | None, count: int = 20) -> list[Hit]:
    """Hits of two retrievers; the relevant one has most of the claim's words and a rank in the middle."""
    draw = np.random.default_rng(seed)
    found = []
    for rank in range(1, count + 1):
        own = rank == count // 2 and relevant is not None
        text = claim if own else " ".join(draw.choice(WORDS, size=8))
        scores = {"bm25": 20.0 - rank + draw.normal(), "dense": 0.8 - 0.02 * rank + 0.05 * draw.normal()}
        if rank % 5 == 0 and not own:
            del scores["dense"]
        scores["rrf"] = 1 / (20 + rank)
        document = Document(str(relevant) if own else f"{seed}-{rank}", f"Title {rank}", f"{text}.")
        found.append(Hit(rank, document, scores["rrf"], scores, {name: rank for name in scores if name != "rrf"}))
    return found


def claims_and_hits(count: int = 60):
    claims = [
        Claim(f"{WORDS[n % 12]} {WORDS[(5 * n + 1) % 12]} {WORDS[(7 * n + 3) % 12]} {1900 + n}", f"c{n}")
        for n in range(count)
    ]
    qrels = {str(claim.id): {f"r{n // 2}": 1} for n, claim in enumerate(claims)}
    found = {claim.id: hits_of(claim.text, n, f"r{n // 2}") for n, claim in enumerate(claims)}
    return claims, qrels, found


class Found:
    """A checker that has found these."""

    def __init__(self, hits):
        self.hits = hits

    def check_many(self, claims, *, k):
        for claim in claims:
            yield Result(claim, tuple(Evidence(hit) for hit in self.hits[claim.id][:k]), None, "r", "s")


@pytest.fixture(scope="module")
def trained():
    claims, qrels, found = claims_and_hits()
    return train_learned_reranker(Found(found), RETRIEVERS, claims, qrels, OPTIONS, {"recipe": "r"})


def test_features_by_hand():
    hits = [
        Hit(
            1,
            Document("a", "Sea level", "The sea rose by 20 cm since 1900."),
            0.9,
            {"bm25": 4.0, "rrf": 0.9},
            {"bm25": 1},
        ),
        Hit(2, Document("b", "", "Corals."), 0.5, {"bm25": 1.0, "dense": 0.5, "rrf": 0.5}, {"bm25": 2, "dense": 1}),
    ]
    rows = features("the sea level rose 20 cm", hits, RETRIEVERS)
    names = feature_names(RETRIEVERS)
    assert rows.dtype == np.float32 and rows.shape == (2, len(names))
    first, second = (dict(zip(names, row.tolist(), strict=True)) for row in rows)
    # Of the claim's five words, both of the title and four of the text.
    assert first["claim words in title"] == pytest.approx(2 / 5) and second["claim words in title"] == 0
    assert first["claim words in text"] == pytest.approx(4 / 5)
    assert (first["bm25 score"], first["bm25 scaled"], first["bm25 rank"]) == (4, 1, 1)
    # What dense did not find has the lowest score and one rank more than the last.
    assert (first["dense score"], first["dense rank"]) == (0.5, 2)
    assert (first["fused rank"], first["fused scaled"], second["fused scaled"]) == (1, 1, 0)
    assert (first["claim numbers"], second["claim numbers"], first["numbers in claim"]) == (1, 0, 1)
    assert first["claim pairs of words"] == pytest.approx(2 / 4)  # rose (by) 20, 20 cm
    assert first["rare claim words"] == pytest.approx(1)
    assert features("sea", [], RETRIEVERS).shape == (0, len(names))


def test_features_of_rerankers_that_ran_before_by_hand():
    def hit(rank, id_, score, **scores):
        return Hit(rank, Document(id_, "", "Corals."), score, scores, {"bm25": int(scores["bm25"]), "rrf": 4 - rank})

    # As a reranker left them: what was last of three is first; the third was not read.
    hits = [
        hit(1, "a", 0.9, bm25=1.0, rrf=0.1, late=0.8),
        hit(2, "b", 0.7, bm25=2.0, rrf=0.2, late=0.6),
        hit(3, "c", 0.7, bm25=3.0, rrf=0.4),
    ]
    names = feature_names(["bm25", "late"])
    rows = [dict(zip(names, row.tolist(), strict=True)) for row in features("coral", hits, ["bm25"], ["late"])]
    assert [row["late score"] for row in rows] == pytest.approx([0.8, 0.6, 0.6])
    assert [row["late scaled"] for row in rows] == pytest.approx([1, 0, 0])
    assert [row["late rank"] for row in rows] == [1, 2, 3]
    # The fusion's own order and scores, not those of the reranker.
    assert [row["fused rank"] for row in rows] == [3, 2, 1]
    assert [row["fused scaled"] for row in rows] == pytest.approx([0, 1 / 3, 1])


def test_units_of_one_document_are_told_apart():
    document = Document("d", "Sea", "The sea rises. Ice melts.")
    units = [Unit("sentences", 0, 0, 14, "The sea rises."), Unit("sentences", 1, 15, 25, "Ice melts.")]
    places = list(enumerate(units, 1))
    one = [Hit(r, document, 1 / r, {"bm25": 9.0 - r, "late": 0.0 + r}, {"bm25": r}, unit=unit) for r, unit in places]
    apart = [replace(hit, document=replace(hit.read, id=f"d{hit.rank}"), unit=None) for hit in one]
    mine, theirs = (features("the sea rises", hits, ["bm25"], ["late"]) for hits in (one, apart))
    assert np.array_equal(mine, theirs) and list(mine[:, 2]) == [1, 2] and list(mine[:, 5]) == [2, 1]


def test_a_rerankers_scores_are_learned_from_and_asked_for(tmp_path):
    claims, qrels, found = claims_and_hits()
    told = {
        key: [replace(hit, scores={**hit.scores, "late": float(hit.document.id.startswith("r"))}) for hit in hits]
        for key, hits in found.items()
    }
    with_it = train_learned_reranker(Found(told), RETRIEVERS, claims, qrels, OPTIONS, {}, rerankers=["late"])
    assert with_it.figures[0].after == 1.0
    save_learned_reranker(with_it.model, tmp_path / "learned.json")
    reranker = load_learned(tmp_path / "learned.json")
    values = reranker.score_hits(claims[0].text, told[claims[0].id]).values
    assert np.argmax(values) == 9
    with pytest.raises(
        InvalidData, match="scores of bm25, dense, late, but these documents have scores of bm25, dense"
    ):
        reranker.score_hits(claims[0].text, found[claims[0].id])


def test_trees_give_what_scikit_learn_gives():
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(3000, 16)).astype(np.float32)
    rows[:, 3] = np.round(rows[:, 3])  # values that are thresholds too
    relevant = rows[:, 0] + rows[:, 3] * rows[:, 1] + 0.3 * draw.normal(size=3000) > 1
    classifier = fitted(rows, relevant, LearnedRerankerOptions())
    base, trees = exported(classifier, rows)
    other = draw.normal(size=(2000, 16)).astype(np.float32)
    other[:, 3] = np.round(other[:, 3])
    model = LearnedModel(tuple(RETRIEVERS), base, trees, {})
    again = parse_learned(json.loads(json.dumps(model.to_dict())))
    for one in (model, again):
        assert np.abs(one.logits(other) - classifier.decision_function(other)).max() < 1e-6
    probabilities = classifier.predict_proba(other)[:, 1]
    assert np.abs(1 / (1 + np.exp(-model.logits(other))) - probabilities).max() < 1e-6
    assert len({round(float(value), 4) for value in model.logits(other)}) > 100


def test_it_learns_what_tells_documents_apart(trained, tmp_path):
    for figure in trained.figures:
        assert figure.claims == 60
        assert figure.before < 0.5 < 0.9 < figure.after
        assert figure.difference_interval[0] > 0.3
    save_learned_reranker(trained.model, tmp_path / "learned.json")
    stage = LearnedStage(model=tmp_path / "learned.json", depth=15)
    reranker = open_reranker(stage, Runtime())
    claim = "coral ocean 1850"
    ranking = Ranking(tuple(hits_of(claim, 99, "wanted")))
    ((done, usage),) = rerank_many([claim], [ranking], [""], reranker, stage, Place("learned", "rrf"))
    assert done.hits[0].document.id == "wanted" and usage.llm_calls == 0
    assert [hit.rank for hit in done.hits] == list(range(1, 21))
    assert [hit.document.id for hit in done.hits[15:]] == [hit.document.id for hit in ranking.hits[15:]]
    assert all(0 < hit.score < 1 for hit in done.hits)
    assert done.hits[0].ranks["rrf"] == 10 and done.hits[0].scores["bm25"] == ranking.hits[9].scores["bm25"]
    logit = done.hits[0].scores["learned"]
    assert done.hits[0].score == pytest.approx(1 / (1 + np.exp(-logit)))


def test_the_same_seed_gives_the_same_file(trained):
    claims, qrels, found = claims_and_hits()
    again = train_learned_reranker(Found(found), RETRIEVERS, claims, qrels, OPTIONS, {"recipe": "r"})
    assert json.dumps(again.model.to_dict()) == json.dumps(trained.model.to_dict())


def test_it_neither_needs_scikit_learn_nor_torch_to_be_used(trained, tmp_path):
    save_learned_reranker(trained.model, tmp_path / "learned.json")
    file = str(tmp_path / "learned.json")
    used = f"from pathlib import Path; from ccheck.rerank.learned import load_learned; load_learned(Path({file!r}))"
    assert not {"sklearn", "torch", "scipy"} & loaded(used)


def test_scores_of_other_retrievers_are_refused(trained, tmp_path):
    save_learned_reranker(trained.model, tmp_path / "learned.json")
    reranker = load_learned(tmp_path / "learned.json")
    hits = hits_of("sea", 1, None)
    for strange in (
        {"bm25": 1.0},
        {"bm25": 1.0, "dense": 1.0, "sparse": 2.0},
        {},
        {"bm25": 1.0, "dense": 1.0, "rerank": 1.0},
    ):
        changed = [Hit(hit.rank, hit.document, hit.score, strange, {}) for hit in hits]
        with pytest.raises(InvalidData, match="was trained with scores of bm25, dense"):
            reranker.score_hits("sea", changed)
    assert reranker.score_hits("sea", []).values == ()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.update(kind="something else"),
        lambda data: data.update(version=99),
        lambda data: data.update(features=data["features"][1:]),
        lambda data: data.update(base=float("nan")),
        lambda data: data.update(retrievers=[]),
        lambda data: data.pop("trees"),
        lambda data: data["trees"][0]["left"].__setitem__(0, 0),  # a node that is its own child
        lambda data: data["trees"][0]["right"].__setitem__(0, 10_000),
        lambda data: data["trees"][0]["feature"].__setitem__(0, 999),
        lambda data: data["trees"][0]["value"].__setitem__(-1, float("inf")),
        lambda data: data["trees"][0]["value"].pop(),
    ],
)
def test_a_file_that_is_none_is_refused(trained, tmp_path, spoil):
    data = json.loads(json.dumps(trained.model.to_dict()))
    spoil(data)
    file = tmp_path / "learned.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InvalidData, match="not a learned reranker"):
        load_learned(file)


def test_files_that_are_not_even_that(tmp_path):
    for text in ("", "[]", "\x80", "{" * 5000, "null"):
        file = tmp_path / "learned.json"
        file.write_text(text)
        with pytest.raises(InvalidData, match="not a learned reranker"):
            load_learned(file)
    with pytest.raises(NotFound, match="ccheck train learned-reranker"):
        load_learned(tmp_path / "missing.json")


def test_too_little_to_learn_from():
    claims, qrels, found = claims_and_hits(10)
    with pytest.raises(InvalidData, match="training needs 20"):
        train_learned_reranker(Found(found), RETRIEVERS, claims, qrels, LearnedRerankerOptions(), {})
    claims, qrels, found = claims_and_hits(60)
    elsewhere = {claim: {"not found": 1} for claim in qrels}
    with pytest.raises(InvalidData, match="Check that the ids"):
        train_learned_reranker(Found(found), RETRIEVERS, claims, elsewhere, LearnedRerankerOptions(), {})
