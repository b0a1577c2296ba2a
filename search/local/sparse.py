"""Exact retrieval by the dot product of sparse vectors: inverted lists in memory-mapped files.

They are derived from the database, which has the vectors in batches and names the segments. A segment inverts a run of
batches: for each token it has the documents with that token, ascending, and their weights. Segments are written once
and merged by size. Batches that no segment covers are inverted in memory. Removed documents stay in segments and are
masked. A segment's file ends with the checksums of its blocks; the database knows the checksum of these.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.errors import InvalidData
from ...core.types import SparseVector
from .files import SPARSE, Blocks, Damaged, Verified, digest, digests_of, make_folder, new_name, share, sync_folder

SEGMENT_FROM = 1_000
"""The smallest number of documents for a segment."""
SEGMENT_DOCUMENTS = 20_000
"""At least so many documents are inverted at a time."""
FAN = 8
"""How many segments are merged into one."""
POSTINGS_COPIED = 1 << 22
BLOCK_BYTES = 1 << 15
"""The size of a block with a checksum. Even a short list costs reading this much."""
_MAGIC = b"ccheck\0\1"
_HEADER = 5  # numbers of 8 bytes: magic, vocabulary, first, last, postings


@dataclass(frozen=True, slots=True)
class Batch:
    """Sparse vectors of several documents, by seq. `lengths` says how many of the ids and weights each has."""

    number: int
    seqs: NDArray[np.int64]
    lengths: NDArray[np.int64]
    ids: NDArray[np.int32]
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: Sequence[tuple[int, SparseVector]]) -> Batch | None:
        """None if no document has a token."""
        some = [(seq, vector) for seq, vector in vectors if len(vector.ids)]
        if not some:
            return None
        return cls(
            0,
            np.array([seq for seq, _ in some], "<i8"),
            np.array([len(vector.ids) for _, vector in some], "<i8"),
            np.concatenate([vector.ids for _, vector in some]).astype("<i4"),
            np.concatenate([vector.weights for _, vector in some]).astype("<f4"),
        )

    def packed(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The columns of the database: seqs, lengths, ids, weights."""
        return self.seqs.tobytes(), self.lengths.tobytes(), self.ids.tobytes(), self.weights.tobytes()

    @classmethod
    def unpacked(cls, number: int, seqs: bytes, lengths: bytes, ids: bytes, weights: bytes) -> Batch:
        return cls(
            number,
            np.frombuffer(seqs, "<i8"),
            np.frombuffer(lengths, "<i8"),
            np.frombuffer(ids, "<i4"),
            np.frombuffer(weights, "<f4"),
        )

    def without(self, alive: NDArray[np.bool_]) -> Batch | None:
        """Only the documents that exist; None if there are none."""
        kept = alive[self.seqs]
        tokens = np.repeat(kept, self.lengths)
        if not kept.any():
            return None
        return Batch(self.number, self.seqs[kept], self.lengths[kept], self.ids[tokens], self.weights[tokens])


@dataclass(frozen=True, slots=True)
class Named:
    """A segment as the database names it: of the documents with `first` < seq <= `last`.

    It covers the batches before number `upto` that no earlier segment covers. `digest` is that of the checksums.
    """

    file: str
    first: int
    last: int
    upto: int
    digest: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Inverted lists of the documents with `first` < seq <= `last`.

    The list of a token is `offsets[token]` to `offsets[token + 1]` of `documents` (seq - first) and `weights`. `check`
    compares the lists of a file with its checksums before they are read.
    """

    first: int
    last: int
    offsets: NDArray[np.int64]
    documents: NDArray[np.uint32]
    weights: NDArray[np.float32]
    blocks: Blocks | None = None

    @property
    def postings(self) -> int:
        return len(self.documents)

    def check_all(self) -> None:
        """As `check`, for the whole segment."""
        if self.blocks is not None:
            self.blocks.check([0], [len(self.blocks.data)])

    def check(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Raise Damaged unless the postings between these places are as they were written."""
        if self.blocks is None:
            return
        start = 8 * (_HEADER + len(self.offsets))
        both = np.r_[0, self.postings][:, None]
        self.blocks.check((start + 4 * (both + begins)).ravel(), (start + 4 * (both + ends)).ravel())


def check(vector: SparseVector, vocabulary: int, whose: str) -> None:
    """Raise InvalidData unless this is a `SparseVector` over a vocabulary of this size."""
    ids, weights = np.asarray(vector.ids), np.asarray(vector.weights)
    if ids.shape != weights.shape or ids.ndim != 1:
        raise InvalidData(
            f"the sparse vector of {whose} has token ids of shape {ids.shape}, but weights of {weights.shape}"
        )
    if not len(ids):
        return
    if ids[0] < 0 or ids[-1] >= vocabulary or not np.all(np.diff(ids) > 0):
        raise InvalidData(
            f"the sparse vector of {whose} has tokens that are not in ascending order, or not in the vocabulary of "
            f"{vocabulary} tokens. Use the model that made the store's sparse vectors"
        )
    if not (np.all(np.isfinite(weights)) and np.all(weights > 0)):
        raise InvalidData(f"the sparse vector of {whose} has weights that are not greater than 0")


