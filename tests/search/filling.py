"""How tests of stores put documents into one."""

from __future__ import annotations

from collections.abc import Sequence

from ccheck.core.layout import Layout
from ccheck.core.types import Entry
from ccheck.search import Store


def fill(store: Store, layout: Layout, entries: Sequence[Entry]) -> None:
    """Prepare a store for a layout, and write to it."""
    store.prepare(layout)
    write(store, entries)


def write(store: Store, entries: Sequence[Entry]) -> None:
    """Store entries, none of which may be refused, and make them searchable."""
    assert store.upsert(entries) == {}
    store.publish()
