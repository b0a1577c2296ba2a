"""Negatives by kind: those that were mined, those that were judged, and the numbers that the papers' presets draw."""

from __future__ import annotations

import json

import pytest
import tiny_training as tiny

from ccheck.core.errors import InvalidData
from ccheck.core.recipe import load_recipe
from ccheck.lab.train.embedder import embedder_rows
from ccheck.lab.train.negatives import Drawing, draw_negatives, once_per_claim
from ccheck.lab.train.options import (
    EmbedderOptions,
    RerankerOptions,
    TrainingOptions,
    load_options,
    preset_names,
)
from ccheck.lab.train.retrieval_data import MinedNegatives, read_negatives, read_retrieval_data, retrieval_data

IDS = [document.id for document in tiny.corpus()]


ALL = TrainingOptions(dev_share=0)


def data():
    """Claim c0-1 has two relevant documents; it and four other claims have documents that leave them open."""
    qrels = {claim: dict(grades) for claim, grades in tiny.qrels().items()}
    qrels["c0-1"] = {"d0-1": 1, "d0-2": 1, "d1-1": 0, "d1-2": 0}
    for number in range(1, 5):
        qrels[f"c{number}-1"][f"d{number + 9}-2"] = 0
    return retrieval_data(tiny.corpus(), tiny.claims(), qrels, ALL)


DATA = data()
NOT_RELEVANT = {"d1-1", "d1-2", "d10-2", "d11-2", "d12-2", "d13-2"}
CLAIM = next(claim for claim in DATA.train if claim.id == "c0-1")


def test_a_kind_that_is_none_is_refused(tmp_path):
    file = tmp_path / "mined.jsonl"
    file.write_text('{"claim_id": "c0-1", "positive_id": "d0-1", "negatives": [{"id": "d4-1", "kind": "easy"}]}\n')
    with pytest.raises(InvalidData, match=r"line 1: .*negatives.0.kind: Input should be 'hard' or 'random'"):
        read_negatives(file, DATA.documents)
    file.write_text('{"claim_id": "c0-1", "negatives": [{"id": "nothing", "score": 1}]}\n')
    with pytest.raises(InvalidData, match="line 1: the corpus has no document 'nothing'"):
        read_negatives(file, DATA.documents)
    for positive in ("", '"positive_id": null, '):
        file.write_text(f'{{"claim_id": "c0-1", {positive}"negatives": [{{"id": "d4-1"}}]}}\n')
        assert read_negatives(file, DATA.documents) == {"c0-1": {"": MinedNegatives(("d4-1",))}}, "for all documents"


def test_triplets_take_what_was_judged_not_to_be_relevant_in_turn():
    chosen = load_options(EmbedderOptions, "climatecheck-hybrid", {}, {})
    rows = embedder_rows(chosen, DATA)
    assert len(rows) == sum(len(DATA.relevant(claim)) for claim in DATA.train) and {len(r.negatives) for r in rows} == {
        1
    }
    assert {row.negatives[0] for row in rows} <= NOT_RELEVANT, "never an unjudged document"
    own = [row.negatives[0] for row in rows if row.claim.id == "c0-1"]
    assert sorted(own) == ["d1-1", "d1-2"], "not the first one for both relevant documents"
    assert {row.negatives[0] for row in rows if row.claim.id == "c3-1"} == {"d12-2"}


def test_a_second_phase_orders_the_judged_ones_anew():
    """Section 4.1.2 of climatecheck-hybrid: hard ones from a ranking, easy ones from all that were judged."""
    chosen = load_options(RerankerOptions, "climatecheck-hybrid", {}, {})
    how = Drawing(2, 2, chosen.hard_choice, negatives_from=chosen.negatives_from)
    first = draw_negatives(DATA, [CLAIM], how, {"c0-1": ["d5-1", "d13-2", "d0-1", "d1-1", "d12-2"]})
    second = draw_negatives(DATA, [CLAIM], how, {"c0-1": ["d5-1", "d12-2", "d1-2", "d13-2"]})
    assert [row.hard for row in first] == [("d13-2", "d1-1")] * 2, "what was not judged, d5-1, is no negative"
    assert [row.hard for row in second] == [("d12-2", "d1-2")] * 2, "mined again, they are others"
    assert all(set(row.negatives) <= NOT_RELEVANT and len(set(row.negatives)) == 4 for row in first)
    assert [len(row.negatives) for row in once_per_claim(first)] == [4, 0]
    assert chosen.negatives_per == "claim"


def test_without_a_negative_label_there_is_nothing_to_draw():
    plain = retrieval_data(tiny.corpus(), tiny.claims(), tiny.qrels(), ALL)
    with pytest.raises(InvalidData, match="no document was judged not to be relevant"):
        draw_negatives(plain, plain.train, Drawing(1, 1, negatives_from="judged"))


def test_all_claims_can_be_trained_on():
    assert len(DATA.train) == len(tiny.claims()) and DATA.groups == {} and not DATA.hidden
    dev, by_claim = tiny.claims()[-3:], TrainingOptions(split="claim")
    given = retrieval_data(tiny.corpus(), tiny.claims()[:-3], tiny.qrels(), by_claim, (dev, {}))
    assert [len(claims) for claims in given.groups.values()] == [3], (
        "all of the development claims choose, in one group"
    )


def test_what_is_drawn_from_a_ranking_is_in_it():
    """The ensemble draws of the 500 best of a ranking; a judged document that is not among them is none of these."""
    ranked = {"c0-1": [*IDS[4:9], "d1-1"]}
    (row, _) = draw_negatives(DATA, [CLAIM], Drawing(6, 0, "random"), ranked)
    assert set(row.hard) == {*IDS[4:9], "d1-1"}, "d1-2 was judged, and was not found"
    (row, _) = draw_negatives(DATA, [CLAIM], Drawing(3, 0), ranked)
    assert row.hard == ("d1-1", "d1-2", IDS[4])


@pytest.mark.parametrize(
    ("kind", "preset", "titles"),
    [
        (EmbedderOptions, "climatecheck-hybrid", False),
        (EmbedderOptions, "checkthat-4b", True),
        *((RerankerOptions, name, False) for name in preset_names(RerankerOptions)),
    ],
)
def test_a_model_learns_from_the_texts_that_its_recipe_reads(tmp_path, kind, preset, titles):
    """ClimateCheck's collection has titles, and its systems read abstracts alone."""
    corpus, claims, qrels = (tmp_path / f"{name}.jsonl" for name in ("corpus", "claims", "qrels"))
    documents = [{"abstract_id": n, "title": f"Title {n}", "abstract": f"Abstract {n}"} for n in (1, 2)]
    corpus.write_text("".join(f"{json.dumps(one)}\n" for one in documents))
    claims.write_text('{"claim_id": "c", "claim": "a claim"}\n')
    qrels.write_text('{"claim_id": "c", "abstract_id": 1, "annotation": "Supports"}\n')
    chosen = load_options(kind, preset, {}, {"dev_share": 0})
    read = read_retrieval_data(str(corpus), str(claims), str(qrels), chosen).documents["1"].content
    assert read == ("Title 1\nAbstract 1" if titles else "Abstract 1")
    if isinstance(chosen, RerankerOptions):
        assert load_recipe(str(chosen.recipe)).ingest.titles is chosen.titles