def invert(batches: Sequence[Batch], vocabulary: int, first: int, last: int) -> Segment:
    """The segment of the documents in these batches."""
    tokens = np.concatenate([batch.ids for batch in batches])
    order = np.argsort(tokens, kind="stable")
    offsets = np.zeros(vocabulary + 1, np.int64)
    np.cumsum(np.bincount(tokens, minlength=vocabulary), out=offsets[1:])
    owners = np.concatenate([np.repeat(batch.seqs - first, batch.lengths) for batch in batches])
    weights = np.concatenate([batch.weights for batch in batches])
    return Segment(first, last, offsets, owners.astype(np.uint32)[order], weights[order].astype(np.float32))


def catch_up(
    store: Path,
    vocabulary: int,
    named: Sequence[Named],
    batches_after: Callable[[int], Iterable[Batch]],
    verified: Verified,
) -> list[Named]:
    """Write segments of the batches that no segment covers, merge them if there are many, and return the new list.

    The caller removes the files of other segments once the database names these. Raises Damaged.
    """
    chain = list(named)
    for batches in _runs(batches_after(chain[-1].upto if chain else 0)):
        if sum(len(batch.seqs) for batch in batches) < SEGMENT_FROM:
            break
        first, last = chain[-1].last if chain else 0, int(batches[-1].seqs[-1])
        chain.append(_write(store, [invert(batches, vocabulary, first, last)], vocabulary, batches[-1].number + 1))
        opened = [open_segment(store, one, vocabulary, verified) for one in chain]
        start = _mergeable([segment.postings for segment in opened])
        if start is not None:
            for segment in opened[start:]:
                segment.check_all()
            chain[start:] = [_write(store, opened[start:], vocabulary, chain[-1].upto)]
    return chain


def sweep(store: Path, named: Sequence[Named]) -> None:
    """Remove the files that the database does not name."""
    kept = {one.file for one in named}
    folder = store / SPARSE
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.name not in kept and file.suffix in (".lists", ".unfinished"):
            # On Windows a reader can block the removal. A later writer tries again.
            with contextlib.suppress(OSError):
                file.unlink()


def open_segment(store: Path, named: Named, vocabulary: int, verified: Verified) -> Segment:
    """Map a segment. Raises Damaged if it is missing or its head is not as it was written."""
    path = store / SPARSE / named.file
    try:
        data = np.asarray(np.memmap(path, np.uint8, "r"))  # what is cut from a memmap itself costs more to make
    except (OSError, ValueError) as error:
        raise Damaged(path, "is missing or empty", derived=True) from error
    count = (len(data) + BLOCK_BYTES + 7) // (BLOCK_BYTES + 8)
    body = len(data) - 8 * count
    if body <= 8 * _HEADER or digest(data[body:]).hex() != named.digest:
        raise Damaged(path, "does not match its checksum", derived=True)
    edges = np.r_[np.arange(0, body, BLOCK_BYTES), body]
    seen = verified.of_blocks(named.file, count)
    blocks = Blocks(path, True, data, edges, data[body:].view("V8"), seen)
    begin = 8 * (_HEADER + vocabulary + 1)
    blocks.check([0], [min(begin, body)])
    size, first, last, postings = data[8 : 8 * _HEADER].view(np.int64).tolist()
    if bytes(data[:8]) != _MAGIC or (size, first, last) != (vocabulary, named.first, named.last):
        raise Damaged(path, "is not the segment that the database names", derived=True)
    middle, end = begin + 4 * postings, begin + 8 * postings
    documents, weights = data[begin:middle].view(np.uint32), data[middle:end].view(np.float32)
    return Segment(first, last, data[8 * _HEADER : begin].view(np.int64), documents, weights, blocks)


def _write(store: Path, parts: Sequence[Segment], vocabulary: int, upto: int) -> Named:
    """Write segments as one, to a file that is complete or absent."""
    folder = store / SPARSE
    make_folder(folder)
    share(folder, store)
    first, last = parts[0].first, parts[-1].last
    offsets = np.sum([part.offsets for part in parts], axis=0)
    postings = int(offsets[-1])
    file = folder / f"{new_name(f'{first}-{last}')}.lists"
    unfinished = file.with_suffix(".unfinished")
    with unfinished.open("w+b") as stream:
        stream.write(_MAGIC + np.array([vocabulary, first, last, postings], np.int64).tobytes())
        stream.write(offsets.tobytes())
        begin = stream.tell()
        for start, documents, weights in _joined(parts, offsets, first):
            for array, place in ((documents, begin + 4 * start), (weights, begin + 4 * (postings + start))):
                stream.seek(place)
                stream.write(array.data)
        stream.flush()
        checksums = b"".join(digests_of(np.asarray(np.memmap(unfinished, np.uint8, "r")), BLOCK_BYTES))
        stream.seek(0, os.SEEK_END)
        stream.write(checksums)
        stream.flush()
        os.fsync(stream.fileno())
    share(unfinished, store)
    unfinished.replace(file)
    sync_folder(folder)
    return Named(file.name, first, last, upto, digest(checksums).hex())


