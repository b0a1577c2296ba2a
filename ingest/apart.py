"""Files that libraries parse, read in another process (`core/child.py`) with limits of time and memory.

Only what is read line by line or value by value, by json and csv, is read in this one: that takes time and memory in
proportion to the line, whatever is in it, and lines have a limit.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from ..core.child import ANSWER_BYTES, Child, Ended
from ..core.errors import InvalidData, require, why_unread
from .lines import CHUNK, decompressed
from .office import read_docx, read_parquet, read_xlsx
from .pages import read_html
from .pdf import read_pdf
from .records import Record, Reject
from .references import read_references, read_xml
from .sniff import Format
from .sources import REJECTS_SUFFIX, Source, source_of

FUNCTION = "ccheck.ingest.apart:records"
NEEDS: dict[str, tuple[str, str, str]] = {
    "pdf": ("PDF files", "documents", "pypdfium2"),
    "docx": ("Word files", "documents", "docx"),
    "xlsx": ("Excel files", "documents", "openpyxl"),
    "parquet": ("Parquet", "parquet", "pyarrow"),
    "html": ("HTML", "pages", "trafilatura"),
}
UNPACKED = 50
"""What is compressed may be so many times larger than the file, or `UNPACKED_BYTES`."""
UNPACKED_BYTES = 1 << 30
MEMBERS = 100_000
Reader: TypeAlias = Callable[[Source, Callable[[int], None]], Iterator[Record | Reject]]
"""Reads a file of one format, and says how many bytes it has read."""
READERS: Mapping[Format, Reader] = {
    "pdf": read_pdf,
    "docx": read_docx,
    "xlsx": read_xlsx,
    "parquet": read_parquet,
    "html": read_html,
    "xml": read_xml,
    "ris": read_references,
    "bibtex": read_references,
    "nbib": read_references,
    "wos": read_references,
}
"""How the other process reads the files that this one does not."""


def read_apart(
    source: Source, chunks: Iterable[bytes], on_bytes: Callable[[int], None], child: Child
) -> Iterator[Record | Reject]:
    """The records of a file that a library parses; `chunks` are its bytes as they lie in it.

    Raises MissingExtra without the library, and OSError if the file can't be read.
    """
    if source.format in NEEDS:
        what, extra, library = NEEDS[source.format]
        require(f"reading {what}", extra, library)
    with unpacked(source, chunks) as path:
        count = on_bytes if path == source.path else lambda size: None
        yield from _asked(source, path, count, child)


@contextmanager
def unpacked(source: Source, chunks: Iterable[bytes]) -> Iterator[Path]:
    """A file with the bytes of the source, decompressed: parsers jump in it, which a stream can't do.

    Raises InvalidData if they are too many.
    """
    if source.path is not None and source.size is not None and not source.compression:
        yield source.path
        return
    with tempfile.TemporaryDirectory(prefix="ccheck-") as folder:
        path, most = Path(folder, "file"), _most(source.size)
        if not _kept(decompressed(chunks, source.compression), path, most):
            raise InvalidData(f"the file unpacks to more than {most:,} bytes. Decompress it first")
        yield path


def _most(size: int | None) -> int:
    return max(UNPACKED_BYTES, UNPACKED * (size or 0))


def _kept(chunks: Iterable[bytes], path: Path, most: int) -> bool:
    """Write a file. Returns whether that were at most so many bytes."""
    with path.open("wb") as file:
        for chunk in chunks:
            if file.tell() + len(chunk) > most:
                return False
            file.write(chunk)
    return True


def _asked(source: Source, path: Path, on_bytes: Callable[[int], None], child: Child) -> Iterator[Record | Reject]:
    size = path.stat().st_size
    with path.open("rb"):  # in this process, so that the error is the system's
        pass
    line = told = 0
    try:
        for one in child.ask(
            size, **asdict(replace(source, path=None, size=size, compression=None)), file=os.fspath(path.absolute())
        ):
            line += 1
            if one is None:
                yield Reject(source.name, line, f"the record is too long: more than {ANSWER_BYTES:,} bytes as JSON")
                continue
            line, read = one["line"], one.pop("read")
            told += read
            on_bytes(read)
            yield Reject(**one) if "reason" in one else Record(**one)
    except Ended as error:
        rest = ". The rest of the file was skipped" if line else ""
        yield Reject(source.name, line + 1, f"the file can't be read ({error}){rest}")
    on_bytes(max(size - told, 0))


def records(*, file: str, **given: Any) -> Iterator[dict[str, Any]]:
    """What the other process answers: the records and rejects of a source, with how many bytes were read for each."""
    source = Source(**{**given, "path": Path(file)})
    read = line = 0

    def count(size: int) -> None:
        nonlocal read
        read += size

    try:
        assert source.format is not None
        for one in READERS[source.format](source, count):
            line = one.line
            yield {name: getattr(one, name) for name in one.__slots__} | {"read": read}
            read = 0
    except Exception as error:  # noqa: BLE001 - the libraries raise all kinds for files that are damaged
        rest = ". The rest of the file was skipped" if line else ""
        yield asdict(Reject(source.name, line + 1, f"the file can't be read ({why_unread(error)}){rest}")) | {"read": 0}


def members(source: Source, file: Path, wants: Callable[[str], bool]) -> Iterator[Source | Reject]:
    """The papers in a ZIP archive whose name is wanted, each as a file that is there until the next is asked for.

    The sizes in an archive are claims: no more than a limit is ever unpacked.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        yield Reject(source.name, 0, f"the archive can't be read: {error}")
        return
    with archive, tempfile.TemporaryDirectory(prefix="ccheck-") as folder:
        found = sorted((one for one in archive.infolist() if not one.is_dir()), key=lambda one: one.filename)
        if len(found) > MEMBERS:
            yield Reject(source.name, 0, f"the archive has {len(found):,} files, at most {MEMBERS:,}")
            return
        left, empty = _most(source.size), True
        for one in found:
            way = PurePosixPath(one.filename.replace("\\", "/"))
            hidden = any(part.startswith((".", "__MACOSX")) for part in way.parts)
            if hidden or way.name.endswith(REJECTS_SUFFIX) or not way.name or not wants(way.name):
                continue
            name, path = f"{source.name}/{one.filename}", Path(folder, f"paper{''.join(way.suffixes[-2:])}")
            try:
                with archive.open(one) as stream:
                    fits = _kept(iter(partial(stream.read, CHUNK), b""), path, left)
                left -= path.stat().st_size
                if not fits:
                    yield Reject(source.name, 0, f"the archive unpacks to more than {_most(source.size):,} bytes")
                    return
                if (inner := source_of(path)) is not None:
                    empty = False
                    yield replace(inner, name=name, label=f"{source.label}/{one.filename}")
            except Exception as error:  # noqa: BLE001 - also what zlib and lzma raise for a damaged member
                yield Reject(name, 0, f"it can't be unpacked: {why_unread(error)}")
                empty = False
        if empty:
            yield Reject(source.name, 0, "the archive holds no file that ccheck can read")
