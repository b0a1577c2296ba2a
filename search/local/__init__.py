"""The store in a folder."""

from .files import DATABASE
from .store import LocalStore

__all__ = ["DATABASE", "LocalStore"]
