"""Retrieval over memory-mapped files: of vectors (float32), and of the tokens of sparse vectors.

Scores are exact. In a large field, one-bit codes of the vectors say in milliseconds which of a million rows are read
for them: RaBitQ (Gao and Long, SIGMOD 2024, equation 20) without its random rotation, which gained .01 of recall or
less in the first look. A row x, less the centre c, is coded by its signs. Three looks, each at fewer rows: the
differing bits of all of them; for the closest, an estimate of the dot product with the whole query; for the best of
these, the vectors themselves. So only which rows are looked at can err.

The codes of a chunk of rows are written once, at the end of a file beside the vectors, and are good if their checksum
is that of themselves and of the vectors' own checksums. Rows without good codes are always read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from .files import Damaged, VectorBlock, Verified, share, sync_folder

CHUNK = 1 << 15
"""Rows that are coded together."""
LEAST_ROWS = 200_000
"""Smaller fields are searched exactly: reading all of their vectors takes no longer."""
ESTIMATED, READ = 160, 20
"""How many rows are estimated, and how many read, for each document that is asked for: `benchmarks/codes.py`."""


@dataclass(frozen=True, slots=True)
class Codes:
    """The good codes of a field's rows. `chunks` numbers them: record i has the rows from `chunks[i] * CHUNK` on.

    `checked[row]`: whether the row was compared with its own checksum.
    """

    centre: NDArray[np.float32]
    records: NDArray[np.void]
    chunks: NDArray[np.int64]
    checked: NDArray[np.bool_]

    def near(self, query: NDArray[np.float32], depth: int, row_wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The wanted rows that may be among the `depth` best, in ascending order, with all that have no codes."""
        turned = query - self.centre
        closest = self._closest(_signs(turned[None])[0], ESTIMATED * depth, row_wanted)
        best = closest
        if len(closest) > READ * depth:
            estimates = self._estimates(closest, turned)
            best = closest[np.argpartition(estimates, -READ * depth)[-READ * depth :]]
        rest = row_wanted.copy()
        for chunk in self.chunks:
            rest[chunk * CHUNK : (chunk + 1) * CHUNK] = False
        rest[self.chunks[best // CHUNK] * CHUNK + best % CHUNK] = True
        return np.flatnonzero(rest)

    def _closest(self, code: NDArray[np.uint64], most: int, row_wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The places of about `most` wanted rows with the fewest bits that differ from the code."""
        bits, unwanted = self.records["bits"], 64 * len(code) + 1
        distances = np.zeros((len(self.chunks), CHUNK), np.uint16)
        differ, counted = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint8)
        for i, chunk in enumerate(self.chunks):
            for word, of_query in enumerate(code):
                np.bitwise_count(np.bitwise_xor(bits[i, word], of_query, out=differ), out=counted)
                distances[i] += counted
            wanted = row_wanted[chunk * CHUNK : (chunk + 1) * CHUNK]
            if not wanted.all():
                distances[i][~wanted] = unwanted
        flat = distances.reshape(-1)
        upto = np.cumsum(np.bincount(flat, minlength=unwanted + 1)[:unwanted])
        return np.flatnonzero(flat <= min(int(np.searchsorted(upto, most)), unwanted - 1))

    def _estimates(self, places: NDArray[np.int64], turned: NDArray[np.float32]) -> NDArray[np.float32]:
        """The estimated scores of rows, less what is the same for all of them."""
        chunk, row = np.divmod(places, CHUNK)
        codes = np.ascontiguousarray(self.records["bits"][chunk, :, row])
        signs = np.unpackbits(codes.view(np.uint8), axis=1, count=len(turned)).astype(np.float32)
        dots = 2 * (signs @ turned) - turned.sum()
        return np.asarray(dots * self.records["scale"][chunk, row] + self.records["offset"][chunk, row])

    def unlike(self, rows: NDArray[np.float32], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of these rows, by number, that have no codes, or are not as they were coded."""
        coded = np.isin(numbers // CHUNK, self.chunks)
        new = numbers[coded & ~self.checked[numbers]]
        expected = self.records["digest"][np.searchsorted(self.chunks, new // CHUNK), new % CHUNK].tolist()
        same = [xxhash.xxh32_intdigest(rows[n].data) == one for n, one in zip(new.tolist(), expected, strict=True)]
        self.checked[new[np.array(same, np.bool_)]] = True
        return numbers[~self.checked[numbers]]


def codes_file(vectors: str) -> str:
    """The name of the file of codes for a file of vectors."""
    return Path(vectors).with_suffix(".codes").name


def open_codes(blocks: Blocks) -> Codes | None:
    """The codes of the rows in this file of vectors. None if there are too few rows, or no good codes."""
    written = _written(blocks)
    if written is None:
        return None
    centre, records = written
    good = [i for i, one in enumerate(records) if one["check"].tobytes() == _check(centre, one, blocks, i)]
    if not good:
        return None
    # A view, and no copy, where all are good.
    kept = records if len(good) == len(records) else records[good]
    return Codes(centre, kept, np.array(good, np.int64), np.zeros(len(blocks.rows), np.bool_))


def check_codes(blocks: Blocks) -> None:
    """Raises Damaged, derived, if codes are not as they were written. That makes a search slower, and no worse."""
    written, codes = _written(blocks), open_codes(blocks)
    if written is not None and (codes is None or len(codes.chunks) < len(written[1])):
        raise Damaged(blocks.codes, "does not match its checksum", derived=True)


def _written(blocks: Blocks) -> tuple[NDArray[np.float32], NDArray[np.void]] | None:
    """The centre and the records of a file, as they are. None if there are too few rows, or no records."""
    path, rows = blocks.codes, blocks.rows
    dimensions, kind = rows.shape[1], _record(rows.shape[1])
    if len(rows) < LEAST_ROWS:
        return None
    try:
        count = min(len(rows) // CHUNK, (path.stat().st_size - 4 * dimensions) // kind.itemsize)
        if count < 1:
            return None
        centre = np.fromfile(path, np.float32, dimensions)
        return centre, np.memmap(path, kind, "r", offset=4 * dimensions, shape=(count,))
    except OSError:  # there is none, or who searches may not read it
        return None


def write_codes(blocks: Blocks) -> None:
    """Code the chunks of rows that have no good codes yet. Only the one writer may call this. Raises Damaged."""
    known, rows = open_codes(blocks), blocks.rows
    missing = sorted(set(range(len(rows) // CHUNK)) - set(known.chunks.tolist() if known is not None else []))
    if not missing:
        return
    dimensions, kind = rows.shape[1], _record(rows.shape[1])
    if known is None:
        blocks.codes.unlink(missing_ok=True)
        blocks.check([0], [CHUNK])
        centre = rows[:CHUNK].mean(axis=0, dtype=np.float64).astype(np.float32)
    else:
        centre = known.centre
    with _writing(blocks.codes) as file:
        file.write(centre.data)
        for chunk in missing:
            blocks.check([chunk * CHUNK], [(chunk + 1) * CHUNK])
            record = _coded(rows[chunk * CHUNK : (chunk + 1) * CHUNK], centre, kind)
            record["check"] = np.void(_check(centre, record, blocks, chunk))
            file.seek(4 * dimensions + chunk * kind.itemsize)
            file.write(record.tobytes())


def _record(dimensions: int) -> np.dtype[np.void]:
    """A chunk on the disk. `bits` has a row's words one below the other: they are read word by word."""
    words = -(-dimensions // 64)
    return np.dtype(
        [
            ("bits", "<u8", (words, CHUNK)),
            ("scale", "<f4", (CHUNK,)),
            ("offset", "<f4", (CHUNK,)),
            ("digest", "<u4", (CHUNK,)),
            ("check", "V8"),
        ]
    )


def _signs(turned: NDArray[np.float32]) -> NDArray[np.uint64]:
    """The signs of rows (shape [rows, dimensions]), in words: shape [rows, words]."""
    packed = np.packbits(turned > 0, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


def _coded(rows: NDArray[np.float32], centre: NDArray[np.float32], kind: np.dtype[np.void]) -> NDArray[np.void]:
    """The record of a chunk, without its checksum."""
    record, turned = np.zeros((), kind), rows - centre
    record["bits"] = _signs(turned).T
    # The part of a row along its signs, and of the centre along the row: equation 20's factors.
    record["scale"] = np.square(turned).sum(axis=1) / np.maximum(np.abs(turned).sum(axis=1), 1e-12)
    record["offset"] = turned @ centre
    record["digest"] = [xxhash.xxh32_intdigest(row.data) for row in rows]
    return record


def _check(centre: NDArray[np.float32], record: NDArray[np.void], blocks: Blocks, chunk: int) -> bytes:
    """The checksum of a record, which also stands for the vectors that it was made from."""
    first = np.searchsorted(blocks.edges, chunk * CHUNK, "right") - 1
    last = np.searchsorted(blocks.edges, (chunk + 1) * CHUNK, "left")
    digest = xxhash.xxh3_64(centre.data)
    digest.update(blocks.digests[first:last].tobytes())
    digest.update(np.asarray(record).reshape(1).view(np.uint8)[: -record.dtype["check"].itemsize].data)
    return digest.digest()


ROWS_AT_ONCE = 1 << 22
"""How many scores are in memory at a time: for 64 claims, those of 65,536 vectors."""
NARROW = 8
"""If at most one in so many segments may be found, only their rows are read."""
BLOCK_BYTES = 1 << 18
"""The largest block with a checksum."""


def digest(data: NDArray[np.generic] | bytes) -> bytes:
    return xxhash.xxh3_64_digest(data if isinstance(data, bytes) else data.data)


@contextmanager
def _writing(path: Path) -> Iterator[BinaryIO]:
    """A file of the store, which need not exist yet. What was written to it is on the disk at the end."""
    is_new = not path.exists()
    # Symbolic links are not followed: the store never makes one.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        share(path, path.parent)
        sync_folder(path.parent)


def write_rows(path: Path, first_row: int, vectors: NDArray[np.float32], owners: ArrayLike) -> list[VectorBlock]:
    """Write vectors (shape [rows, dimensions]) from a row on, sync them to the disk, and return their blocks.

    Rows beyond those that the database counts were left by a crash and are overwritten.
    """
    vectors = np.ascontiguousarray(vectors, np.float32)
    with _writing(path) as file:
        file.seek(first_row * vectors.shape[1] * 4)
        file.write(vectors.data)
    size = max(1, BLOCK_BYTES // (4 * vectors.shape[1]))
    whose, parts = np.asarray(owners, np.int64), (slice(at, at + size) for at in range(0, len(vectors), size))
    return [VectorBlock(first_row + part.start, whose[part], digest(vectors[part])) for part in parts]


@dataclass(frozen=True, slots=True)
class Blocks:
    """The rows of a mapped file with their checksums by blocks, which are compared before they are first read.

    Block i is `rows[edges[i] : edges[i + 1]]` with the checksum `digests[i]` (8 bytes).
    """

    path: Path
    rows: NDArray[np.float32]
    edges: NDArray[np.int64]
    digests: NDArray[np.void]
    seen: NDArray[np.bool_]

    @property
    def codes(self) -> Path:
        """The file of codes beside it."""
        return self.path.with_name(codes_file(self.path.name))

    def check(self, begins: ArrayLike, ends: ArrayLike) -> None:
        """Raise Damaged unless the blocks of these runs of rows match their checksums."""
        if self.seen[: len(self.digests)].all():
            return
        changes = np.zeros(len(self.edges) + 1, np.int64)
        filled = np.asarray(begins) < np.asarray(ends)
        np.add.at(changes, np.searchsorted(self.edges, np.asarray(begins)[filled], "right") - 1, 1)
        np.add.at(changes, np.searchsorted(self.edges, np.asarray(ends)[filled], "left"), -1)
        wanted = np.cumsum(changes)[: len(self.digests)] > 0
        for i in np.flatnonzero(wanted & ~self.seen[: len(self.digests)]).tolist():
            first, last = self.edges[i : i + 2].tolist()
            if digest(self.rows[first:last]) != self.digests[i].tobytes():
                width = self.rows.strides[0]
                raise Damaged(self.path, f"does not match its checksum in bytes {first * width} to {last * width}")
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
    blocks: Blocks
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
        owners = np.concatenate([np.zeros(0, np.int64), *(block.owners for block in blocks)])
        rows = np.zeros((0, dimensions), np.float32)
        try:
            if blocks:
                rows = np.memmap(path, np.float32, "r", shape=(len(owners), dimensions))
        except (OSError, ValueError) as error:
            if isinstance(error, PermissionError):
                raise
            raise Damaged(path, "is missing or cut short") from error
        edges = np.array([block.first for block in blocks] + [len(owners)], np.int64)
        digests = np.frombuffer(b"".join(block.digest for block in blocks), "V8")
        checks = Blocks(path, rows, edges, digests, verified.of_blocks(path.name, len(blocks)))
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        seqs = owners[starts] >> bits
        codes = open_codes(checks) if cls is VectorIndex else None
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
            if not (allowed := wanted[segments]).all():
                scores[:, ~allowed] = -np.inf
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
        if 0 < len(self.rows) <= rows_at_once and len(segments):
            return [segments]
        ends = np.cumsum(self._lengths(segments))
        cuts = np.searchsorted(ends, np.arange(rows_at_once, ends[-1] if len(ends) else 0, rows_at_once), "right")
        # Equal cuts make empty runs. np.unique would drop them, but imports numpy.ma, which takes 10 ms.
        return [run for run in np.split(segments, cuts) if len(run)]

    def _lengths(self, segments: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many rows each segment has."""
        return np.append(self.starts, len(self.rows))[segments + 1] - self.starts[segments]

    def _segment_scores(self, queries: NDArray[np.float32], segments: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each of these segments, which are ascending: shape [queries, segments]."""
        if int(segments[-1] - segments[0]) == len(segments) - 1:
            begins = self.starts[segments[0] : segments[-1] + 1]
            firsts, ends = begins - begins[0], begins[-1:] + self._lengths(segments[-1:])
            rows = self.rows[int(begins[0]) : int(ends[0])]
            self.blocks.check(begins[:1], ends)
        else:
            begins, lengths = self.starts[segments], self._lengths(segments)
            firsts = np.cumsum(lengths) - lengths
            numbers = np.repeat(begins - firsts, lengths) + np.arange(int(lengths.sum()))
            if self.codes is None:
                self.blocks.check(begins, begins + lengths)
            else:
                # Of blocks that are spread over the file, each would be read whole for a row of it.
                several = self.codes.unlike(self.rows, numbers)
                self.blocks.check(several, several + 1)
            rows = self.rows[numbers]
        return self._reduced(rows, firsts, queries)

    def _reduced(
        self, rows: NDArray[np.float32], firsts: NDArray[np.int64], queries: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The score of each segment for each query. The rows of segment i begin at `firsts[i]`."""
        scores = (rows @ queries.T).T
        return scores if len(rows) == len(firsts) else np.maximum.reduceat(scores, firsts, axis=1)


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
