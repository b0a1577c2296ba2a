"""Opens the record that belongs to a store."""

from __future__ import annotations

from pathlib import Path

from ..core.settings import Settings
from ..search import Store
from .record import FileRecord, Record


def open_record(store: Store, settings: Settings) -> Record | None:
    """Returns the record of a store without creating anything.

    Beside a local store's folder it is NAME.checks.sqlite: a store that is deleted leaves it, and a copied one does not
    carry claims along. For a store on Elasticsearch it is an index there. None for another kind of store.
    """
    folder = getattr(store, "path", None)
    if isinstance(folder, Path):
        return FileRecord(folder.with_name(f"{folder.name}.checks.sqlite"))
    from ..search.elastic import ElasticStore

    if isinstance(store, ElasticStore):
        from .record_elastic import ElasticRecord

        return ElasticRecord(store, settings)
    return None
