"""Training data from the retrieval of a recipe: hard negatives and candidates."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...core.adjust import Changes, resolved
from ...core.errors import InvalidData, UsageError
from ...core.redaction import redact
from ...core.runtime import Runtime
from ...core.types import Claim, Document
from ...pipeline.checker import Checker
from ...pipeline.claims import read_claims
from ..measure.datasets import read_corpus, read_qrels
from ..measure.evaluate import retrieval_only
from .mining import Mined, MiningOptions, mine
from .reranker import Candidates


def mine_from_store(
    runtime: Runtime,
    claims: str,
    qrels: str,
    output: Path,
    options: MiningOptions,
    *,
    corpus: str | None = None,
    replace: Mapping[str, str] | None = None,
    resume: bool = False,
) -> Mined:
    """Mine hard negatives with the retrieval of the settings' recipe: what `ccheck mine` does.

    Only a reranker that the settings name reorders the ranking, down to the whole depth: a recipe's own reads less.
    `replace`: other models for those that the recipe names. Random negatives come from the file `corpus`, else from all
    judged documents. Raises what `mine` raises, and NotFound, UsageError or InvalidData for files, store and recipe.
    """
    if options.hard + options.random == 0:
        raise UsageError("nothing to mine: ask for hard or random negatives")
    if runtime.settings.rerank is None:
        runtime = runtime.using(rerank="none")
    settings = runtime.settings
    depth = options.depth if settings.rerank != "none" else None
    recipe = retrieval_only(resolved(settings, Changes(rerank_depth=depth, replace=replace)))
    judged = read_qrels(qrels)
    ids = sorted(read_corpus(corpus).documents if corpus else {key for grades in judged.values() for key in grades})
    with Checker(runtime, recipe=recipe) as checker, runtime.progress("mining", "claims") as on_progress:
        about = {
            "recipe": redact(recipe.model_dump_json(include={"retrievers", "fusion", "rerankers"})),
            "store": checker.store.name,
            "data": hashlib.sha256("\0".join([Path(claims).name, *ids]).encode("utf-8", "surrogatepass")).hexdigest(),
        }
        return mine(
            checker,
            read_claims(claims),
            judged,
            checker.store.get,
            ids,
            output,
            options,
            about,
            resume=resume,
            on_progress=on_progress,
        )


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
                    raise InvalidData(
                        f"no document of the corpus was found in the store {checker.store.name}. Ingest the corpus "
                        "into it first"
                    )
                return found

            yield candidates
