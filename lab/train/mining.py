"""Hard negatives: documents that a ranking puts high for a claim although they do not bear on it.

As in climatecheck-ensemble (Wang et al., 2025, section 3.2.1): a reranker reorders the first 1,000 of a ranking, and
the first 500 that are not relevant are the pool. For each relevant document, 5 negatives are drawn from the pool and 10
from the whole corpus. Unjudged documents can be relevant, so those that probably bear on the claim are left out.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...core.analysis import clean
from ...core.errors import InvalidData, UsageError
from ...core.files import write_text
from ...core.text import json_line
from ...core.types import Claim, Document, Hit
from ..measure.types import Qrels
from .retrieval_data import Checks

SHINGLE = 5
"""Runs of this many words are compared to find near duplicates."""
MARK = "mining"


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


def mine(
    checker: Checks,
    claims: Sequence[Claim],
    qrels: Qrels,
    documents: Callable[[Sequence[str]], Mapping[str, Document]],
    ids: Sequence[str],
    output: Path,
    options: MiningOptions,
    settings: Mapping[str, Any],
    *,
    resume: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Mined:
    """Write a line of JSON for each claim and relevant document: `claim_id`, `claim`, `positive_id`, `positive`, and
    `negatives` with `id`, `text`, `score` and `kind` (`hard` or `random`; these have no score).

    `ids` are those of the whole corpus. The file appears when all is done; until then it is `OUTPUT.part`, which
    `resume` goes on with: what is drawn for a claim depends on the seed and the claim alone. Raises UsageError if
    `OUTPUT.part` is there and `resume` is not, or was made with other settings, InvalidData where no claim has a
    relevant document in the store.
    """
    wanted = [claim for claim in claims if any(grade > 0 for grade in qrels.get(str(claim.id), {}).values())]
    if not wanted:
        raise InvalidData("no claim has a relevant document. Check that the ids of claims and judgements match")
    part = output.with_name(f"{output.name}.part")
    told = json.dumps({MARK: 1, "options": asdict(options), **settings}, sort_keys=True)
    done, rows = _begin(part, told, resume)
    left_out: Counter[str] = Counter()
    messages: list[str] = []
    todo = [claim for claim in wanted if str(claim.id) not in done]
    with part.open("a", encoding="utf-8") as stream:
        for number, result in enumerate(checker.check_many(todo, k=options.depth), len(done) + 1):
            claim = result.claim
            on_progress(number, len(wanted))
            if result.error is not None:
                messages.append(f"claim {claim.id}: {result.error}")
                continue
            hits = [piece.hit for piece in result.evidence]
            made = list(_of_claim(claim, qrels[str(claim.id)], hits, documents, ids, options, left_out))
            if not made:
                messages.append(f"claim {claim.id}: the store has none of its relevant documents")
            # One line for a claim and its end, so that a claim is there whole or not at all.
            stream.write("".join(map(json_line, made)))
            stream.write(json.dumps({"done": str(claim.id)}) + "\n")
            stream.flush()
            rows += len(made)
    if not rows:
        raise InvalidData(f"nothing was mined: {messages[0] if messages else 'no claim'}")
    lines = part.read_text(encoding="utf-8").split("\n")[:-1]
    mined = (f"{line}\n" for line in lines if not line.startswith(('{"done"', f'{{"{MARK}"')))
    write_text(output, "".join(mined), "what is mined")
    part.unlink()
    return Mined(rows, len(wanted) - len(messages), dict(left_out), tuple(messages))


def _begin(part: Path, told: str, resume: bool) -> tuple[set[str], int]:
    """Begin `part`, or go on with it: the finished claims, and the number of their rows."""
    if not part.exists():
        write_text(part, f'{{"{MARK}": {json.dumps(told)}}}\n')
        return set(), 0
    if not resume:
        raise UsageError(f"{part} contains unfinished mining. Use --resume to continue it, or remove the file")
    # The last line may have been cut off; so may the rows of a claim that has no end.
    lines = [line for line in part.read_text(encoding="utf-8").split("\n")[:-1] if line]
    if not lines or json.loads(lines[0]).get(MARK) != told:
        raise UsageError(f"{part} was mined with other settings. Use the same ones, or remove the file")
    kept, waiting = [lines[0]], list[str]()
    done: set[str] = set()
    rows = 0
    for line in lines[1:]:
        waiting.append(line)
        data = json.loads(line)
        if "done" in data:
            done.add(data["done"])
            rows += len(waiting) - 1
            kept += waiting
            waiting = []
    write_text(part, "".join(f"{line}\n" for line in kept))
    return done, rows


def _of_claim(
    claim: Claim,
    grades: Mapping[str, int],
    hits: Sequence[Hit],
    documents: Callable[[Sequence[str]], Mapping[str, Document]],
    ids: Sequence[str],
    options: MiningOptions,
    left_out: Counter[str],
) -> Iterator[dict[str, Any]]:
    relevant = documents([key for key, grade in grades.items() if grade > 0])
    scores = {hit.document.id: hit.score for hit in hits}
    similar = [shingles(document) for document in relevant.values()]
    for id_, document in relevant.items():
        draw = random.Random(f"{options.seed} {claim.id} {id_}")  # noqa: S311 - a sample, not a secret
        pool = list(_pool(hits, grades, similar, scores.get(id_), options, left_out))
        chosen = draw.sample(pool, min(options.hard, len(pool)))
        chosen.sort(key=lambda hit: hit.rank)
        negatives: list[dict[str, Any]] = [
            {"id": hit.document.id, "text": hit.text, "score": hit.score, "kind": "hard"} for hit in chosen
        ]
        others = _random(draw, ids, {*grades, *(hit.document.id for hit in hits)}, options.random)
        found = documents(others)
        negatives += [
            {"id": other, "text": found[other].content, "score": None, "kind": "random"}
            for other in others
            if other in found
        ]
        yield {
            "claim_id": str(claim.id),
            "claim": claim.text,
            "positive_id": id_,
            "positive": document.content,
            "negatives": negatives,
        }


def _pool(
    hits: Sequence[Hit],
    grades: Mapping[str, int],
    similar: Sequence[frozenset[int]],
    positive: float | None,
    options: MiningOptions,
    left_out: Counter[str],
) -> Iterator[Hit]:
    """The first `keep` hits that can be taken not to bear on the claim."""
    kept = 0
    for hit in hits:
        if kept == options.keep:
            return
        grade = grades.get(hit.document.id)
        if grade is not None and grade > 0:
            continue
        # What was judged not relevant needs no guard.
        if grade is None:
            limit = None
            if options.margin is not None and positive is not None:
                limit = positive - (1 - options.margin) * abs(positive)
            if limit is not None and hit.score > limit:
                left_out["scored like a relevant document"] += 1
                continue
            own = shingles(hit.document)
            if any(jaccard(own, other) > options.duplicates for other in similar):
                left_out["nearly the same text as a relevant document"] += 1
                continue
        kept += 1
        yield hit


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
