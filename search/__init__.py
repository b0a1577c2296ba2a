"""Stores and what they are asked. Light to import: tantivy and elasticsearch come when they are needed."""

from ..types import Filter
from .filters import before, parse_filter
from .open import open_store
from .store import Store, StoreInfo

__all__ = ["Filter", "Store", "StoreInfo", "before", "open_store", "parse_filter"]
