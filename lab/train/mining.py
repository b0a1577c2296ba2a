"""Hard negatives: documents that a ranking puts high for a claim although they do not bear on it.

As in climatecheck-ensemble (Wang et al., 2025, section 3.2.1): a reranker reorders the first 1,000 of a ranking, and
the first 500 that are not relevant are the pool. For each relevant document, 5 negatives are drawn from the pool and 10
from the whole corpus. Unjudged documents can be relevant, so those that probably bear on the claim are left out.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.adjust import Changes, resolved
from ...core.errors import InvalidData, UsageError
from ...core.files import write_text
from ...core.runtime import OnProgress, Runtime
from ...core.text import json_line
from ...core.types import Claim, Document, Hit
from ...pipeline.checker import Checker
from ...pipeline.claims import read_claims
from ..measure.datasets import read_corpus, read_qrels
from ..measure.evaluate import retrieval_only
from ..measure.session import open_session
from ..measure.types import Qrels
from .reranker import Candidates


@dataclass(frozen=True, slots=True)
class MiningOptions:
    """The first `keep` of `depth` documents that can be taken not to bear on the claim are the pool.

    `margin`: a document whose score is above this share of the relevant one's is left out, as likely to bear on the
    claim too (NV-Retriever, de Souza P. Moreira et al., 2024, has 0.95); None leaves none out.
    """

    depth: int = 1000
    keep: int = 500
    hard: int = 5
    random: int = 10
    margin: float | None = 0.95
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Mined:
    """The result of mining: how many rows, of how many claims, how often a document was left out, and messages."""

    rows: int
    claims: int
    left_out: int = 0
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
    left_out = 0
    messages: list[str] = []
    for number, result in enumerate(source.checker.check_many(wanted, k=options.depth), 1):
        claim = result.claim
        on_progress(number, len(wanted))
        if result.error is not None:
            messages.append(f"claim {claim.id}: {result.error}")
            continue
        hits = [piece.hit for piece in result.evidence]
        made = list(_of_claim(source, claim, qrels[str(claim.id)], hits, options))
        if not made:
            messages.append(f"claim {claim.id}: the store has none of its relevant documents")
        rows += (row for row, _ in made)
        left_out += sum(count for _, count in made)
    if not rows:
        raise InvalidData(f"nothing was mined: {messages[0] if messages else 'no claim'}")
    write_text(output, "".join(map(json_line, rows)), "what is mined")
    return Mined(len(rows), len(wanted) - len(messages), left_out, tuple(messages))


def _of_claim(
    source: Source, claim: Claim, grades: Mapping[str, int], hits: Sequence[Hit], options: MiningOptions
) -> Iterator[tuple[dict[str, Any], int]]:
    """The row of each relevant document, with how many documents were left out of its pool."""
    relevant = source.documents([key for key, grade in grades.items() if grade > 0])
    scores = {hit.document.id: hit.score for hit in hits}
    for id_, document in relevant.items():
        draw = random.Random(f"{options.seed} {claim.id} {id_}")  # noqa: S311 - a sample, not a secret
        most = None
        if options.margin is not None and (own := scores.get(id_)) is not None:
            most = own - (1 - options.margin) * abs(own)
        pool: list[Hit] = []
        left_out = 0
        for hit in hits:
            grade = grades.get(hit.document.id)
            if grade is None and most is not None and hit.score > most:
                left_out += 1  # unjudged, and scored like a relevant one
            elif not (grade or 0) > 0:
                pool.append(hit)
            if len(pool) == options.keep:
                break
        chosen = sorted(draw.sample(pool, min(options.hard, len(pool))), key=lambda hit: hit.rank)
        others = _random(draw, source.ids, {*grades, *scores}, options.random)
        found = source.documents(others)
        row = {
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
        yield row, left_out


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


def mine_from_store(
    runtime: Runtime,
    claims: str,
    qrels: str,
    output: Path,
    options: MiningOptions,
    *,
    corpus: str | None = None,
    replace: Mapping[str, str] | None = None,
) -> Mined:
    """Mine hard negatives with the retrieval of the settings' recipe: what `ccheck mine` does.

    Random negatives come from the file `corpus`, by default from all judged documents.

    Only a reranker that the settings name reorders the ranking, down to the whole depth: a recipe's own reads less.
    `replace`: other models for those that the recipe names. Rankings and scores are kept as evaluations keep them, so a
    mining that was stopped goes on. Raises what `mine` raises, and NotFound, UsageError or InvalidData for files, store
    and recipe.
    """
    if options.hard + options.random == 0:
        raise UsageError("nothing to mine: ask for hard or random negatives")
    if runtime.settings.rerank is None:
        runtime = runtime.using(rerank="none")
    depth = options.depth if runtime.settings.rerank != "none" else None
    recipe = retrieval_only(resolved(runtime.settings, Changes(rerank_depth=depth, replace=replace)))
    judged = read_qrels(qrels)
    ids = read_corpus(corpus).documents if corpus else {key for grades in judged.values() for key in grades}
    with (
        open_session(runtime) as session,
        session.checker(recipe) as checker,
        runtime.progress("mining", "claims") as on_progress,
    ):
        source = Source(checker, session.store.get, sorted(ids))
        return mine(source, read_claims(claims), judged, output, options, on_progress)


@contextmanager
def open_candidates(
    runtime: Runtime,
    documents: Mapping[str, Document],
    *,
    corpus: str | None = None,
    replace: Mapping[str, str] | None = None,
) -> Iterator[Candidates]:
    """Rankings by the retrieval of the settings' recipe, without its rerankers, of some documents.

    They come from the settings' store or, with the file `corpus`, from a temporary store of it. `replace`: other models
    for those that the recipe names. Raises NotFound, UsageError or InvalidData; so does what it yields, and for a store
    that has none of the documents.
    """
    with tempfile.TemporaryDirectory(prefix="ccheck-train-") as scratch:
        if corpus is not None:
            runtime = runtime.using(store=f"{scratch}/store")
        recipe = retrieval_only(resolved(runtime.settings, Changes(replace=replace))).model_copy(
            update={"rerankers": {}}
        )
        with Checker(runtime, recipe=recipe) as checker:
            ingested = corpus is None  # only once candidates are asked for: folders and settings are checked before

            def candidates(claims: Sequence[Claim], depth: int) -> dict[str, dict[str, float]]:
                nonlocal ingested
                found: dict[str, dict[str, float]] = {}
                if not claims:
                    return found
                if not ingested:
                    runtime.notify("ingesting the corpus into a temporary store, to find candidates")
                    checker.ingest(corpus)
                    ingested = True
                for result in checker.check_many(claims, k=depth, details=False):
                    if result.error is not None:
                        raise result.error
                    scores = {one.document.id: one.hit.score for one in result.evidence}
                    found[str(result.claim.id)] = {id_: score for id_, score in scores.items() if id_ in documents}
                if not any(found.values()):
                    store = checker.store.name
                    raise InvalidData(
                        f"no document of the corpus was found in {store}. Ingest the corpus into it first"
                    )
                return found

            yield candidates
