"""The store in a folder."""

from .store import LocalStore

__all__ = ["LocalStore"]
