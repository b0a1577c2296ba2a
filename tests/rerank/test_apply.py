"""Rerankers in a ranking, ensembles, and what `auto` means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from ccheck.core import models
from ccheck.core.errors import MissingExtra, NotFound
from ccheck.core.install import install_command
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import LateStage, ModelStage
from ccheck.core.types import Document, Hit, Ranking
from ccheck.rerank import Scores, sigmoid
from ccheck.rerank import open as opening
from ccheck.rerank.apply import Place, interpolated, rerank_many
from ccheck.rerank.several import EnsembleReranker
from ccheck.rerank.types import only


@dataclass
class Table:
    """A reranker that knows the scores of passages."""

    values: dict[str, float]
    name: str = "table"
    cut: frozenset[str] = frozenset()

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        return Scores(tuple(self.values[text] for text in passages), tuple(text in self.cut for text in passages))


def ranking(*ids: str) -> Ranking:
    return Ranking(
        tuple(
            Hit(
                rank,
                Document(id_, "", id_),
                1 / (20 + rank),
                {"bm25": 9.0 - rank, "rrf": 1 / (20 + rank)},
                {"bm25": rank},
            )
            for rank, id_ in enumerate(ids, 1)
        )
    )


def ids(found: Ranking) -> list[str]:
    return [hit.document.id for hit in found.hits]


def rerank(query, ranking, reranker, stage, name, before, previous=""):
    return only(rerank_many([query], [ranking], [previous], reranker, stage, Place(name, before)))


STAGE = ModelStage(model="x", depth=3)
HALF = ModelStage(model="x", depth=3, alpha=0.5)


def test_the_first_documents_are_ordered_again_and_the_others_come_after():
    found, usage = rerank("q", ranking(*"abcde"), Table({"a": -2.0, "b": 3.4, "c": 0.5}), STAGE, "rerank", "rrf")
    assert ids(found) == ["b", "c", "a", "d", "e"] and usage.llm_calls == 0
    first = found.hits[0]
    assert (first.rank, first.scores["rerank"], first.score) == (1, 3.4, sigmoid(3.4))
    assert first.ranks == {"rrf": 2, "bm25": 2} and first.scores["bm25"] == 7.0
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True) and [hit.rank for hit in found.hits] == [1, 2, 3, 4, 5]
    assert "rerank" not in found.hits[3].scores and "rrf" not in found.hits[3].ranks


def test_the_place_before_all_rerankers_is_kept():
    once, _ = rerank("q", ranking(*"abc"), Table({"a": 1.0, "b": 3.0, "c": 2.0}), STAGE, "first", "rrf")
    twice, _ = rerank("q", once, Table({"a": 3.0, "b": 1.0, "c": 2.0}), STAGE, "second", "rrf")
    assert ids(twice) == ["a", "c", "b"] and twice.hits[0].ranks["rrf"] == 1
    assert twice.hits[0].scores["first"] == 1.0 and twice.hits[0].scores["second"] == 3.0


def test_equal_scores_keep_their_order_and_no_hits_are_no_work():
    assert ids(rerank("q", ranking(*"abc"), Table(dict.fromkeys("abc", 1.0)), STAGE, "r", "rrf")[0]) == list("abc")
    assert ids(rerank("q", Ranking(()), Table({}), STAGE, "r", "rrf")[0]) == []


def test_what_was_cut_is_said():
    found, _ = rerank("q", ranking(*"ab"), Table({"a": 1.0, "b": 2.0}, cut=frozenset("a")), STAGE, "r", "rrf")
    assert {hit.document.id: hit.cut for hit in found.hits} == {"b": (), "a": ("r",)}


def test_ensembles():
    one, two = (
        Table({"a": 0.0, "b": 10.0, "c": 4.0}, "one"),
        Table({"a": 3.0, "b": 2.0, "c": 1.0}, "two", frozenset("c")),
    )
    rrf = EnsembleReranker([one, two], k=60)("q", ["a", "b", "c"])
    assert rrf.values == pytest.approx((1 / 63 + 1 / 61, 1 / 61 + 1 / 62, 1 / 62 + 1 / 63))
    assert rrf.cut == (False, False, True) and not rrf.logits and rrf.normalized == rrf.values
    assert EnsembleReranker([one, two])("q", []).values == ()


# -- auto


def test_auto_takes_the_server_of_the_settings_else_what_suits_the_machine(monkeypatch: pytest.MonkeyPatch):
    assert opening.choose_model(Settings(rerank_url="http://127.0.0.1:9/rerank")) == "http://127.0.0.1:9/rerank"
    monkeypatch.setattr(models, "models_installed", lambda: True)
    monkeypatch.setattr(models, "best_device", lambda: "cpu")
    with pytest.raises(NotFound, match=r"only with a GPU or a reranking server.*--rerank late"):
        opening.choose_model(Settings())
    assert opening.choose_model(Settings(device="cuda:1")) == "BAAI/bge-reranker-v2-gemma"
    monkeypatch.setattr(models, "models_installed", lambda: False)
    with pytest.raises(MissingExtra, match=re.escape(install_command("models"))):
        opening.choose_model(Settings())


def test_a_model_that_is_not_there_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("sentence_transformers", reason="the models extra is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(models, "best_device", lambda: "cuda")
    with pytest.raises(NotFound, match=r"bge-reranker-v2-gemma .*--rerank late or --rerank none"):
        opening.open_reranker(ModelStage(), Runtime(Settings()))
    with pytest.raises(NotFound, match=r"some/thing .*or choose another reranker with --rerank"):
        opening.open_reranker(ModelStage(model="some/thing"), Runtime(Settings()))


# -- the share of the scores before


def test_scores_are_interpolated_as_in_the_paper():
    # Cross-encoder logits 4, 0, -4 scale to 1, .5, 0; the model's order is 2, 3, 1.
    both = interpolated([4.0, 0.0, -4.0], [0.0, 1.0, 0.5], 0.4)
    assert both == pytest.approx([0.4 * 1 + 0.6 * 0, 0.4 * 0.5 + 0.6 * 1, 0.4 * 0 + 0.6 * 0.5])
    assert interpolated([4.0, 0.0, -4.0], [0.0, 1.0, 0.5], 1) == pytest.approx([1, 0.5, 0])
    assert interpolated([4.0, 0.0, -4.0], [2.0, 10.0, 6.0], 0) == [0.0, 1.0, 0.5]
    assert interpolated([2.0, 2.0], [0.0, 1.0], 0.4) == pytest.approx([0.4, 1.0]) and interpolated([], [], 0.4) == []


def test_with_alpha_a_part_of_the_ranking_before_is_kept_and_scores_are_the_rerankers_own():
    # Before: 1/21, 1/22, 1/23, which scale to 1, .477, 0. Own: 0, 10, 9, which scale to 0, 1, .9.
    found, _ = rerank("q", ranking("a", "b", "c", "d"), Table({"a": 0.0, "b": 10.0, "c": 9.0}), HALF, "table", "rrf")
    assert ids(found) == ["b", "a", "c", "d"]
    assert [hit.score for hit in found.hits[:3]] == pytest.approx([0.7386, 0.5, 0.45], abs=1e-3)
    assert [hit.scores["table"] for hit in found.hits[:3]] == [10.0, 0.0, 9.0]
    assert found.hits[3].score <= found.hits[2].score


def test_the_scores_before_are_those_that_made_the_order():
    raw = {"a": 30.0, "b": 20.0, "c": 10.0}  # sigmoids of which are nearly equal
    first, _ = rerank("q", ranking("a", "b", "c"), Table(raw), STAGE, "first", "rrf")
    own = Table({"a": 0.0, "b": 1.0, "c": 0.9})
    assert ids(rerank("q", first, own, HALF, "second", "rrf", "first")[0]) == ["b", "a", "c"]
    # Own scores of a stage with alpha did not make the order alone: what did is Hit.score.
    mixed, _ = rerank("q", ranking("a", "b", "c"), Table({"a": 0.0, "b": 10.0, "c": 9.0}), HALF, "first", "rrf")
    again, _ = rerank("q", mixed, Table({"a": 1.0, "b": 0.0, "c": 0.0}), HALF, "second", "rrf", "first")
    assert [hit.score for hit in again.hits] == pytest.approx([0.5 * (0.05 / 0.2886) + 0.5, 0.5, 0.0], abs=1e-3)


# -- the scores of the retrievers


def test_late_interaction_is_mixed_with_the_retrievers_own_scores():
    def hit(rank: int, id_: str, **scores: float) -> Hit:
        return Hit(rank, Document(id_, "", id_), scores["rrf"], scores, {})

    found = Ranking(
        (
            hit(1, "a", bm25=3.0, dense=0.2, rrf=0.9),
            hit(2, "b", bm25=9.0, rrf=0.8),
            hit(3, "c", dense=0.6, rrf=0.7),
        )
    )
    own = Table({"a": 0.0, "b": 0.25, "c": 1.0})
    stage = LateStage(before="retrievers", alpha=0.5)
    (answer,) = rerank_many(["q"], [found], [""], own, stage, Place("late", "rrf", {"bm25": 1.0, "dense": 0.5}))
    # bm25 scales to a 0, b 1; dense to a 0, c 1, which counts half. Together a 0, b 1, c .5, and so they stay scaled.
    assert [(one.document.id, one.score) for one in answer[0].hits] == [("c", 0.75), ("b", 0.625), ("a", 0.0)]
    # Where their scores are not known, or the stage does not want them, those of the ranking count.
    for some, given in ((stage, {"words": 1.0}), (stage, {}), (LateStage(alpha=0.5), {"bm25": 1.0})):
        (answer,) = rerank_many(["q"], [found], [""], own, some, Place("late", "rrf", given))
        assert [one.document.id for one in answer[0].hits] == ["a", "c", "b"]
        assert [one.score for one in answer[0].hits] == pytest.approx([0.5, 0.5, 0.375])
