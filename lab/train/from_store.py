"""Candidates for training a reranker, from the retrieval of a recipe."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ...core.adjust import Changes, resolved
from ...core.errors import InvalidData
from ...core.runtime import Runtime
from ...core.types import Claim, Document
from ...pipeline.checker import Checker
from ..measure.evaluate import retrieval_only
from .reranker import Candidates


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
