"""Exact retrieval by the dot product of sparse vectors: inverted lists in memory-mapped files.

Derived from the database, which holds each document's vector. A segment has the documents of a run of seqs, turned
around: for each token the documents that have it, ascending, and their weights. Segments are written once and merged
by size; what no segment covers is turned around in memory. Documents that are gone stay in them and are masked.
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

from ...errors import InvalidData
from ...types import SparseVector

SEGMENT_FROM = 1_000
"""Fewer documents than these are no segment of their own yet."""
SEGMENT_DOCUMENTS = 20_000
"""How many documents are turned around at a time."""
FAN = 8
"""How many segments become one."""
POSTINGS_COPIED = 1 << 22
_MAGIC = b"ccheck\0\1"
_HEADER = 5  # numbers of 8 bytes: magic, vocabulary, first, last, postings

Row = tuple[int, bytes, bytes]
"""A document as the database has it: seq, token ids (int32) and weights (float32)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Inverted lists of the documents with `first` < seq <= `last`.

    The list of a token is `offsets[token]` to `offsets[token + 1]` of `documents` (seq - first) and `weights`.
    """

    first: int
    last: int
    offsets: NDArray[np.int64]
    documents: NDArray[np.uint32]
    weights: NDArray[np.float32]
    path: Path | None = None

    @property
    def postings(self) -> int:
        return len(self.documents)


def pack(vector: SparseVector) -> tuple[bytes, bytes]:
    """As the database keeps it."""
    return (
        np.ascontiguousarray(vector.ids, "<i4").tobytes(),
        np.ascontiguousarray(vector.weights, "<f4").tobytes(),
    )


def check(vector: SparseVector, vocabulary: int, whose: str) -> None:
    """Raise InvalidData unless it is a vector over this vocabulary, as `SparseVector` says."""
    ids, weights = np.asarray(vector.ids), np.asarray(vector.weights)
    if ids.shape != weights.shape or ids.ndim != 1:
        raise InvalidData(f"the sparse vector of {whose} has {ids.shape} tokens and {weights.shape} weights")
    if not len(ids):
        return
    if ids[0] < 0 or ids[-1] >= vocabulary or not np.all(np.diff(ids) > 0):
        raise InvalidData(
            f"the sparse vector of {whose} has tokens that are not ascending or not among the {vocabulary} of the "
            "store's model: use the model that made the store's sparse vectors"
        )
    if not (np.all(np.isfinite(weights)) and np.all(weights > 0)):
        raise InvalidData(f"the sparse vector of {whose} has weights that are not above 0")


def invert(rows: Sequence[Row], vocabulary: int, first: int, last: int) -> Segment:
    """The segment of these documents, in the order of their seqs."""
    ids = [np.frombuffer(packed, "<i4") for _, packed, _ in rows]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    seqs = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    tokens = np.concatenate(ids) if ids else np.zeros(0, np.int32)
    weights = np.frombuffer(b"".join(row[2] for row in rows), "<f4")
    order = np.argsort(tokens, kind="stable")
    offsets = np.zeros(vocabulary + 1, np.int64)
    np.cumsum(np.bincount(tokens, minlength=vocabulary), out=offsets[1:])
    documents = np.repeat((seqs - first).astype(np.uint32), lengths)[order]
    return Segment(first, last, offsets, documents, weights[order].astype(np.float32))


def catch_up(folder: Path, vocabulary: int, rows_after: Callable[[int], Iterable[Row]]) -> None:
    """Write segments of the documents that are in none, and merge what has become many.

    `rows_after(seq)` reads the documents above one.
    """
    folder.mkdir(exist_ok=True)
    chain = segments(folder, vocabulary)
    kept = {segment.path for segment in chain}
    for file in folder.iterdir():
        if file not in kept:
            file.unlink(missing_ok=True)
    position = chain[-1].last if chain else 0
    for batch in _batches(rows_after(position), SEGMENT_DOCUMENTS):
        if len(batch) < SEGMENT_FROM:
            break
        chain.append(_write(folder, [invert(batch, vocabulary, position, batch[-1][0])], vocabulary))
        position = chain[-1].last
        start = _mergeable([segment.postings for segment in chain])
        if start is not None:
            merged = _write(folder, chain[start:], vocabulary)
            for segment in chain[start:]:
                # Where readers keep a file from being removed (Windows), a later writer tries again.
                with contextlib.suppress(OSError):
                    assert segment.path is not None
                    segment.path.unlink()
            chain[start:] = [merged]


def forget_after(folder: Path, highest: int) -> None:
    """Remove the segments with documents above the highest seq that ever was: a crash took these back."""
    for _, last, file in _files(folder):
        if last > highest:
            file.unlink(missing_ok=True)


def segments(folder: Path, vocabulary: int) -> list[Segment]:
    """Those that follow each other from the first document on; files that can't be read as such are passed over."""
    found: dict[int, list[tuple[int, Path]]] = {}
    for first, last, file in _files(folder):
        found.setdefault(first, []).append((last, file))
    chain: list[Segment] = []
    while candidates := found.pop(chain[-1].last if chain else 0, None):
        opened = (_open(file, vocabulary) for _, file in sorted(candidates, reverse=True))
        segment = next((segment for segment in opened if segment is not None), None)
        if segment is None:
            break
        chain.append(segment)
    return chain


