"""Opens the record that belongs to a store."""

from __future__ import annotations

from ..search import Store
from ..search.local import LocalStore
from .record import FileRecord, Record


def open_record(store: Store) -> Record | None:
    """The record beside a local store's folder, as NAME.checks.sqlite: a store that is deleted leaves it, and a copied
    one does not carry claims along. Nothing is made yet."""
    if isinstance(store, LocalStore):
        return FileRecord(store.path.with_name(f"{store.path.name}.checks.sqlite"))
    return None
