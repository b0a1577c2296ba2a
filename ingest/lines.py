"""The bytes of a file, decompressed, line by line, never more of them in memory than one line may have."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .records import LINE_BYTES
from .sniff import HEAD_BYTES, MAGIC, Compression, Format, as_utf8, sniff

if TYPE_CHECKING:
    from .sources import Source

CHUNK = 1 << 16
_COMPRESSED_CHUNK = 1 << 10  # of which zstd can make 32,768 times as much
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end. With a `problem`, `data` is what could be had of it."""

    number: int
    data: bytes
    problem: str | None = None


def read_lines(
    source: Source,
    on_bytes: Callable[[int], None] = lambda size: None,
    chunks: Iterable[bytes] | None = None,
) -> Iterator[Line]:
    """The lines of a source, blank ones too; `chunks` are its bytes as they lie in it, if some were read already.

    Text in the source's encoding comes as UTF-8. A single carriage return ends no line. Raises OSError if it can't
    be read.
    """
    number, size = 1, 0
    pieces: list[bytes] = []

    def line(problem: str | None = None) -> Line:
        data = b"".join(pieces).removesuffix(b"\r")
        if number == 1:
            data = data.removeprefix(_BOM)
        if size > LINE_BYTES:
            problem = problem or f"the line is too long: {size:,} bytes, at most {LINE_BYTES:,}"
        return Line(number, data, problem)

    try:
        chunks = decompressed(raw_chunks(source, on_bytes) if chunks is None else chunks, source.compression)
        for chunk in as_utf8(chunks, source.encoding) if source.encoding else chunks:
            *ended, rest = chunk.split(b"\n")
            for piece in ended:
                pieces.append(piece)
                size += len(piece)
                yield line()
                number, pieces, size = number + 1, [], 0
            if size <= LINE_BYTES:
                pieces.append(rest)
            size += len(rest)
    except Broken as error:
        yield line(str(error))
    else:
        if size:
            yield line()


def raw_chunks(source: Source, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """The bytes of a source as they lie in it."""
    opened: Any = nullcontext(sys.stdin.buffer) if source.path is None else source.path.open("rb")
    with opened as stream:
        while chunk := stream.read1(CHUNK):
            yield chunk
            on_bytes(len(chunk))


def told_by(head: bytes, compression: Compression | None = None) -> tuple[Format | None, Compression | None]:
    """The format and compression that a file's first bytes tell: None for an unknown format, txt for nothing."""
    compression = compression or next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), None)
    found = bytearray()
    with suppress(Broken):  # reading says what is wrong
        for chunk in decompressed([head], compression):
            found += chunk
            if len(found) >= HEAD_BYTES:
                break
    return (sniff(bytes(found[:HEAD_BYTES])) if found else "txt"), compression


class Broken(OSError):
    """The compressed data end early or make no sense; the message is for the reader of a reject."""


def decompressed(chunks: Iterable[bytes], compression: Compression | None) -> Iterator[bytes]:
    """The bytes that these stand for. Raises Broken if they can't be decompressed."""
    if compression is None:
        yield from chunks
        return
    failure: type[Exception]
    start: Callable[[], Any]
    if compression == "gzip":
        failure, start = zlib.error, partial(zlib.decompressobj, wbits=31)
    else:
        import zstandard

        failure, start = zstandard.ZstdError, zstandard.ZstdDecompressor().decompressobj

    # One file can hold many gzip members or zstd frames, and zeros after them.
    part = None
    try:
        for chunk in chunks:
            for begin in range(0, len(chunk), _COMPRESSED_CHUNK):
                piece = chunk[begin : begin + _COMPRESSED_CHUNK]
                while piece:
                    if part is None and not (piece := piece.lstrip(b"\0")):
                        break
                    part = part or start()
                    data = part.decompress(piece)
                    for at in range(0, len(data), CHUNK):
                        yield data[at : at + CHUNK]
                    piece = part.unused_data if part.eof else b""
                    if part.eof:
                        part = None
    except failure as error:
        raise Broken(f"the {compression} data are damaged ({error}). The rest of the file was skipped") from error
    if part is not None:
        raise Broken(f"the {compression} data end early: the file is incomplete")