def _joined(
    parts: Sequence[Segment], offsets: NDArray[np.int64], first: int
) -> Iterator[tuple[int, NDArray[np.uint32], NDArray[np.float32]]]:
    """Runs of the joined lists with their places. Each token's list has the first segment's part, then the next …"""
    edges = np.unique(np.searchsorted(offsets, np.arange(0, offsets[-1] + POSTINGS_COPIED, POSTINGS_COPIED)))
    for low, high in itertools.pairwise(np.unique(np.r_[0, edges.clip(max=len(offsets) - 1), len(offsets) - 1])):
        start, end = int(offsets[low]), int(offsets[high])
        documents, weights = np.empty(end - start, np.uint32), np.empty(end - start, np.float32)
        free = offsets[low:high] - start
        for part in parts:
            begin, stop = int(part.offsets[low]), int(part.offsets[high])
            counts = np.diff(part.offsets[low : high + 1])
            places = np.repeat(free - (part.offsets[low:high] - begin), counts) + np.arange(stop - begin)
            documents[places] = part.documents[begin:stop] + np.uint32(part.first - first)
            weights[places] = part.weights[begin:stop]
            free = free + counts
        yield start, documents, weights


def _mergeable(sizes: Sequence[int]) -> int | None:
    """The start of the last segments to merge: at least `FAN`, the first no larger than the others together."""
    for start in range(len(sizes) - FAN + 1):
        if sizes[start] <= sum(sizes[start + 1 :]):
            return start
    return None


def _runs(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Batches in runs of at least `SEGMENT_DOCUMENTS` documents. The last run can be shorter."""
    run: list[Batch] = []
    for batch in batches:
        run.append(batch)
        if sum(len(one.seqs) for one in run) >= SEGMENT_DOCUMENTS:
            yield run
            run = []
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """The sparse vectors of one generation of a store. `alive[seq]`: whether the document exists."""

    parts: tuple[Segment, ...]
    alive: NDArray[np.bool_]
    vocabulary: int

    @classmethod
    def open(
        cls, chain: Sequence[Segment], vocabulary: int, alive: NDArray[np.bool_], rest: Sequence[Batch]
    ) -> SparseIndex:
        """`rest`: the batches that no segment of the chain covers."""
        last = chain[-1].last if chain else 0
        tail = [invert(rest, vocabulary, last, int(rest[-1].seqs[-1]))] if rest else []
        return cls((*chain, *tail), alive, vocabulary)

    def search(
        self, query: SparseVector, depth: int, allowed: NDArray[np.bool_] | None = None
    ) -> list[tuple[int, float]]:
        """The `depth` documents with the highest dot products above 0: (seq, dot product), best first.

        `allowed[seq]` says which may be found. Equal scores are in the order of ingestion. Raises InvalidData for a
        vector of another vocabulary, and Damaged for lists that are not as they were written.
        """
        check(query, self.vocabulary, "the claim")
        scores = np.zeros(len(self.alive), np.float32)
        for part in self.parts:
            mine = scores[part.first : part.last + 1]
            begins, ends = part.offsets[query.ids], part.offsets[query.ids + 1]
            part.check(begins, ends)
            for begin, end, weight in zip(begins.tolist(), ends.tolist(), query.weights, strict=True):
                # A document is in a list only once, so no sum is lost.
                mine[part.documents[begin:end]] += part.weights[begin:end] * weight
        scores *= self.alive
        if allowed is not None:
            scores *= allowed
        found = np.flatnonzero(scores >= _lower_bound(scores, depth))
        values = scores[found]
        if len(found) > depth:
            least = np.partition(values, -depth)[-depth]
            above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
            best = np.r_[above, equal[: depth - len(above)]]
            found, values = found[best], values[best]
        order = np.lexsort((found, -values))
        return list(zip(found[order].tolist(), values[order].tolist(), strict=True))


def _lower_bound(scores: NDArray[np.float32], depth: int) -> np.float32:
    """A bound above 0 and at most the `depth`-th best score, found cheaply from a sample."""
    some = scores[:: max(1, len(scores) // (64 * depth))]
    least = np.partition(some, -depth)[-depth] if len(some) >= depth else np.float32(0)
    return max(least, np.nextafter(np.float32(0), np.float32(1)))
