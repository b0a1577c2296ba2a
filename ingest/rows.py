"""Records of files of claims, judgements and pairs, whose format is told by their content.

JSON Lines, JSON, CSV, TSV, TREC's, Parquet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import InvalidData, NotFound
from ..core.files import no_file
from ..core.text import is_unicode
from .lines import read_lines, told_by
from .readers import read_sources
from .records import NOT_UTF8, Record, Reject
from .sniff import HEAD_BYTES, HINTS, cells, sniff_unicode
from .sources import STDIN, Source, find_sources

Made = TypeVar("Made")
SHOWN = 5
"""How many bad lines a message lists."""
JSON_LINES = (".jsonl", ".ndjson")
_PICKLE = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_NO_TEXTS = {
    b"PK\x03\x04": "an Excel workbook or another ZIP file",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file",
    b"%PDF-": "a PDF",
}


def records_of(
    path: str | os.PathLike[str], columns: frozenset[str], *, by_name: bool = False
) -> Iterator[Record | Reject]:
    """The records of a file, plain or compressed, or of standard input (`-`, JSON Lines), bad ones as a `Reject`.

    In a table without a header the keys are the numbers of the columns, from 0: "0", "1". It has a header where its
    first row has one of `columns`. `by_name`: a file called .jsonl or .ndjson is JSON Lines, also where its first line
    is not, one called .csv has a header, unless there are tabs, and each line of a .txt file without tabs is a text.
    Raises, at once, NotFound, UsageError, and InvalidData for a pickle and for what is not text.
    """
    source = _opened(os.fspath(path))
    name = os.fspath(path).lower().removesuffix(".gz").removesuffix(".zst") if by_name else ""
    if source.format != "txt":
        return read_sources([source])
    lines = read_lines(source)
    first = next((line for line in lines if line.problem or line.data.strip()), None)
    if first is None:
        return iter(())
    start = first.data.decode("utf-8", "replace")
    if first.problem or start.lstrip().startswith(("{", "[")) or name.endswith(JSON_LINES):
        return read_sources([replace(source, format="json")])
    known = {column.casefold() for column in columns}
    headers = {one: {cell.strip().casefold() for row in cells([start], one) for cell in row} for one in "\t,;|"}
    delimiter = next((one for one, header in headers.items() if known & header), None)
    if delimiter is not None or (name.endswith(".csv") and "\t" not in start):
        table = replace(source, format="tsv" if delimiter == "\t" else "csv", delimiter=delimiter)
        return (_with_known_names(one, columns) for one in read_sources([table]))
    if "\t" in start:
        return _without_header(source, lambda text: [cell.strip() for cell in text.split("\t")])
    return _without_header(source, (lambda text: {"text": text.strip()}) if name.endswith(".txt") else str.split)


def take_all(path: str | os.PathLike[str], columns: frozenset[str], take: Callable[[Record, int], Made]) -> list[Made]:
    """What `take` makes of each record of a file, which it is given with its number, from 1; see `records_of`.

    Raises NotFound, UsageError, MissingExtra (Parquet without pyarrow), and InvalidData for an empty file or, with
    their numbers and reasons, for bad lines and those about which `take` raises it.
    """
    made: list[Made] = []
    problems: list[str] = []
    number = 0
    for number, record in enumerate(records_of(path, columns), 1):
        try:
            if isinstance(record, Reject):
                raise InvalidData(record.reason)
            made.append(take(record, number))
        except InvalidData as error:
            problems.append(f"line {record.line}: {error}" if record.line else str(error))
    if problems:
        raise bad_lines(path, problems)
    if not number:
        raise InvalidData(f"{os.fspath(path)} is empty")
    return made


def bad_lines(path: str | os.PathLike[str], problems: list[str]) -> InvalidData:
    """The error for lines that can't be used: the first of them with their reasons."""
    shown = "; ".join(problems[:SHOWN])
    more = f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
    return InvalidData(f"{os.fspath(path)} can't be used: {shown}{more}. Correct or remove these lines")


def _opened(name: str) -> Source:
    """The file as a source; its format is txt where its first line tells more."""
    path = Path(name).expanduser()
    if name == STDIN or (path.exists() and not path.is_file() and not path.is_dir()):  # also a shell's <(command)
        (source,) = find_sources(name)
        return source
    if path.is_dir():
        raise NotFound(f"{path} is a folder. Name a file in it")
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise no_file(path) from error
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}") from error
    if head.startswith(_PICKLE) or path.suffix in (".pkl", ".pickle"):
        advice = HINTS[".pickle"].replace("FILE", str(path))
        raise InvalidData(f"{path} is a pickle, which ccheck does not read. {advice}")
    format_, compression = told_by(head)
    binary = "a binary file" if format_ is None and b"\0" in head[:16] else None
    if (kind := next((said for magic, said in _NO_TEXTS.items() if head.startswith(magic)), binary)) is not None:
        raise InvalidData(f'{path} is {kind}, not text. Save it as text, a sheet as CSV (in Excel as "CSV UTF-8")')
    unicode = sniff_unicode(b"" if compression else head)  # as Excel's "Unicode text" is
    encoding = None if unicode == "utf-8-sig" else unicode
    return Source(str(path), path, "parquet" if format_ == "parquet" else "txt", compression, encoding=encoding)


def _with_known_names(record: Record | Reject, columns: frozenset[str]) -> Record | Reject:
    """The record with the names of columns as they are known: `Claim` is `claim`."""
    if isinstance(record, Reject):
        return record
    known = {name: name.casefold() for name in record.data if name not in columns and name.casefold() in columns}
    return replace(record, data={known.get(name, name): value for name, value in record.data.items()})


def _without_header(source: Source, cut: Callable[[str], list[str] | dict[str, str]]) -> Iterator[Record | Reject]:
    """Lines of texts, and TREC's files, in which quotes mean nothing."""
    for line in read_lines(source):
        text = line.data.decode("utf-8", "surrogateescape")
        if line.problem or not is_unicode(text):
            yield Reject(source.name, line.number, line.problem or NOT_UTF8)
        elif text.strip():
            found = cut(text)
            data: dict[str, Any] = found if isinstance(found, dict) else {str(n): one for n, one in enumerate(found)}
            yield Record(source.name, line.number, data, untyped=True)
