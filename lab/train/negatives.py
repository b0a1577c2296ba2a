"""Drawing negatives: documents that a model learns to rank below the relevant ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...core.errors import InvalidData
from ...core.types import Claim
from .retrieval_data import MinedNegatives, RetrievalData

_NOTHING = MinedNegatives()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A claim, the id of a relevant document, and ids of negatives: the `hard` ones, then the `random` ones."""

    claim: Claim
    positive: str
    hard: tuple[str, ...]
    random: tuple[str, ...]

    @property
    def negatives(self) -> tuple[str, ...]:
        return (*self.hard, *self.random)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How negatives are drawn: `hard` and `random` ones for each relevant document, as `RerankerOptions` has it.

    `hard_choice`: the first ones of the ranking, or any of its first `keep`. `negatives_from = "judged"`: only
    documents that were judged not to be relevant to some claim.
    """

    hard: int
    random: int
    hard_choice: Literal["top", "random"] = "top"
    keep: int | None = None
    negatives_from: Literal["corpus", "judged"] = "corpus"
    seed: int = 0


def draw_negatives(
    data: RetrievalData,
    claims: Sequence[Claim],
    how: Drawing,
    ranked: Mapping[str, Sequence[str]] | None = None,
    mined: Mapping[str, Mapping[str, MinedNegatives]] | None = None,
) -> list[Drawn]:
    """A row for each claim and relevant document; never with one that is relevant to the claim or hidden from training.

    `ranked` are the claims' rankings, best first. With `hard_choice = "top"`, and without a ranking, those that were
    judged not to be relevant to the claim come first, wherever they rank. With `negatives_from = "judged"`, another
    relevant document of a claim gets others of those that were judged for it (they take turns).

    With `mined`, what `read_negatives` read, a row's hard negatives are those mined for it and no others, and so are
    its random ones as far as they go.

    A row has fewer negatives than asked for if there are no more. Raises InvalidData if no row has any.
    """
    visible = set(data.visible)
    not_relevant = {id_ for claim in data.train for id_ in data.judged_not(claim)} & visible
    everything = sorted(not_relevant) if how.negatives_from == "judged" else data.visible
    rows = []
    for claim in claims:
        relevant = data.relevant(claim)
        kept_out = set(relevant)
        judged = [id_ for id_ in data.judged_not(claim) if id_ in visible]
        ranking = (ranked or {}).get(str(claim.id), ())
        order = list(ranking) if ranking and how.hard_choice == "random" else list(dict.fromkeys([*judged, *ranking]))
        if how.negatives_from == "judged":
            # What the claim's own labels say, in the ranking's order if there is one.
            order = list(ranking) or judged
            order = [id_ for id_ in order if id_ in not_relevant]
        found = [id_ for id_ in order if id_ in visible and id_ not in kept_out][: how.keep]
        for turn, positive in enumerate(relevant):
            # By the row's own words, so that one row more changes no other.
            draw = random.Random(f"{how.seed}:{claim.id}:{positive}")  # noqa: S311 - a sample, not a secret
            pool, given = found, _NOTHING
            if mined is not None:
                rows_of_claim = mined.get(str(claim.id), {})
                given = rows_of_claim.get(positive) or rows_of_claim.get("", _NOTHING)
                pool = [id_ for id_ in given.hard if id_ in visible and id_ not in kept_out]
            elif how.negatives_from == "judged" and not ranked and found:
                start = turn * how.hard % len(found)
                pool = [*found[start:], *found[:start]]
            chosen = draw.sample(pool, min(how.hard, len(pool))) if how.hard_choice == "random" else pool[: how.hard]
            taken = kept_out | set(chosen)
            others = [id_ for id_ in given.random if id_ in visible and id_ not in taken][: how.random]
            taken |= set(others)
            for _ in range(20 * how.random):
                if len(others) == how.random or not everything:
                    break
                id_ = draw.choice(everything)
                if id_ not in taken:
                    taken.add(id_)
                    others.append(id_)
            rows.append(Drawn(claim, positive, tuple(chosen), tuple(others)))
    if not any(row.negatives for row in rows) and how.hard + how.random:
        if how.negatives_from == "judged":
            add = "Add such judgements (a grade of 0, NOT_ENOUGH_INFO), or set negatives_from = 'corpus'"
            raise InvalidData(f"no document was judged not to be relevant to a claim to train on. {add}")
        raise InvalidData("the corpus is too small to train on: there are no documents that could serve as negatives")
    return rows


def once_per_claim(rows: Iterable[Drawn]) -> list[Drawn]:
    """The rows, in which only a claim's first one has negatives."""
    first: dict[str, Drawn] = {}
    return [
        row if first.setdefault(str(row.claim.id), row) is row else replace(row, hard=(), random=()) for row in rows
    ]


def describe(data: RetrievalData, rows: Iterable[Drawn]) -> str:
    """How many negatives of each kind the rows have."""
    counts: Counter[str] = Counter()
    for row in rows:
        judged = set(data.judged_not(row.claim))
        counts["hard"] += len(row.hard)
        counts["random"] += len(row.random)
        counts["judged"] += len(judged.intersection(row.negatives))
    return (
        f"{counts['hard']:,} hard and {counts['random']:,} random negatives; {counts['judged']:,} of them were judged "
        "not relevant to their claim"
    )
