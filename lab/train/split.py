"""Splits of claims into those to learn from and those to measure on.

Claims share documents. A model that is measured on claims whose documents it was trained on seems to have learned what
it only remembers: on SciFact, a query adapter seemed to lift nDCG@10 by .18, but lifted nothing on unseen documents.
`split_by_document` keeps them apart. `split_by_claim` is the usual split, for comparison.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import TypeAlias

from more_itertools import map_reduce

from ...core.analysis import clean
from ...core.errors import InvalidData
from ...core.types import Claim

CLAIMS_AT_LEAST = 4
"""Fewer judged claims can't be split in a way that would mean anything."""
_Things: TypeAlias = Mapping[str, set[tuple[str, str]]]
"""What claims may not share: by a claim's id its documents, and its words."""
INSTEAD = "Name claims to measure on with --dev-claims, and check that the ids of claims and judgements match"
"""What to do if claims can't be split."""


@dataclass(frozen=True, slots=True)
class Split:
    """Claims to learn from and claims to measure on, each in the order in which they were given.

    `dropped` are in neither: they share documents with claims to measure on. Training must not see `dev_documents`, as
    negatives neither: after a split by document, all that are judged for claims to measure on.
    """

    train_claims: tuple[Claim, ...]
    dev_claims: tuple[Claim, ...]
    dropped: tuple[Claim, ...] = ()
    dev_documents: frozenset[str] = frozenset()

    def describe(self) -> str:
        """A line for a log or a model card."""
        said = f"{len(self.train_claims)} claims to train on, {len(self.dev_claims)} to measure on"
        if self.dev_documents:
            said += " (their documents are not in training)"
        if self.dropped:
            said += f"; left out: {len(self.dropped)} that share documents with those"
        return said


def split_by_document(
    claims: Sequence[Claim],
    qrels: Mapping[str, Mapping[str, float]],
    dev_share: float,
    seed: int = 0,
    instead: str = INSTEAD,
) -> Split:
    """Split so that no document that is judged for a development claim is judged for a training claim.

    `claims` have ids, each its own, and judgements. `qrels`: claim id -> document id -> grade; all that are judged
    count, whatever their grade. Claims of the same words stay together too. Whole groups of connected claims are drawn
    until the share is reached. Where the groups left are too large, one is cut: its development claims are neighbours,
    and those of the others that share documents with them are dropped. The same claims give the same split whatever
    their order.

    Raises InvalidData for too few claims; `instead` is what to do then.
    """
    by_id = {str(claim.id): claim for claim in claims}
    documents = {id_: {("document", key) for key in qrels[id_]} | {("claim", _key(by_id[id_]))} for id_ in by_id}
    wanted = _wanted(claims, dev_share, instead)
    draw = random.Random(seed)  # noqa: S311 - a split, not a secret
    groups = _groups(documents)
    draw.shuffle(groups)
    dev: set[str] = set()
    large: list[list[str]] = []
    for group in groups:
        if len(group) <= wanted - len(dev):
            dev.update(group)
        else:
            large.append(group)
    # A claim or two fewer than wanted are not worth a group that is cut.
    if len(dev) < 0.9 * wanted:
        # The neighbours of one that is drawn cost the fewest others.
        first = draw.choice(min(large, key=len))
        dev.update(islice(_nearest(first, documents, _holders(documents)), wanted - len(dev)))
    held = {thing for id_ in dev for thing in documents[id_]}
    dropped = {id_ for id_ in by_id if id_ not in dev and not documents[id_].isdisjoint(held)}
    if len(dev) + len(dropped) == len(by_id):
        said = f"no claims are left to train on, because all {len(by_id)} share documents"
        raise InvalidData(f"{said}. Split by claim with --set split=claim. {instead}")
    return Split(
        tuple(claim for claim in claims if claim.id not in dev and claim.id not in dropped),
        tuple(claim for claim in claims if claim.id in dev),
        tuple(claim for claim in claims if claim.id in dropped),
        frozenset(key for id_ in dev for key in qrels[id_]),
    )


def split_by_claim(claims: Sequence[Claim], dev_share: float, seed: int = 0, instead: str = INSTEAD) -> Split:
    """Split claims at random, whatever documents they share. Raises as `split_by_document`."""
    ids = sorted(str(claim.id) for claim in claims)
    dev = set(random.Random(seed).sample(ids, _wanted(claims, dev_share, instead)))  # noqa: S311
    return Split(
        tuple(claim for claim in claims if claim.id not in dev), tuple(claim for claim in claims if claim.id in dev)
    )


def _holders(documents: _Things) -> dict[tuple[str, str], list[str]]:
    """The claims that have each thing."""
    return map_reduce(((thing, id_) for id_ in documents for thing in documents[id_]), itemgetter(0), itemgetter(1))


def _groups(documents: _Things) -> list[list[str]]:
    """The groups of claims that share things, directly or over others; each sorted, and they by their first."""
    holders, groups, grouped = _holders(documents), list[list[str]](), set[str]()
    for id_ in sorted(documents):
        if id_ not in grouped:
            groups.append(sorted(_nearest(id_, documents, holders)))
            grouped.update(groups[-1])
    return groups


def _nearest(first: str, documents: _Things, holders: dict[tuple[str, str], list[str]]) -> Iterator[str]:
    """A claim, and those that share things with it, directly or over others, the nearest first. Uses `holders` up."""
    found, queue = {first}, [first]
    for id_ in queue:
        yield id_
        near = {other for thing in documents[id_] for other in holders.pop(thing, ())} - found
        found |= near
        queue.extend(sorted(near))


def _wanted(claims: Sequence[Claim], dev_share: float, instead: str) -> int:
    """How many claims to measure on. Raises InvalidData if there are too few to split."""
    if len(claims) < CLAIMS_AT_LEAST:
        few = f"a split needs {CLAIMS_AT_LEAST} judged claims, and has {len(claims)}"
        raise InvalidData(f"too few claims to hold any out: {few}. {instead}")
    return min(len(claims) - 1, max(1, round(len(claims) * dev_share)))


def _key(claim: Claim) -> str:
    return " ".join(clean(claim.text).casefold().split())
