"""Hard negatives: documents that a ranking puts high for a claim although they do not bear on it.

As in climatecheck-ensemble (Wang et al., 2025, section 3.2.1): a reranker reorders the first 1,000 of a ranking, and
the first 500 that are not relevant are the pool. For each relevant document, 5 negatives are drawn from the pool and 10
from the whole corpus. Unjudged documents can be relevant, so those that probably bear on the claim are left out.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.analysis import clean
from ...core.errors import InvalidData
from ...core.files import write_text
from ...core.runtime import OnProgress
from ...core.text import json_line
from ...core.types import Claim, Document, Hit
from ..measure.types import Qrels

if TYPE_CHECKING:
    from ...pipeline.checker import Checker

SHINGLE = 5
"""Runs of this many words are compared to find near duplicates."""


@dataclass(frozen=True, slots=True)
class MiningOptions:
    """The first `keep` of `depth` documents that can be taken not to bear on the claim are the pool.

    `margin`: a document whose score is above this share of the relevant one's is left out, as likely to bear on the
    claim too (NV-Retriever, de Souza P. Moreira et al., 2024, has 0.95); None leaves none out. `duplicates`: so is one
    that shares more than this share of its runs of 5 words with a relevant one (Jaccard).
    """

    depth: int = 1000
    keep: int = 500
    hard: int = 5
    random: int = 10
    margin: float | None = 0.95
    duplicates: float = 0.5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Mined:
    """The result of mining: how many rows, of how many claims, documents left out by reason, and messages."""

    rows: int
    claims: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """What negatives are mined from: a checker that ranks, the texts of documents, and the ids of the whole corpus."""

    checker: Checker
    documents: Callable[[Sequence[str]], Mapping[str, Document]]
    ids: Sequence[str]


def mine(
    source: Source,
    claims: Sequence[Claim],
    qrels: Qrels,
    output: Path,
    options: MiningOptions,
    on_progress: OnProgress = lambda done, total: None,
) -> Mined:
    """Write a line of JSON for each claim and relevant document: `claim_id`, `claim`, `positive_id`, `positive`, and
    `negatives` with `id`, `text`, `score` and `kind` (`hard` or `random`; these have no score).

    The file appears when all is done. What is drawn for a claim depends on the seed and the claim alone. Raises
    InvalidData where no claim has a relevant document in the store.
    """
    wanted = [claim for claim in claims if any(grade > 0 for grade in qrels.get(str(claim.id), {}).values())]
    if not wanted:
        raise InvalidData("no claim has a relevant document. Check that the ids of claims and judgements match")
    rows: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    messages: list[str] = []
    for number, result in enumerate(source.checker.check_many(wanted, k=options.depth), 1):
        claim = result.claim
        on_progress(number, len(wanted))
        if result.error is not None:
            messages.append(f"claim {claim.id}: {result.error}")
            continue
        hits = [piece.hit for piece in result.evidence]
        made = list(_of_claim(source, claim, qrels[str(claim.id)], hits, options, left_out))
        if not made:
            messages.append(f"claim {claim.id}: the store has none of its relevant documents")
        rows += made
    if not rows:
        raise InvalidData(f"nothing was mined: {messages[0] if messages else 'no claim'}")
    write_text(output, "".join(map(json_line, rows)), "what is mined")
    return Mined(len(rows), len(wanted) - len(messages), dict(left_out), tuple(messages))


def _of_claim(
    source: Source,
    claim: Claim,
    grades: Mapping[str, int],
    hits: Sequence[Hit],
    options: MiningOptions,
    left_out: Counter[str],
) -> Iterator[dict[str, Any]]:
    relevant = source.documents([key for key, grade in grades.items() if grade > 0])
    scores = {hit.document.id: hit.score for hit in hits}
    similar = [shingles(document) for document in relevant.values()]
    for id_, document in relevant.items():
        draw = random.Random(f"{options.seed} {claim.id} {id_}")  # noqa: S311 - a sample, not a secret
        pool = []
        for hit in hits:
            grade = grades.get(hit.document.id)
            why = _bears_on_it(hit, similar, scores.get(id_), options) if grade is None else None
            left_out.update([why] if why else [])
            if why is None and not (grade or 0) > 0:
                pool.append(hit)
            if len(pool) == options.keep:
                break
        chosen = sorted(draw.sample(pool, min(options.hard, len(pool))), key=lambda hit: hit.rank)
        others = _random(draw, source.ids, {*grades, *scores}, options.random)
        found = source.documents(others)
        yield {
            "claim_id": str(claim.id),
            "claim": claim.text,
            "positive_id": id_,
            "positive": document.content,
            "negatives": [
                *({"id": hit.document.id, "text": hit.text, "score": hit.score, "kind": "hard"} for hit in chosen),
                *(
                    {"id": other, "text": found[other].content, "score": None, "kind": "random"}
                    for other in others
                    if other in found
                ),
            ],
        }


def _bears_on_it(
    hit: Hit, similar: Sequence[frozenset[int]], positive: float | None, options: MiningOptions
) -> str | None:
    """Why an unjudged hit probably bears on the claim; None if it can be taken not to."""
    limit = None
    if options.margin is not None and positive is not None:
        limit = positive - (1 - options.margin) * abs(positive)
    if limit is not None and hit.score > limit:
        return "scored like a relevant document"
    own = shingles(hit.document)
    if any(jaccard(own, other) > options.duplicates for other in similar):
        return "nearly the same text as a relevant document"
    return None


def _random(draw: random.Random, ids: Sequence[str], without: set[str], count: int) -> list[str]:
    """Up to `count` ids that were not ranked high."""
    found: dict[str, None] = {}
    if len(ids) <= len(without) + 2 * count:
        left = [id_ for id_ in ids if id_ not in without]
        return draw.sample(left, min(count, len(left)))
    while len(found) < count:
        id_ = ids[draw.randrange(len(ids))]
        if id_ not in without:
            found[id_] = None
    return list(found)


def shingles(document: Document) -> frozenset[int]:
    """Hashes of each five words in a row of title and text, whatever their capitals and punctuation."""
    words = "".join(c if c.isalnum() else " " for c in clean(document.content).casefold()).split()
    runs = (" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1)))
    return frozenset(int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest()) for run in runs)


def jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    """The share of what both have in what either has."""
    return len(one & other) / len(one | other) if one or other else 0.0
