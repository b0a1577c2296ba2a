"""Splits by document keep what is measured on out of training."""

from __future__ import annotations

import numpy as np
import pytest

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.types import Claim
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
        assert sorted(
            claim.id for part in (split.train_claims, split.dev_claims, split.dropped) for claim in part
        ) == sorted(claim.id for claim in claims)
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
    assert (
        split_by_claim(claims, qrels, 0.3, 7).dev_claims == split_by_claim(claims[::-1], qrels, 0.3, 7).dev_claims[::-1]
    )


def test_claims_of_the_same_words_stay_together():
    claims = [Claim("The  sea rises" if n % 2 else "the sea RISES", f"s{n}") for n in range(2)]
    claims += [Claim(f"claim {n}", str(n)) for n in range(8)]
    qrels = {str(claim.id): {f"of {claim.id}": 1} for claim in claims}
    for seed in range(10):
        split = split_by_document(claims, qrels, 0.5, seed)
        assert len({claim in split.dev_claims for claim in claims[:2]}) == 1


def test_a_split_by_claim_shares_documents_and_says_which():
    claims, qrels = made(100, 30, 1, seed=2)
    split = split_by_claim(claims, qrels, 0.2)
    assert len(split.dev_claims) == 20 and len(split.train_claims) == 80
    seen = seen_in_training(split, qrels)
    assert len(seen) > 10
    for claim in split.dev_claims:
        shares = any(qrels[claim.id].keys() & qrels[other.id].keys() for other in split.train_claims)
        assert (claim.id in seen) == shares


def test_unjudged_claims_are_in_neither():
    claims, qrels = made(20, 100, 1, seed=0)
    for split in (split_by_document, split_by_claim):
        answer = split([*claims, Claim("nobody judged it", "x")], {**qrels, "y": {"d": 1}})
        assert [claim.id for claim in answer.unjudged] == ["x"]
        assert "1 without" in answer.describe()
        assert len(answer.train_claims) + len(answer.dev_claims) + len(answer.dropped) == 20


@pytest.mark.parametrize("split", [split_by_document, split_by_claim])
def test_what_cant_be_split_says_why(split):
    claims, qrels = made(20, 100, 1, seed=0)
    for share in (0, 1, -0.5):
        with pytest.raises(UsageError, match="between 0 and 1"):
            split(claims, qrels, share)
    with pytest.raises(InvalidData, match="have no id"):
        split([Claim("without")], qrels)
    with pytest.raises(InvalidData, match="same id"):
        split([claims[0], claims[0]], qrels)
    with pytest.raises(InvalidData, match="Check that the ids"):
        split(claims, {f"q{key}": value for key, value in qrels.items()})


def test_claims_that_all_share_a_document_leave_nothing_to_train_on():
    claims = [Claim(f"claim {n}", str(n)) for n in range(10)]
    with pytest.raises(InvalidData, match="no claims are left to train on"):
        split_by_document(claims, {str(n): {"the one": 1} for n in range(10)})
