"""Stores and what they are asked. Light to import: tantivy and elasticsearch come when they are needed."""

from ..core.types import Filter
from .filters import parse_filter
from .open import open_elastic_store, open_local_store, open_store
from .store import Ranks, Search, Store, StoreInfo, answer

__all__ = [
    "Filter",
    "Ranks",
    "Search",
    "Store",
    "StoreInfo",
    "answer",
    "open_elastic_store",
    "open_local_store",
    "open_store",
    "parse_filter",
]
