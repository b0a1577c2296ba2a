"""The database records of a local store about the store's other files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...core.layout import Embedding, Layout
from ...core.types import Entry, Vector
from .sparse import Named

DOCUMENTS = ""
"""The name of the BM25 index of whole documents. Those of units have the names of their granularities."""
UNIT_BITS = 24
"""A unit's id is the seq of its document followed by the unit's number in so many bits."""


def unit_id(seq: int, number: int) -> int:
    """The id of a unit in the indices. The seq of its document is `unit_id >> UNIT_BITS`."""
    return seq << UNIT_BITS | number


def unit_number(unit: int) -> int:
    return unit & ((1 << UNIT_BITS) - 1)


def unit_vectors(granularity: str) -> str:
    """The name of the field of the vectors of units."""
    return f"units {granularity}"


def vector_fields(layout: Layout) -> dict[str, tuple[Embedding, int]]:
    """All fields of vectors: their models, with `UNIT_BITS` for vectors of units and 0 for others."""
    fields = {name: (one.embedding, 0) for name, one in layout.dense.items()}
    units = {unit_vectors(name): one.embedding for name, one in layout.units.items()}
    return fields | {name: (embedding, UNIT_BITS) for name, embedding in units.items() if embedding is not None}


def vectors_of(entry: Entry) -> dict[str, list[tuple[int, Vector]]]:
    """A document's vectors by field, each with the number of its unit or 0."""
    found = {name: [(0, passage.vector) for passage in passages] for name, passages in entry.passages.items()}
    for name, units in entry.units.items():
        found[unit_vectors(name)] = [(one.unit.number, one.vector) for one in units if one.vector is not None]
    return {name: rows for name, rows in found.items() if rows}


@dataclass(frozen=True, slots=True)
class Words:
    """A BM25 index: its folder, the checksums of its files, and what it covers.

    It has the documents up to the seq `last`, without those in the first `gone` rows of the table of removed ones.
    """

    folder: str
    files: Mapping[str, str]
    last: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A field's file of vectors: how many of its rows are in use, and in how many blocks."""

    file: str
    rows: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class SparseState:
    """How many rows the table of sparse vectors has, and the segments made from the first of them."""

    batches: int = 0
    segments: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """A block of a file of vectors: its first row, the owner of each row (a seq or a unit's id), its checksum."""

    first: int
    owners: NDArray[np.int64]
    digest: bytes


@dataclass(frozen=True, slots=True)
class Counts:
    """`highest` is the highest seq so far. `gone` seqs are of removed documents, noted in `rows` rows.

    `ids` is a checksum over the ids of all documents.
    """

    highest: int = 0
    gone: int = 0
    rows: int = 0
    ids: int = 0
