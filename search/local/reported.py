"""Errors of a local store, in words that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from ...core.errors import Incomplete, NotFound
from .bm25 import is_panic
from .files import DATABASE, Damaged
from .opening import is_damage

if TYPE_CHECKING:
    from .store import LocalStore

P = ParamSpec("P")
R = TypeVar("R")


def reported(
    method: Callable[Concatenate[LocalStore, P], R],
) -> Callable[Concatenate[LocalStore, P], R]:
    """Turn what SQLite, tantivy and the disk raise into errors that say what to do."""

    @wraps(method)
    def call(self: LocalStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except Damaged as error:
            raise error.in_store(self.name) from error
        except PermissionError as error:
            raise NotFound(
                f"the store {self.name} can't be used: {error.strerror} ({error.filename}). Fix the permissions of its "
                "folder, or choose another store with --store"
            ) from error
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, sqlite3.Error) and is_damage(error):
                raise Damaged(self.path / DATABASE, f"is broken: {error}").in_store(self.name) from error
            raise Incomplete(
                f"the store {self.name} failed: {error}. What was stored so far is safe. Free some disk space or fix "
                "the permissions of its folder, then run the same command again"
            ) from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise Damaged(self.path, f"made tantivy fail: {error}", derived=True).in_store(self.name) from error

    return call
