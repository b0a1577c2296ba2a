"""Stores, retrievers and fusion. Light to import: tantivy, torch and elasticsearch come when they are needed."""

from .filters import Filter, before, parse_filter
from .open import open_store
from .store import Chunking, Embedding, Layout, Store, StoreInfo

__all__ = [
    "Chunking",
    "Embedding",
    "Filter",
    "Layout",
    "Store",
    "StoreInfo",
    "before",
    "open_store",
    "parse_filter",
]
