"""Retrieval over memory-mapped files: of vectors (float32), and of the tokens of sparse vectors.

Scores are exact. In a large field, codes say which vectors are read for them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from .codes import READ, Codes, codes_file, open_codes
from .files import Damaged, Verified, share, sync_folder

if TYPE_CHECKING:
    from .records import VectorBlock

ROWS_AT_ONCE = 1 << 22
"""How many scores are in memory at a time: for 64 claims, those of 65,536 vectors."""
NARROW = 8
"""If at most one in so many segments may be found, only their rows are read."""
BLOCK_BYTES = 1 << 18
"""The largest block with a checksum."""


def digest(data: NDArray[np.generic] | bytes) -> bytes:
    return xxhash.xxh3_64_digest(data if isinstance(data, bytes) else data.data)


def write_rows(path: Path, first_row: int, vectors: NDArray[np.float32]) -> list[tuple[int, int, bytes]]:
    """Write vectors (shape [rows, dimensions]) from a row on, sync them to the disk, and return their blocks.

    A block is (first row, rows, checksum). Rows beyond those that the database counts were left by a crash and are
    overwritten.
    """
    vectors = np.ascontiguousarray(vectors, np.float32)
    is_new = not path.exists()
    # Symbolic links are not followed: the store never makes one.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        file.seek(first_row * vectors.shape[1] * 4)
        file.write(vectors.data)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        share(path, path.parent)
        sync_folder(path.parent)
    size = max(1, BLOCK_BYTES // (4 * vectors.shape[1]))
    parts = ((first, vectors[first : first + size]) for first in range(0, len(vectors), size))
    return [(first_row + first, len(part), digest(part)) for first, part in parts]


@dataclass(frozen=True, slots=True)
class Blocks:
    """The checksums of a mapped file by blocks, which are compared before they are first read.

    Block i is `data[edges[i] : edges[i + 1]]` with the checksum `digests[i]` (8 bytes).
    """

    path: Path
    data: NDArray[np.uint8]
    edges: NDArray[np.int64]
    digests: NDArray[np.void]
    seen: NDArray[np.bool_]

    def check(self, begins: ArrayLike, ends: ArrayLike) -> None:
        """Raise Damaged unless the blocks of these runs of bytes match their checksums."""
        if self.seen[: len(self.digests)].all():
            return
        changes = np.zeros(len(self.edges) + 1, np.int64)
        filled = np.asarray(begins) < np.asarray(ends)
        np.add.at(changes, np.searchsorted(self.edges, np.asarray(begins)[filled], "right") - 1, 1)
        np.add.at(changes, np.searchsorted(self.edges, np.asarray(ends)[filled], "left"), -1)
        wanted = np.cumsum(changes)[: len(self.digests)] > 0
        for i in np.flatnonzero(wanted & ~self.seen[: len(self.digests)]).tolist():
            if digest(self.data[self.edges[i] : self.edges[i + 1]]) != self.digests[i].tobytes():
                raise Damaged(self.path, f"does not match its checksum in bytes {self.edges[i]} to {self.edges[i + 1]}")
            self.seen[i] = True

    def check_all(self) -> None:
        self.check([self.edges[0]], [self.edges[-1]])


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The vectors of one generation of a store.

    `rows` has shape [rows, dimensions]. A segment is the run of rows of one document, or the row of one unit. It starts
    at `starts[i]` and belongs to `owners[i]`, a seq or a unit's id, in ascending order. `seqs[i]` is the seq of the
    document, or -1 if it was removed. Rows are compared with the checksums of `blocks`, or with those of `codes`,
    before they are first read.
    """

    rows: NDArray[np.float32]
    starts: NDArray[np.int64]
    owners: NDArray[np.int64]
    seqs: NDArray[np.int64]
    blocks: Blocks | None = None
    codes: Codes | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        dimensions: int,
        blocks: Sequence[VectorBlock],
        alive: NDArray[np.bool_],
        verified: Verified,
        bits: int = 0,
    ) -> VectorIndex:
        """Map the file. `alive[seq]`: whether the document exists. Raises Damaged if the file is too short.

        Without its last `bits`, the owner of a row is the seq of its document.
        """
        if not blocks:
            nothing = np.zeros(0, np.int64)
            return cls(np.zeros((0, dimensions), np.float32), nothing, nothing, nothing)
        owners = np.concatenate([block.owners for block in blocks])
        try:
            rows = np.memmap(path, np.float32, "r", shape=(len(owners), dimensions))
        except (OSError, ValueError) as error:
            if isinstance(error, PermissionError):
                raise
            raise Damaged(path, "is missing or cut short") from error
        edges = np.array([block.first for block in blocks] + [len(owners)], np.int64) * (4 * dimensions)
        digests = np.frombuffer(b"".join(block.digest for block in blocks), "V8")
        data = np.asarray(rows).reshape(-1).view(np.uint8)
        checks = Blocks(path, data, edges, digests, verified.of_blocks(path.name, len(blocks)))
        starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        seqs = owners[starts] >> bits
        codes = open_codes(path.with_name(codes_file(path.name)), rows, checks) if cls is VectorIndex else None
        return cls(rows, starts, owners[starts], np.where(alive[seqs], seqs, -1), checks, codes)

    def owner_of_rows(self) -> NDArray[np.int64]:
        """The owner of each row; -1 if its document was removed."""
        owners = np.where(self.seqs < 0, -1, self.owners)
        return np.repeat(owners, np.diff(np.r_[self.starts, len(self.rows)]))

    def search(
        self, queries: NDArray[np.float32], depth: int, allowed: NDArray[np.bool_] | None = None
    ) -> list[list[tuple[int, float]]]:
        """The `depth` owners with the highest scores for each query (shape [queries, dimensions]): (owner, score).

        Scores are cosines, a document's that of its best passage. `allowed[seq]` says whether a document, or its
        units, may be found. With codes, a few of the best are missed: `benchmarks/codes.py` found
        .992 of the first 100 among 10^6 vectors.
        """
        wanted = self.seqs >= 0 if allowed is None else allowed[self.seqs] & (self.seqs >= 0)
        some = np.flatnonzero(wanted)
        if self.codes is not None and READ * depth * NARROW <= len(some):
            row_wanted = np.repeat(wanted, self._lengths(np.arange(len(self.starts))))
            near = (self.codes.near(query, depth, row_wanted) for query in queries)
            # Each with all of its rows, so that a document's score is that of its best passage.
            segments = (np.searchsorted(self.starts, rows, "right") - 1 for rows in near)
            return [
                self._ranked(query[None], depth, wanted, found[np.r_[True, found[1:] != found[:-1]]])[0]
                for query, found in zip(queries, segments, strict=True)
            ]
        everything = np.arange(len(self.starts))
        read = some if len(some) * NARROW <= len(everything) else everything
        return self._ranked(queries, depth, wanted, read)

    def _ranked(
        self, queries: NDArray[np.float32], depth: int, wanted: NDArray[np.bool_], read: NDArray[np.int64]
    ) -> list[list[tuple[int, float]]]:
        """See `search`: of the segments to read, which are ascending."""
        best: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
        for segments in self._runs(read, max(1, ROWS_AT_ONCE // len(queries))):
            scores = self._segment_scores(queries, segments)
            scores[:, ~wanted[segments]] = -np.inf
            if scores.shape[1] > depth:
                top = _best(scores, depth)
            else:
                top = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
            best.append((np.take_along_axis(scores, top, axis=1), segments[top]))
        if not best:
            return [[] for _ in queries]
        best_scores = np.concatenate([scores for scores, _ in best], axis=1)
        best_segments = np.concatenate([segments for _, segments in best], axis=1)
        # Equal scores are in the order of ingestion.
        order = np.lexsort((best_segments, -best_scores), axis=1)[:, :depth]
        best_scores = np.take_along_axis(best_scores, order, axis=1)
        best_segments = np.take_along_axis(best_segments, order, axis=1)
        return [
            [
                (owner, score)
                for owner, score in zip(self.owners[segments].tolist(), scores.tolist(), strict=True)
                if score > -np.inf
            ]
            for segments, scores in zip(best_segments, best_scores, strict=True)
        ]

    def _runs(self, segments: NDArray[np.int64], rows_at_once: int) -> list[NDArray[np.int64]]:
        """These segments, ascending, in runs of about `rows_at_once` rows."""
        ends = np.cumsum(self._lengths(segments))
        cuts = np.searchsorted(ends, np.arange(rows_at_once, ends[-1] if len(ends) else 0, rows_at_once), "right")
        # Equal cuts make empty runs. np.unique would drop them, but imports numpy.ma, which takes 10 ms.
        return [run for run in np.split(segments, cuts) if len(run)]

    def _lengths(self, segments: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many rows each segment has."""
        return np.append(self.starts, len(self.rows))[segments + 1] - self.starts[segments]

    def _segment_scores(self, queries: NDArray[np.float32], segments: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each of these segments, which are ascending: shape [queries, segments]."""
        begins, lengths = self.starts[segments], self._lengths(segments)
        firsts = np.cumsum(lengths) - lengths
        if int(segments[-1] - segments[0]) == len(segments) - 1:
            begins, ends = begins[:1], begins[-1:] + lengths[-1:]
            rows = self.rows[int(begins[0]) : int(ends[0])]
            self._check(begins, ends)
        else:
            numbers = np.repeat(begins - firsts, lengths) + np.arange(int(lengths.sum()))
            if self.codes is None:
                self._check(begins, begins + lengths)
            else:
                # Of blocks that are spread over the file, each would be read whole for a row of it.
                several = self.codes.unlike(self.rows, numbers)
                self._check(several, several + 1)
            rows = self.rows[numbers]
        return self._reduced(rows, firsts, queries)

    def _reduced(
        self, rows: NDArray[np.float32], firsts: NDArray[np.int64], queries: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The score of each segment for each query. The rows of segment i begin at `firsts[i]`."""
        scores = (rows @ queries.T).T
        return scores if len(rows) == len(firsts) else np.maximum.reduceat(scores, firsts, axis=1)

    def _check(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Raise Damaged unless the blocks of these runs of rows match their checksums."""
        if self.blocks is not None:
            width = self.rows.shape[1] * 4
            self.blocks.check(begins * width, ends * width)


class SparseIndex(VectorIndex):
    """The sparse vectors of one generation: a row is a token's id and its weight, a segment the vector of a document.

    A query has a weight for each token of the vocabulary. Documents whose dot product is 0 are not found.
    """

    def _reduced(
        self, rows: NDArray[np.float32], firsts: NDArray[np.int64], queries: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        tokens, weights = rows[:, 0].astype(np.intp), rows[:, 1]
        scores = np.stack([np.add.reduceat(query.take(tokens) * weights, firsts) for query in queries])
        return np.where(scores > 0, scores, -np.inf).astype(np.float32)


def _best(scores: NDArray[np.float32], depth: int) -> NDArray[np.intp]:
    """The places of the `depth` best of each row of scores, in any order. Of equal ones at the end, the first count."""
    top = np.argpartition(scores, -depth, axis=1)[:, -depth:]
    worst = np.take_along_axis(scores, top, axis=1).min(axis=1)
    more = np.count_nonzero(scores >= worst[:, None], axis=1) > depth
    for row in np.flatnonzero(more & (worst > -np.inf)):
        equal = np.flatnonzero(scores[row] == worst[row])
        top[row] = np.append(np.flatnonzero(scores[row] > worst[row]), equal)[:depth]
    return top
