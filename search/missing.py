"""Decides, in one place for all stores, what a store lacks for a retriever."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ..core.errors import NotFound
from ..core.layout import Layout
from ..core.stages import Retriever

MOST_NAMED = 3
"""How many sources of an ingest a notice names."""


def no_store(name: str) -> NotFound:
    """The error for a store that does not exist, with what to do."""
    return NotFound(
        f"there is no store {name} (ccheck index list shows those that exist). Create it with ccheck ingest FILE "
        f"--store {name}, or run ccheck demo, which makes one from sample papers"
    )


def unfinished(store: str, reading: Sequence[str]) -> tuple[str, ...]:
    """Returns the notice about a store whose last ingest has not ended. `reading` are the sources of that ingest."""
    if not reading:
        return ()
    files = " ".join(map(shlex.quote, reading)) if len(reading) <= MOST_NAMED else "FILE..."
    return (
        f"the last ingest into {store} did not finish, or is still running, so documents may be missing. To finish it, "
        f"run the same command again: ccheck ingest {files} --store {shlex.quote(store)}",
    )


def not_held(store: str, what: str, command: str | None = None) -> NotFound:
    """The error for what a store lacks, with the `command` that adds it."""
    how = "with an embedding model" if what == "vectors" else "for a recipe that uses them"
    example = "--model MODEL" if what == "vectors" else "--recipe NAME"
    command = command or f"ccheck ingest FILE {example} --store {store}"
    return NotFound(f"the store {store} has no {what}. To add them, ingest {how}: {command}")


def refuse_missing(retrievers: Mapping[str, Retriever], layout: Layout, store: str, command: str | None = None) -> None:
    """Raise NotFound if a store with this layout lacks what a retriever searches."""
    for retriever in retrievers.values():
        if (what := retriever.searches.missing(layout)) is not None:
            raise not_held(store, what, command)
