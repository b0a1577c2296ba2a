"""What is trained on: splits by document keep what is measured on out of it, and negatives of each kind."""

import numpy as np
import pytest
import tiny_training as tiny
from cli_runs import jsonl

from ccheck.core.errors import InvalidData
from ccheck.core.recipe import load_recipe
from ccheck.core.types import Claim
from ccheck.lab.train.embedder import embedder_rows
from ccheck.lab.train.options import EmbedderOptions, RerankerOptions, TrainingOptions, load_options, preset_names
from ccheck.lab.train.retrieval_data import (
    Drawing,
    MinedNegatives,
    draw_negatives,
    once_per_claim,
    read_negatives,
    read_retrieval_data,
    retrieval_data,
)
from ccheck.lab.train.split import split_by_claim, split_by_document


def made(claims: int, documents: int, each: int, seed: int) -> tuple[list[Claim], dict[str, dict[str, int]]]:
    """Claims with judgements on documents drawn at random."""
    draw = np.random.default_rng(seed)
    qrels = {
        str(n): {f"d{d}": int(draw.integers(2)) for d in draw.integers(documents, size=each)} for n in range(claims)
    }
    return [Claim(f"claim {n}", str(n)) for n in range(claims)], qrels


def documents_of(claims, qrels) -> set[str]:
    return {document for claim in claims for document in qrels[claim.id]}


def seen_in_training(split, qrels) -> set[str]:
    """The development claims that share a judged document with a training claim."""
    trained = documents_of(split.train_claims, qrels)
    return {claim.id for claim in split.dev_claims if not trained.isdisjoint(qrels[claim.id])}


@pytest.mark.parametrize(("documents", "each"), [(1000, 1), (100, 1), (150, 2), (200, 3)])
def test_no_document_of_a_development_claim_is_in_training(documents, each):
    claims, qrels = made(100, documents, each, seed=each)
    for seed in range(5):
        split = split_by_document(claims, qrels, 0.2, seed)
        assert documents_of(split.train_claims, qrels).isdisjoint(documents_of(split.dev_claims, qrels))
        assert split.dev_documents == documents_of(split.dev_claims, qrels)
        parts = (*split.train_claims, *split.dev_claims, *split.dropped)
        assert sorted(claim.id for claim in parts) == sorted(claim.id for claim in claims)
        assert 18 <= len(split.dev_claims) <= 20
        assert not seen_in_training(split, qrels)


def test_of_a_chain_only_the_neighbours_are_dropped():
    # Claim n has documents n and n + 1: all are one group. A stretch of it costs one claim at each end.
    claims = [Claim(f"claim {n}", str(n)) for n in range(100)]
    qrels = {str(n): {str(n): 1, str(n + 1): 1} for n in range(100)}
    for seed in range(5):
        split = split_by_document(claims, qrels, 0.2, seed)
        assert len(split.dev_claims) == 20 and 1 <= len(split.dropped) <= 2
        assert str(len(split.dropped)) in split.describe()
        assert split.train_claims == tuple(claim for claim in claims if claim in split.train_claims)


def test_the_seed_decides_and_the_order_does_not():
    claims, qrels = made(60, 80, 1, seed=1)
    again = split_by_document(claims[::-1], dict(reversed(qrels.items())), 0.3, 7)
    split = split_by_document(claims, qrels, 0.3, 7)
    assert set(again.dev_claims) == set(split.dev_claims) and again.dev_claims == split.dev_claims[::-1]
    assert split_by_document(claims, qrels, 0.3, 8).dev_claims != split.dev_claims
    ordered, turned = (split_by_claim(some, 0.3, 7).dev_claims for some in (claims, claims[::-1]))
    assert ordered == turned[::-1]


def test_claims_of_the_same_words_stay_together():
    claims = [Claim("The  sea rises" if n % 2 else "the sea RISES", f"s{n}") for n in range(2)]
    claims += [Claim(f"claim {n}", str(n)) for n in range(8)]
    qrels = {str(claim.id): {f"of {claim.id}": 1} for claim in claims}
    for seed in range(10):
        split = split_by_document(claims, qrels, 0.5, seed)
        assert len({claim in split.dev_claims for claim in claims[:2]}) == 1


def test_a_split_by_claim_shares_documents_and_says_which():
    claims, qrels = made(100, 30, 1, seed=2)
    split = split_by_claim(claims, 0.2)
    assert len(split.dev_claims) == 20 and len(split.train_claims) == 80
    seen = seen_in_training(split, qrels)
    assert len(seen) > 10
    for claim in split.dev_claims:
        shares = any(qrels[claim.id].keys() & qrels[other.id].keys() for other in split.train_claims)
        assert (claim.id in seen) == shares


def test_too_few_claims_are_not_split():
    claims, qrels = made(3, 100, 1, seed=0)
    for split in (lambda: split_by_document(claims, qrels, 0.2), lambda: split_by_claim(claims, 0.2)):
        with pytest.raises(InvalidData, match=r"needs 4 judged claims, and has 3.*--dev-claims.*ids"):
            split()


def test_claims_that_all_share_a_document_leave_nothing_to_train_on():
    claims = [Claim(f"claim {n}", str(n)) for n in range(10)]
    with pytest.raises(InvalidData, match="no claims are left to train on"):
        split_by_document(claims, {str(n): {"the one": 1} for n in range(10)}, 0.2)


# -- negatives by kind: those that were mined, those that were judged, and the numbers that the papers' presets draw


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
    assert len(rows) == sum(len(DATA.relevant(claim)) for claim in DATA.train)
    assert {len(row.negatives) for row in rows} == {1}
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
    assert [len(claims) for claims in given.groups.values()] == [3], "all of them choose, in one group"


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
    jsonl(corpus, *({"abstract_id": n, "title": f"Title {n}", "abstract": f"Abstract {n}"} for n in (1, 2)))
    jsonl(claims, {"claim_id": "c", "claim": "a claim"})
    jsonl(qrels, {"claim_id": "c", "abstract_id": 1, "annotation": "Supports"})
    chosen = load_options(kind, preset, {}, {"dev_share": 0})
    read = read_retrieval_data(str(corpus), str(claims), str(qrels), chosen).documents["1"].content
    assert read == ("Title 1\nAbstract 1" if titles else "Abstract 1")
    if isinstance(chosen, RerankerOptions):
        assert load_recipe(str(chosen.recipe)).ingest.titles is chosen.titles
