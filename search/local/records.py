"""What the database of a local store remembers of the store's other files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .sparse import Named


@dataclass(frozen=True, slots=True)
class Words:
    """The index of words of a store: its folder, the checksums of its files, and what it covers.

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
    """Rows of a file of vectors from `first` on: the document of each, and their checksum."""

    first: int
    seqs: NDArray[np.int64]
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
