"""Training data from the retrieval of a recipe: hard negatives and candidates."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...core.adjust import Changes, resolved
from ...core.errors import InvalidData, UsageError
from ...core.runtime import Runtime
from ...core.types import Claim, Document
from ...pipeline.checker import Checker
from ...pipeline.claims import read_claims
from ..measure.datasets import read_corpus, read_qrels
from ..measure.evaluate import retrieval_only
from ..measure.session import open_session
from .mining import Mined, MiningOptions, Source, mine
from .reranker import Candidates


@dataclass(frozen=True, slots=True)
class MiningFiles:
    """Claims, judgements, and the corpus that random negatives come from: by default all judged documents."""

    claims: str
    qrels: str
    corpus: str | None = None


def mine_from_store(
    runtime: Runtime,
    files: MiningFiles,
    output: Path,
    options: MiningOptions,
    replace: Mapping[str, str] | None = None,
) -> Mined:
    """Mine hard negatives with the retrieval of the settings' recipe: what `ccheck mine` does.

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
    qrels = read_qrels(files.qrels)
    ids = read_corpus(files.corpus).documents if files.corpus else {key for grades in qrels.values() for key in grades}
    with (
        open_session(runtime) as session,
        session.checker(recipe) as checker,
        runtime.progress("mining", "claims") as on_progress,
    ):
        source = Source(checker, session.store.get, sorted(ids))
        return mine(source, read_claims(files.claims), qrels, output, options, on_progress)


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
            if corpus is not None:
                runtime.notify("ingesting the corpus into a temporary store, to find candidates")
                checker.ingest(corpus)

            def candidates(claims: Sequence[Claim], depth: int) -> dict[str, dict[str, float]]:
                found: dict[str, dict[str, float]] = {}
                if not claims:
                    return found
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
