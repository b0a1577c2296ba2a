"""Scopes: the documents that pass the filters of a call and of its queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...core.types import Filter, Query
from .database import Database
from .snapshot import Snapshot

KEPT = 64
"""How many masks are kept for the next claims."""


class Changed(Exception):
    """The database is no longer as the snapshot has it."""


def scopes(queries: Sequence[Query], filters: Sequence[Filter]) -> dict[tuple[Filter, ...], list[int]]:
    """Each scope (the filters of the call and of a query) with the places of the queries that share it."""
    found: dict[tuple[Filter, ...], list[int]] = {}
    for place, query in enumerate(queries):
        found.setdefault(tuple(dict.fromkeys((*filters, *query.filters))), []).append(place)
    return found


class Masks:
    """The documents of the most recent scopes. For one thread at a time."""

    def __init__(self) -> None:
        self._generation = -1
        self._masks: dict[tuple[Filter, ...], NDArray[np.bool_]] = {}

    def of(self, scope: tuple[Filter, ...], snapshot: Snapshot, database: Database) -> NDArray[np.bool_] | None:
        """mask[seq]: whether a document passes; None if all do.

        Raises Changed if the database is no longer as the snapshot has it.
        """
        if not scope:
            return None
        if self._generation != snapshot.generation:
            self._generation, self._masks = snapshot.generation, {}
        mask = self._masks.pop(scope, None)
        if mask is None:
            with database.reading():
                if database.generation != snapshot.generation:
                    raise Changed
                mask = np.zeros(len(snapshot.alive), np.bool_)
                mask[database.passing(scope)] = True
        self._masks[scope] = mask
        if len(self._masks) > KEPT:
            del self._masks[next(iter(self._masks))]
        return mask
