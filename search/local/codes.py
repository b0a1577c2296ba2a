"""One-bit codes of vectors, which say in milliseconds which of a million rows are worth reading.

RaBitQ (Gao and Long, SIGMOD 2024, equation 20) without its random rotation, which gained .01 of recall or less in the
first look. A row x, less the centre c, is coded by its signs. Three looks, each at fewer rows: the differing bits of
all of them; for the closest, an estimate of the dot product with the whole query; for the best of these, the vectors
themselves. So scores are always exact, and only which rows are looked at can err.

The codes of a chunk of rows are written once, at the end of a file beside the vectors, and are good if their checksum
is that of themselves and of the vectors' own checksums. Rows without good codes are always read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from numpy.typing import NDArray

from .files import Damaged, share, sync_folder

if TYPE_CHECKING:
    from .vectors import Blocks

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
        closest = self._closest(_bits(turned[None])[0], ESTIMATED * depth, row_wanted)
        best = closest
        if len(closest) > READ * depth:
            estimates = self._estimates(closest, turned)
            best = closest[np.argpartition(estimates, -READ * depth)[-READ * depth :]]
        rest = row_wanted.copy()
        for chunk in self.chunks:
            rest[chunk * CHUNK : (chunk + 1) * CHUNK] = False
        rest[self._rows(best)] = True
        return np.flatnonzero(rest)

    def _rows(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows at these places of the records."""
        return self.chunks[places // CHUNK] * CHUNK + places % CHUNK

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


def open_codes(path: Path, rows: NDArray[np.float32], blocks: Blocks) -> Codes | None:
    """The codes in this file for these rows. None if there are too few rows, or no good codes."""
    written = _written(path, rows)
    if written is None:
        return None
    centre, records = written
    good = [i for i, one in enumerate(records) if one["check"].tobytes() == _check(centre, one, blocks, i)]
    if not good:
        return None
    # A view, and no copy, where all are good.
    kept = records if len(good) == len(records) else records[good]
    return Codes(centre, kept, np.array(good, np.int64), np.zeros(len(rows), np.bool_))


def check_codes(path: Path, rows: NDArray[np.float32], blocks: Blocks) -> None:
    """Raises Damaged, derived, if codes are not as they were written. That makes a search slower, and no worse."""
    written, codes = _written(path, rows), open_codes(path, rows, blocks)
    if written is not None and (codes is None or len(codes.chunks) < len(written[1])):
        raise Damaged(path, "does not match its checksum", derived=True)


def _written(path: Path, rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.void]] | None:
    """The centre and the records of a file, as they are. None if there are too few rows, or no records."""
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


def write_codes(path: Path, rows: NDArray[np.float32], blocks: Blocks) -> None:
    """Code the chunks of rows that have no good codes yet. Only the one writer may call this. Raises Damaged."""
    if len(rows) < LEAST_ROWS:
        return
    known = open_codes(path, rows, blocks)
    missing = sorted(set(range(len(rows) // CHUNK)) - set(known.chunks.tolist() if known is not None else []))
    if not missing:
        return
    dimensions, kind = rows.shape[1], _record(rows.shape[1])
    if known is None:
        path.unlink(missing_ok=True)
        blocks.check([0], [CHUNK * dimensions * 4])
        centre = rows[:CHUNK].mean(axis=0, dtype=np.float64).astype(np.float32)
    else:
        centre = known.centre
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        file.write(centre.data)
        for chunk in missing:
            blocks.check([chunk * CHUNK * dimensions * 4], [(chunk + 1) * CHUNK * dimensions * 4])
            record = _coded(rows[chunk * CHUNK : (chunk + 1) * CHUNK], centre, kind)
            record["check"] = np.void(_check(centre, record, blocks, chunk))
            file.seek(4 * dimensions + chunk * kind.itemsize)
            file.write(record.tobytes())
        file.flush()
        os.fsync(file.fileno())
    share(path, path.parent)
    sync_folder(path.parent)


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


def _bits(turned: NDArray[np.float32]) -> NDArray[np.uint64]:
    """The signs of rows (shape [rows, dimensions]), in words: shape [rows, words]."""
    packed = np.packbits(turned > 0, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


def _coded(rows: NDArray[np.float32], centre: NDArray[np.float32], kind: np.dtype[np.void]) -> NDArray[np.void]:
    """The record of a chunk, without its checksum."""
    record, turned = np.zeros((), kind), rows - centre
    record["bits"] = _bits(turned).T
    # The part of a row along its signs, and of the centre along the row: equation 20's factors.
    record["scale"] = np.square(turned).sum(axis=1) / np.maximum(np.abs(turned).sum(axis=1), 1e-12)
    record["offset"] = turned @ centre
    record["digest"] = [xxhash.xxh32_intdigest(row.data) for row in rows]
    return record


def _check(centre: NDArray[np.float32], record: NDArray[np.void], blocks: Blocks, chunk: int) -> bytes:
    """The checksum of a record, which also stands for the vectors that it was made from."""
    width = centre.nbytes
    first = np.searchsorted(blocks.edges, chunk * CHUNK * width, "right") - 1
    last = np.searchsorted(blocks.edges, (chunk + 1) * CHUNK * width, "left")
    digest = xxhash.xxh3_64(centre.data)
    digest.update(blocks.digests[first:last].tobytes())
    digest.update(np.asarray(record).reshape(1).view(np.uint8)[: -record.dtype["check"].itemsize].data)
    return digest.digest()
