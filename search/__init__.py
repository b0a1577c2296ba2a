"""Stores and what they are asked. Light to import: tantivy and elasticsearch come when they are needed."""

from ..core.types import Filter
from .filters import after, before, parse_filter
from .open import open_elastic_store, open_local_store, open_store
from .store import Store, StoreInfo

__all__ = [
    "Filter",
    "Store",
    "StoreInfo",
    "after",
    "before",
    "open_elastic_store",
    "open_local_store",
    "open_store",
    "parse_filter",
]
