"""What the database of a local store remembers of the store's other files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...layout import Embedding, Layout
from ...types import Entry, Vector
from .sparse import Named

DOCUMENTS = ""
"""The name of the index of words of whole documents; those of units are named like their granularities."""
UNIT_BITS = 24
"""A unit's id is the seq of its document and, in so many bits, its number."""


def unit_id(seq: int, number: int) -> int:
    """By which the indices know a unit. The seq of its document is `unit_id >> UNIT_BITS`."""
    return seq << UNIT_BITS | number


def unit_number(unit: int) -> int:
    return unit & ((1 << UNIT_BITS) - 1)


def unit_vectors(granularity: str) -> str:
    """The name of the field of the vectors of units."""
    return f"units {granularity}"


def vector_fields(layout: Layout) -> dict[str, tuple[Embedding, int]]:
    """Each field of vectors, of documents and of units: its model, and `UNIT_BITS` where its rows are units' or 0."""
    fields = {name: (one.embedding, 0) for name, one in layout.dense.items()}
    units = {unit_vectors(name): one.embedding for name, one in layout.units.items()}
    return fields | {name: (embedding, UNIT_BITS) for name, embedding in units.items() if embedding is not None}


def vectors_of(entry: Entry) -> dict[str, list[tuple[int, Vector]]]:
    """What of a document goes into each field of vectors: vectors, each with its unit's number or 0."""
    found = {name: [(0, passage.vector) for passage in passages] for name, passages in entry.passages.items()}
    for name, units in entry.units.items():
        found[unit_vectors(name)] = [(one.unit.number, one.vector) for one in units if one.vector is not None]
    return {name: rows for name, rows in found.items() if rows}


@dataclass(frozen=True, slots=True)
class Words:
    """An index of words of a store: its folder, the checksums of its files, and what it covers.

    It has the documents up to the seq `last` without those that the first `gone` rows of the table name.
    """

    folder: str
    files: Mapping[str, str]
    last: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A field's file of vectors: how many of its rows count, and in how many blocks."""

    file: str
    rows: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class SparseState:
    """How many rows the table of sparse vectors has, and the segments that were made of the first of them."""

    batches: int = 0
    segments: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """Rows of a file of vectors from `first` on: whose each is (a seq or a unit's id), and their checksum."""

    first: int
    owners: NDArray[np.int64]
    digest: bytes


@dataclass(frozen=True, slots=True)
class Counts:
    """`highest` is the highest seq that ever was; `gone` of them are no documents any more, in so many rows.

    `ids` is a checksum over the ids of all documents.
    """

    highest: int = 0
    gone: int = 0
    rows: int = 0
    ids: int = 0
