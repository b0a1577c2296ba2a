"""Why nothing was found for a claim: what each stage left, with counts."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from ..core.analysis import terms
from ..search import Filter, Store
from ..search.filters import PUBLISHED, refuse_unfit
from ..search.store import no_documents
from .plan import DEGRADED
from .run import Run

_WORD = re.compile(r"\w+")
MOST_WORDS = 8
"""How many words of a claim are named."""


def why_nothing(run: Run) -> Callable[[str], str]:
    """Says why no stage found anything for a claim's text. The store is asked once, when it is first needed.

    What it returns raises NotFound for an empty store, and UsageError for filters that can pass no document.
    """
    store, filters = run.store, run.filters
    said = " and ".join(map(str, filters))

    @functools.cache
    def counted() -> tuple[int, int]:
        total = store.count()
        if not total:
            raise no_documents(store.name)
        refuse_unfit(filters, store.fields() if filters else {}, store.name)
        return total, store.count(filters) if filters else total

    def why(text: str) -> str:
        total, passing = counted()
        found = _filtered_out(store, filters, total) if not passing else found_nothing(text, total, passing)
        return f"{DEGRADED}, and what could be searched has nothing: {found}" if run.plan.degraded else found

    def found_nothing(text: str, total: int, passing: int) -> str:
        words = [word for word in dict.fromkeys(_WORD.findall(text)) if terms(word)]
        only_words = all(stage.by_words for stage in run.plan.retrievers.values())
        if only_words and not words:
            return "the claim has only words that are too common to search for"
        of, before = f"the {total:,} documents", ""
        if filters:
            of, before = f"these {passing:,}", f"{passing:,} of {total:,} documents pass {said}, but "
        if only_words:
            named = ", ".join(words[:MOST_WORDS]) + (" …" if len(words) > MOST_WORDS else "")
            return f"{before}none of {of} has a word of the claim ({named})"
        return f"{before}{' and '.join(run.plan.retrievers)} found none of {of}"

    return why


def _filtered_out(store: Store, filters: Sequence[Filter], total: int) -> str:
    said = f"none of {total:,} documents passes {' and '.join(map(str, filters))}"
    if len(filters) > 1:
        said += ": " + ", ".join(f"{one} leaves {store.count([one]):,}" for one in filters)
    if any(one.field == PUBLISHED for one in filters):
        # Every date is after this one.
        undated = total - store.count([Filter(PUBLISHED, ">", "0000-01-01")])
        said += f". {undated:,} of them have no date" if undated else ""
    return said
