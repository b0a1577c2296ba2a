"""ccheck: check claims against scientific papers.

    import ccheck
    checker = ccheck.open()                      # the local store; or ccheck.open("https://es:9200/papers")
    checker.ingest("corpus.jsonl")
    result = checker.check("Sea level has risen about 20 cm since 1900.")
    result.verdict.label, result.evidence[0].document.title

Importing it is cheap: what is heavy is imported when it is needed.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Literal

__version__ = "0.1.0"

__all__ = [
    "CcheckError",
    "Checker",
    "Claim",
    "Document",
    "Evidence",
    "Filter",
    "Hit",
    "Recipe",
    "Result",
    "Sentence",
    "Settings",
    "Stance",
    "Verdict",
    "__version__",
    "load_recipe",
    "open",
]

_HOMES = {
    "CcheckError": "core.errors",
    "Checker": "pipeline.checker",
    "Recipe": "core.recipe",
    "Settings": "core.settings",
    "load_recipe": "core.recipe",
}

if TYPE_CHECKING:
    from .core.errors import CcheckError
    from .core.recipe import Recipe, load_recipe
    from .core.settings import Settings
    from .core.types import Claim, Document, Evidence, Filter, Hit, Result, Sentence, Stance, Verdict
    from .pipeline.checker import Checker
    from .rerank import Reranker
    from .rerank.several import Score
    from .verdict import Judge


def open(  # noqa: A001
    store: str | os.PathLike[str] | None = None,
    *,
    judge: Judge | None = None,
    reranker: Score | Reranker | None = None,
    verdict: Literal["auto", "llm", "stance", "none"] | None = None,
    trust_folder: bool = False,
    **settings: Any,
) -> Checker:
    """Open a store. `store` is written as for `--store`, or a path; by default, the settings name it.

    `judge` and `reranker` are functions of your own, in place of the recipe's; results have their names. `verdict` says
    who judges, as `--verdict` does: "none" only ranks. Further settings override the environment and the settings
    files: `ccheck.open(recipe="bm25")`. They do what the flags of `ccheck query` do. If the current folder's
    ccheck.toml sets something that only you may choose, that is an error, unless you allowed the file (`ccheck config
    trust`) or set `trust_folder`.
    Raises UsageError, NotFound or InvalidData.
    """
    from .core.adjust import Changes, resolved
    from .core.settings import resolve
    from .pipeline.checker import Checker

    named = None if store is None else os.fspath(store)
    own = resolve({"store": named, **settings}, trust_folder=trust_folder).settings
    changes = Changes(settings.get("llm_model"), settings.get("stance_model"), settings.get("rerank"), verdict=verdict)
    checker = Checker(own, recipe=resolved(own, changes), judge=judge)
    if reranker is not None:
        checker.rerank_with(reranker)
    return checker


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f".{_HOMES.get(name, 'core.types')}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