def _files(folder: Path) -> Iterator[tuple[int, int, Path]]:
    for file in list(folder.glob("*-*.lists")):
        first, _, last = file.stem.partition("-")
        if first.isdecimal() and last.isdecimal() and int(first) < int(last):
            yield int(first), int(last), file


def _open(file: Path, vocabulary: int) -> Segment | None:
    try:
        data = np.asarray(np.memmap(file, np.uint8, "r"))  # what is cut from a memmap itself costs more to make
    except (OSError, ValueError):  # merged away since, or empty
        return None
    if len(data) < 8 * _HEADER or bytes(data[:8]) != _MAGIC:
        return None
    size, first, last, postings = data[8 : 8 * _HEADER].view(np.int64).tolist()
    begin = 8 * _HEADER + 8 * (vocabulary + 1)
    if size != vocabulary or len(data) != begin + 8 * postings:
        return None
    offsets = data[8 * _HEADER : begin].view(np.int64)
    if offsets[0] != 0 or offsets[-1] != postings:
        return None
    documents = data[begin : begin + 4 * postings].view(np.uint32)
    return Segment(first, last, offsets, documents, data[begin + 4 * postings :].view(np.float32), file)


def _write(folder: Path, parts: Sequence[Segment], vocabulary: int) -> Segment:
    """The segments as one, in a file that is whole or not there."""
    first, last = parts[0].first, parts[-1].last
    offsets = np.sum([part.offsets for part in parts], axis=0)
    postings = int(offsets[-1])
    file, unfinished = folder / f"{first}-{last}.lists", folder / f"{first}-{last}.unfinished"
    with unfinished.open("w+b") as stream:
        stream.write(_MAGIC + np.array([vocabulary, first, last, postings], np.int64).tobytes())
        stream.write(offsets.tobytes())
        begin = stream.tell()
        for start, documents, weights in _joined(parts, offsets, first):
            for array, place in ((documents, begin + 4 * start), (weights, begin + 4 * (postings + start))):
                stream.seek(place)
                stream.write(array.data)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)
    written = _open(file, vocabulary)
    if written is None:
        raise OSError(f"{file} was written and can't be read")
    return written


def _joined(
    parts: Sequence[Segment], offsets: NDArray[np.int64], first: int
) -> Iterator[tuple[int, NDArray[np.uint32], NDArray[np.float32]]]:
    """Runs of the joined lists with their place: of each token those of the first segment, the second …"""
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
    """Where the run of last segments begins that are to be one: many, and the first no larger than the others."""
    for start in range(len(sizes) - FAN + 1):
        if sizes[start] <= sum(sizes[start + 1 :]):
            return start
    return None


def _batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """The sparse vectors of one generation of a store. `alive[seq]`: whether a document is there and has one."""

    parts: tuple[Segment, ...]
    alive: NDArray[np.bool_]
    vocabulary: int

    @classmethod
    def open(
        cls, chain: Sequence[Segment], vocabulary: int, alive: NDArray[np.bool_], rest: Sequence[Row]
    ) -> SparseIndex:
        """`rest`: the documents that no segment of the chain covers."""
        last = chain[-1].last if chain else 0
        tail = [invert(rest, vocabulary, last, rest[-1][0])] if rest else []
        parts = (*chain, *tail)
        length = max(len(alive), parts[-1].last + 1 if parts else 0)
        return cls(parts, np.r_[alive, np.zeros(length - len(alive), np.bool_)], vocabulary)

    def search(
        self, query: SparseVector, depth: int, allowed: NDArray[np.bool_] | None = None
    ) -> list[tuple[int, float]]:
        """The `depth` documents of the highest dot products above 0: (seq, dot product), best first.

        `allowed[seq]` says which may be found. Of equal ones the document that was ingested first. Raises InvalidData
        for a vector of another vocabulary.
        """
        check(query, self.vocabulary, "the claim")
        scores = np.zeros(len(self.alive), np.float32)
        for part in self.parts:
            mine = scores[part.first : part.last + 1]
            begins, ends = part.offsets[query.ids], part.offsets[query.ids + 1]
            for begin, end, weight in zip(begins.tolist(), ends.tolist(), query.weights, strict=True):
                # A document is in a list once, so that nothing is added to a stale value.
                mine[part.documents[begin:end]] += part.weights[begin:end] * weight
        scores *= self.alive
        if allowed is not None:
            shared = min(len(allowed), len(scores))
            scores[:shared] *= allowed[:shared]
            scores[shared:] = 0
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
    """Above 0, and no more than the `depth`-th best score: cheaply, that of a part of them."""
    some = scores[:: max(1, len(scores) // (64 * depth))]
    least = np.partition(some, -depth)[-depth] if len(some) >= depth else np.float32(0)
    return max(least, np.nextafter(np.float32(0), np.float32(1)))
