"""Records of evaluation files, whose format is told by what is in them: JSON Lines, JSON, CSV, TSV, TREC's, Parquet."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import InvalidData, NotFound
from ..ingest import Record, Reject
from ..ingest.lines import read_lines
from ..ingest.readers import read_source
from ..ingest.records import LINE_BYTES, NOT_UTF8
from ..ingest.sources import Compression, Format, Source

SHOWN = 5
"""How many bad lines a message lists."""
_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PICKLE = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))


def read_records(path: str | os.PathLike[str], columns: frozenset[str]) -> Iterator[Record]:
    """The records of a file, plain or compressed.

    In a table without a header the keys are the numbers of the columns, from 0: "0", "1". It has a header where its
    first row has one of `columns`. Raises NotFound, MissingExtra (Parquet without pyarrow), and InvalidData with the
    numbers and reasons of bad lines.
    """
    source, start = _opened(Path(path))
    problems: list[str] = []
    bad = 0
    for record in _records(source, start, columns):
        if isinstance(record, Record):
            if not bad:
                yield record
            continue
        bad += 1
        if bad <= SHOWN:
            problems.append(f"line {record.line}: {record.reason}" if record.line else record.reason)
    if bad:
        raise bad_lines(path, problems, bad)


def take_all(path: str | os.PathLike[str], columns: frozenset[str], take: Callable[[Record, int], None]) -> None:
    """Give each record of a file to `take` with its number, from 1; see `read_records`.

    What it finds wrong (InvalidData) is raised together, with line numbers.
    """
    problems: list[str] = []
    bad = 0
    for number, record in enumerate(read_records(path, columns), 1):
        try:
            take(record, number)
        except InvalidData as error:
            bad += 1
            if bad <= SHOWN:
                problems.append(f"line {record.line}: {error}")
    if bad:
        raise bad_lines(path, problems, bad)


def bad_lines(path: str | os.PathLike[str], problems: list[str], count: int) -> InvalidData:
    """The error for lines that can't be used: the first of them with their reasons."""
    shown = "; ".join(problems[:SHOWN])
    more = f"; and {count - SHOWN:,} more" if count > SHOWN else ""
    return InvalidData(f"{os.fspath(path)} can't be used as it is: {shown}{more}. Correct or remove these lines")


def _opened(path: Path) -> tuple[Source, bytes]:
    """The file as a source, by its first bytes, and its first line that is not blank."""
    path = path.expanduser()
    if path.is_dir():
        raise NotFound(f"{path} is a folder: name a file in it")
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}") from error
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}") from error
    if head.startswith(_PICKLE) or path.suffix in (".pkl", ".pickle"):
        convert = f"pandas.read_pickle('{path}').to_json('{path.stem}.jsonl', orient='records', lines=True)"
        raise InvalidData(
            f"{path} is a pickle, which can run any code when it is loaded: ccheck reads none. If you trust who made "
            f'it, convert it by python -c "import pandas; {convert}" and give that file'
        )
    if head == b"PAR1":
        return Source(str(path), path, "parquet"), b""
    compression = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    source = Source(str(path), path, "jsonl", compression)
    first = next((line for line in read_lines(source, _ignore, LINE_BYTES) if line.problem or line.data.strip()), None)
    if first is None:
        raise InvalidData(f"{path} is empty")
    if first.problem:
        raise bad_lines(path, [f"line {first.number}: {first.problem}"], 1)
    if compression and first.data.startswith(b"PAR1"):
        return Source(str(path), path, "parquet", compression), b""
    return source, first.data


def _records(source: Source, start: bytes, columns: frozenset[str]) -> Iterator[Record | Reject]:
    if source.format == "parquet":
        yield from read_source(source)
    elif start.lstrip().startswith((b"{", b"[")):
        yield from read_source(_as(source, "json"))
    else:
        first = start.decode("utf-8", "replace")
        delimiter = "\t" if "\t" in first else ","
        if columns & set(_cells(first, delimiter)):
            yield from read_source(_as(source, "tsv" if delimiter == "\t" else "csv"))
        else:
            yield from _without_header(source, "\t" in first)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []  # no header, at any rate


def _without_header(source: Source, tabs: bool) -> Iterator[Record | Reject]:
    """TREC's files: cells between tabs or, where the first line has none, blanks. Quotes mean nothing."""
    for line in read_lines(source, _ignore, LINE_BYTES):
        if line.problem:
            yield Reject(source.name, line.number, line.problem)
            continue
        try:
            text = line.data.decode("utf-8")
        except UnicodeDecodeError:
            yield Reject(source.name, line.number, NOT_UTF8)
            continue
        if not text.strip():
            continue
        cells = [cell.strip() for cell in text.split("\t")] if tabs else text.split()
        data: dict[str, Any] = {str(number): cell for number, cell in enumerate(cells)}
        yield Record(source.name, line.number, data, untyped=True)


def _as(source: Source, kind: Format) -> Source:
    return Source(source.name, source.path, kind, source.compression)


def _ignore(count: int) -> None:
    """Nobody waits for these bytes."""
