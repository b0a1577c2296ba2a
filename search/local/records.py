"""Documents as a local store keeps them, and its records about its other files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from ...core.layout import Layout
from ...core.types import Entry, Unit, Vector

DOCUMENTS = ""
"""The name of the BM25 index of whole documents. Those of units have the names of their granularities."""
SPARSE = "sparse"
"""The name of the field of sparse vectors."""
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


def vector_fields(layout: Layout) -> dict[str, tuple[int, int]]:
    """All fields of vectors: how many values a row has, and `UNIT_BITS` for vectors of units or 0 for others."""
    fields = {name: (one.embedding.dimensions, 0) for name, one in layout.dense.items()}
    for name, units in layout.units.items():
        if units.embedding is not None:
            fields[unit_vectors(name)] = units.embedding.dimensions, UNIT_BITS
    return fields | ({SPARSE: (2, 0)} if layout.sparse is not None else {})


def vectors_of(entry: Entry) -> dict[str, tuple[Sequence[int], NDArray[np.float32]]]:
    """A document's rows by field: the number of the unit of each, or 0, and their values."""
    found: dict[str, tuple[Sequence[int], list[Vector]]] = {}
    for name, passages in entry.passages.items():
        found[name] = [0] * len(passages), [passage.vector for passage in passages]
    for name, units in entry.units.items():
        rows = {one.unit.number: one.vector for one in units if one.vector is not None}
        found[unit_vectors(name)] = list(rows), list(rows.values())
    made = {name: (numbers, np.stack(rows)) for name, (numbers, rows) in found.items() if rows}
    if entry.sparse is not None and len(entry.sparse.ids):
        tokens = np.stack([entry.sparse.ids, entry.sparse.weights], axis=1).astype(np.float32)
        made[SPARSE] = [0] * len(tokens), tokens
    return made


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


# -- documents


def id_sum(seq: int, id_: str) -> int:
    """Returns the value that a document adds to the checksum over all ids."""
    return xxhash.xxh3_64_intdigest(id_.encode("utf-8", "surrogateescape"), seq)


def packed_units(entry: Entry) -> Mapping[str, Sequence[tuple[int, int]]]:
    """The units of a document as JSON values: where each begins and ends in the text."""
    return {name: [(one.unit.start, one.unit.end) for one in units] for name, units in entry.units.items() if units}


def unpacked_units(granularity: str, text: str, packed: str) -> tuple[Unit, ...]:
    """One granularity of a document with this text, from the JSON of `packed_units`."""
    places = json.loads(packed).get(granularity, ())
    return tuple(Unit(granularity, number, start, end, text[start:end]) for number, (start, end) in enumerate(places))
