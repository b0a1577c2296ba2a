"""Opens what an ingest works with: the recipe that it provides for, the store, and the encoders.

with Runtime(settings) as runtime, open_ingest(runtime, recipe_to_ingest(settings, "mine.toml")) as opened:
    report = ingest(["corpus.jsonl"], opened.store, opened.encoders, IngestOptions())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ..core.adjust import resolved
from ..core.recipe import Recipe, load_recipe
from ..core.runtime import Runtime
from ..core.settings import Settings
from ..ingest import Encoders
from ..search import Store, open_store
from .encoders import open_encoders
from .needs import needs_of


@dataclass(frozen=True, slots=True)
class OpenedIngest:
    store: Store
    encoders: Encoders


def recipe_to_ingest(
    settings: Settings, name: str | None = None, replace: Mapping[str, str] | None = None
) -> Recipe | None:
    """The recipe whose fields an ingest adds to the store; None if a plain store has everything.

    Without a name it is the settings' recipe, but only if that searches what a plain store lacks. Raises as
    `load_recipe` does.
    """
    if name is None:
        recipe = resolved(settings)
        return recipe if needs_of(recipe).own or not recipe.ingest.titles else None
    return load_recipe(name, replace or {})


@contextmanager
def open_ingest(
    runtime: Runtime,
    recipe: Recipe | None = None,
    dense: bool | None = None,
) -> Iterator[OpenedIngest]:
    """The settings' store, and the encoders of its fields and the recipe's. Closes the store at the end.

    `dense` and the errors are those of `open_encoders`.
    """
    with open_store(runtime.settings) as store:
        yield OpenedIngest(store, open_encoders(runtime, store.info(), recipe, dense))
