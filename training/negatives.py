"""Drawing negatives: documents that a model learns to rank below the relevant ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Literal

from ..errors import InvalidData
from ..types import Claim
from .retrieval_data import RetrievalData


def draw_negatives(
    data: RetrievalData,
    claims: Sequence[Claim],
    ranked: Mapping[str, Sequence[str]],
    *,
    hard: int,
    hard_choice: Literal["top", "random"] = "top",
    random_count: int,
    random_from: Literal["corpus", "relevant"] = "corpus",
    seed: int,
    own: Mapping[str, str] | None = None,
) -> list[tuple[Claim, str, list[str]]]:
    """A row for each claim and relevant document: the claim, that document's id, ids of negatives.

    `hard` of the claim's ranking (`ranked`, best first), those before the others that were judged not to be relevant;
    `random_count` of all documents, or of those relevant to other claims. Never one that is relevant to the claim or
    hidden from training. `own`: the one relevant document of claims that have no judgements.

    A row has fewer negatives than asked for if there are no more.
    """
    visible = set(data.visible)
    sources = {
        "corpus": data.visible,
        "relevant": sorted({id_ for claim in data.train for id_ in data.relevant(claim)} & visible),
    }
    everything = sources[random_from]
    rows = []
    for claim in claims:
        relevant = [own[str(claim.id)]] if own is not None else data.relevant(claim)
        kept_out = set(relevant)
        judged = [] if own is not None else [id_ for id_ in data.judged_not(claim) if id_ in visible]
        order = list(dict.fromkeys([*judged, *ranked.get(str(claim.id), ())]))
        found = [id_ for id_ in order if id_ in visible and id_ not in kept_out]
        for positive in relevant:
            # By the row's own words, so that one row more changes no other.
            draw = random.Random(f"{seed}:{claim.id}:{positive}")  # noqa: S311 - a sample, not a secret
            chosen = draw.sample(found, min(hard, len(found))) if hard_choice == "random" else found[:hard]
            taken = kept_out | set(chosen)
            others: list[str] = []
            for _ in range(20 * random_count):
                if len(others) == random_count or not everything:
                    break
                id_ = draw.choice(everything)
                if id_ not in taken:
                    taken.add(id_)
                    others.append(id_)
            rows.append((claim, positive, [*chosen, *others]))
    if not any(negatives for _, _, negatives in rows) and hard + random_count:
        raise InvalidData("the corpus is too small to train on: there are no documents that could serve as negatives")
    return rows
